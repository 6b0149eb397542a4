package proc_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/internal/proc"
)

// Processes are found by their ancestor, their session or their mark, and not those that are idle.
func TestLiving(t *testing.T) {
	t.Parallel()
	mark := proc.NewMark()
	start := func(mark string) int {
		t.Helper()
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", "sleep 1000 & echo; wait") // ended by the cleanup, with its child
		cmd.Env = []string{"PATH=/usr/bin:/bin", mark}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			proc.KillTree(cmd.Process.Pid)
			_ = cmd.Wait()
		})
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	var scan proc.Scan
	before := proc.Uptime()
	session, idle, marked := start("A=1"), start("A=1"), start(mark)
	count := func(sessions, idle []int) (n int, names string) {
		for pid, begun := range scan.Living(sessions, idle, mark, nil) {
			if begun < before.Truncate(10*time.Millisecond) || begun > proc.Uptime() {
				t.Errorf("%d was started at %v, after %v", pid, begun, before)
			}
			names += " " + proc.CommandLine(pid)
			n++
		}
		return n, names
	}
	if n, names := count(nil, nil); n != 2 {
		t.Errorf("by the mark: got %d:%s", n, names)
	}
	n, names := count([]int{session, marked}, []int{idle})
	if n != 2 || strings.Count(names, "sleep") != 2 {
		t.Errorf("without the sessions themselves: got %d:%s", n, names)
	}
	if n, names := count(nil, []int{marked}); n != 0 {
		t.Errorf("idle: got %d:%s", n, names)
	}
}

// The descendants of many roots are those of each of them, also where a snapshot holds a circle.
func TestDescendants(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		all := map[int]proc.Process{}
		for pid := range 30 {
			all[pid] = proc.Process{Parent: random.IntN(40), Session: random.IntN(200)}
		}
		roots := []int{random.IntN(40), random.IntN(40)}
		below := proc.Descendants(all, roots)
		for pid := range all {
			want := proc.Descends(all, pid, roots[0]) || proc.Descends(all, pid, roots[1])
			if below[pid] != want {
				t.Fatalf("%d below %v in %+v: got %t", pid, roots, all, below[pid])
			}
		}
	}
}

// A long chain of processes and many sessions, which would take hours one by one.
func TestDescendantsOfMany(t *testing.T) {
	t.Parallel()
	const many = 100_000
	all, roots := map[int]proc.Process{}, []int{}
	for pid := range many {
		all[pid] = proc.Process{Parent: pid - 1, Session: -2}
		roots = append(roots, -10-pid)
	}
	below := proc.Descendants(all, append(roots, 0))
	if !below[many-1] || !below[1] || below[0] {
		t.Errorf("got %t, %t and %t", below[many-1], below[1], below[0])
	}
}

// A process is left out by its number and inode, and found where another process had the number before.
func TestOthers(t *testing.T) {
	t.Parallel()
	mark := proc.NewMark()
	pid, inode := reader(t, "sh", mark)
	for _, test := range []struct {
		name   string
		others map[int]uint64
		want   int
	}{
		{"not known", nil, 1},
		{"another one with its number", map[int]uint64{pid: inode + 1}, 1},
		{"known", map[int]uint64{pid: inode}, 0},
	} {
		scan := proc.NewScan(test.others)
		for range 2 {
			if got := len(scan.Living(nil, nil, mark, nil)); got != test.want {
				t.Errorf("%s: got %d processes, want %d", test.name, got, test.want)
			}
		}
	}
}

// Processes that were started before this one are remembered, and no others: they may be about to execute a program
// with the mark.
func TestRememberOthers(t *testing.T) {
	t.Parallel()
	const ended = 1 << 30 // more than any number
	scan := proc.NewScan(map[int]uint64{ended: 1})
	child, _ := reader(t, "sh", "A=1")
	orphan, _ := reader(t, "setsid", "A=1")
	scan.Living(nil, nil, proc.NewMark(), nil)
	others := scan.Others()
	if len(others) == 0 {
		t.Error("no process is remembered")
	}
	for _, pid := range []int{os.Getpid(), child, orphan, ended} {
		if others[pid] != 0 {
			t.Errorf("%d is remembered", pid)
		}
	}
}

// reader starts a shell that waits for the end of its input, itself or as an orphan in a session of its own, with a
// variable. It returns its number and the inode of its directory in /proc, which the kernel keeps until the end of
// the test.
func reader(t *testing.T, by, variable string) (pid int, inode uint64) {
	t.Helper()
	script := "echo $$; read line"
	args := []string{"-c", script}
	if by == "setsid" {
		args = []string{"sh", "-c", "sh -c '" + script + "' <&3 &"}
	}
	cmd := exec.CommandContext(t.Context(), by, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", variable}
	in, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = in, say, []*os.File{in}
	err = cmd.Start()
	_, _ = in.Close(), say.Close()
	if err != nil {
		t.Fatal(err)
	}
	if by == "setsid" {
		_ = cmd.Wait() // it is no orphan before
	}
	t.Cleanup(func() {
		_ = write.Close()
		_, _ = io.Copy(io.Discard, out) // until its end
		_ = out.Close()
		if by != "setsid" {
			_ = cmd.Wait()
		}
	})
	if _, err := fmt.Fscan(out, &pid); err != nil { // it has its environment
		t.Fatal(err)
	}
	dir, err := os.Open(fmt.Sprint("/proc/", pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	info, err := dir.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return pid, info.Sys().(*syscall.Stat_t).Ino
}

// The start of a process is told; where that is not known, one may have been started.
func TestStarts(t *testing.T) {
	t.Parallel()
	starts := proc.NewStarts()
	starts.Since()
	for range 3 {
		if err := exec.CommandContext(t.Context(), "true").Run(); err != nil {
			t.Fatal(err)
		}
		if !starts.Since() {
			t.Error("a process was started")
		}
	}
	starts.Close()
	starts.Close()
	if !starts.Since() {
		t.Error("it is not known whether one was started")
	}
}
