package proc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/testhelp"
)

// ways returns the ways to start a program within a limit that this system has.
func ways(t *testing.T) map[string]func(*exec.Cmd, time.Duration) error {
	t.Helper()
	all := map[string]func(*exec.Cmd, time.Duration) error{
		"copy": func(cmd *exec.Cmd, limit time.Duration) error { return proc.StartWithin(cmd, limit, false) },
	}
	if proc.StubRuns() {
		all["stub"] = func(cmd *exec.Cmd, limit time.Duration) error { return proc.StartWithin(cmd, limit, true) }
	}
	return all
}

func TestStubRuns(t *testing.T) {
	t.Parallel()
	if !proc.StubRuns() {
		t.Skip("this system executes no program in memory")
	}
}

// A program has the same as from cmd.Start, and nothing of ours.
func TestStart(t *testing.T) {
	for way, start := range ways(t) {
		t.Run(way, func(t *testing.T) {
			signal.Ignore(syscall.SIGHUP)
			defer signal.Reset(syscall.SIGHUP)
			dir := t.TempDir()
			in, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			defer out.Close()
			var stdout bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo "$0 $1 $A"; pwd; for f in 4 5; do test -e /proc/$$/fd/$f && echo $f; done; kill -HUP $$; echo deaf`, "zero", "one two")
			cmd.Args[0] = "shell"
			cmd.Dir, cmd.Env, cmd.Stdout = dir, []string{"A=b c"}, &stdout
			cmd.ExtraFiles = []*os.File{nil, out}
			if err := start(cmd, time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGHUP {
				t.Errorf("hung up on, it ended with %v", err)
			}
			if got, want := stdout.String(), "zero one two b c\n"+dir+"\n4\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestStartAs(t *testing.T) {
	t.Parallel()
	for way, start := range ways(t) {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if os.Geteuid() != 0 {
				t.Skip("only root can take on the rights of another user")
			}
			for name, groups := range map[string][]uint32{"no groups": nil, "groups": {7, 65000}} {
				var stdout bytes.Buffer
				cmd := exec.CommandContext(t.Context(), "grep", "-E", "^(Uid|Gid|Groups|CapEff):", "/proc/self/status")
				cmd.Stdout = &stdout
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: 65001, Gid: 65002, Groups: groups}}
				err := start(cmd, time.Hour)
				if err == nil {
					err = cmd.Wait()
				}
				want := "Uid: 65001 65001 65001 65001 Gid: 65002 65002 65002 65002 Groups:"
				if groups != nil {
					want += " 7 65000"
				}
				if got := strings.Join(strings.Fields(stdout.String()), " "); err != nil || got != want+" CapEff: 0000000000000000" {
					t.Errorf("%s: got %q, %v", name, got, err)
				}
			}
		})
	}
}

// A program goes before this process when memory runs out, from its first moment on.
func TestStartGoesFirst(t *testing.T) {
	t.Parallel()
	for way, start := range ways(t) {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			var stdout bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "cat", "/proc/self/oom_score_adj")
			cmd.Stdout = &stdout
			err := start(cmd, time.Hour)
			if err == nil {
				err = cmd.Wait()
			}
			if got := stdout.String(); err != nil || got != "1000\n" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// Variables for the program reach the program, and mean nothing to this one's copy,
// whose rights are not the user's yet.
func TestStartEnvironment(t *testing.T) {
	t.Parallel()
	for way, start := range ways(t) {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "/usr/bin/env")
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			cmd.Env = []string{"GODEBUG=inittrace=1", "A=1", "A=2", "=x", "odd"}
			err := start(cmd, time.Hour)
			if err == nil {
				err = cmd.Wait()
			}
			if got, want := stdout.String(), "GODEBUG=inittrace=1\nA=2\n=x\nodd\n"; err != nil || got != want || stderr.Len() > 0 {
				t.Errorf("got %q, %v, want %q; on standard error %q", got, err, want, stderr.String())
			}
		})
	}
}

// A limit of the size of this process's files, in which no stub has place, does not prevent starts.
func TestStartFileLimit(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	start := ways(t)["stub"]
	small := limit
	small.Cur = 4096
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_FSIZE, &limit) }()
	cmd := exec.CommandContext(t.Context(), "/bin/true")
	err := start(cmd, time.Hour)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Error(err)
	}
}

// Arguments that no program can have are refused without many copies of them in memory.
func TestStartTooLong(t *testing.T) {
	for way, start := range ways(t) {
		const words, size = 500, 100 << 10
		word := strings.Repeat("x", size)
		cmd := exec.CommandContext(t.Context(), "/bin/true", slices.Repeat([]string{word}, words)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := start(cmd, time.Hour)
		runtime.ReadMemStats(&after)
		if copies := float64(after.TotalAlloc-before.TotalAlloc) / (words * size); !errors.Is(err, unix.E2BIG) || copies > 2 {
			t.Errorf("%s: got %v with %.1f copies", way, err, copies)
		}
	}
}

// A first start without free descriptors does not make all later ones slow.
func TestProbe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		first, later error
		want         bool
	}{
		{&os.PathError{Err: syscall.EMFILE}, nil, true},
		{&os.PathError{Err: syscall.EACCES}, nil, false},
		{nil, syscall.EMFILE, true},
	} {
		ask := proc.Probe()
		if got := ask(func() error { return tt.first }); got != (tt.first == nil) {
			t.Errorf("%v: the first answer is %v", tt.first, got)
		}
		if got := ask(func() error { return tt.later }); got != tt.want {
			t.Errorf("%v: the later answer is %v", tt.first, got)
		}
	}
}

// Without arguments, the name of the program is its path, as cmd.Start has it.
func TestStartWithoutArguments(t *testing.T) {
	t.Parallel()
	for way, start := range ways(t) {
		var stdout bytes.Buffer
		cmd := &exec.Cmd{Path: "/bin/sh", Stdin: strings.NewReader("cat /proc/$$/cmdline"), Stdout: &stdout}
		err := start(cmd, time.Hour)
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil || stdout.String() != "/bin/sh\x00" {
			t.Errorf("%s: got %q, %v", way, stdout.String(), err)
		}
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"plain": 0o600, "empty": 0o700} {
		testhelp.WriteFile(t, filepath.Join(dir, name), "", mode)
	}
	for way, start := range ways(t) {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			for _, tt := range []struct {
				name, program, dir, where string
				want                      error
			}{
				{"no program", dir + "/none", "", dir + "/none", fs.ErrNotExist},
				{"no directory", "/bin/true", dir + "/none", dir + "/none", fs.ErrNotExist},
				{"a file for a directory", "/bin/true", dir + "/plain", dir + "/plain", syscall.ENOTDIR},
				{"not executable", dir + "/plain", "", dir + "/plain", fs.ErrPermission},
				{"no program at all", dir + "/empty", dir, dir + "/empty", syscall.ENOEXEC},
			} {
				cmd := exec.CommandContext(t.Context(), tt.program)
				cmd.Dir = tt.dir
				err := start(cmd, time.Hour)
				where, ok := errors.AsType[*fs.PathError](err)
				if !errors.Is(err, tt.want) || !ok || where.Path != tt.where {
					t.Errorf("%s: got %v", tt.name, err)
				}
			}
		})
	}
	if err := proc.Start(exec.CommandContext(t.Context(), "no-such-program")); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// leased is a program that its owner has a lease on, so that running it waits. The
// channel tells that a process does wait, and release ends the lease.
func leased(t *testing.T) (program string, wanted <-chan os.Signal, release func()) {
	t.Helper()
	program = filepath.Join(testhelp.PublicDir(t), "program")
	testhelp.WriteProgram(t, program, "#!/bin/sh\n")
	file, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGIO)
	t.Cleanup(func() { signal.Stop(signals) })
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this file system has no leases: %v", err)
	}
	return program, signals, func() { _, _ = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_UNLCK) }
}

// hanging is a program on a file system that does not answer before release.
func hanging(t *testing.T) (program string, wanted <-chan os.Signal, release func()) {
	t.Helper()
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("only root mounts file systems that do not answer, with FUSE: %v", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("test", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	release = sync.OnceFunc(func() {
		_ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)
		_ = unix.Close(fuse)
	})
	t.Cleanup(release)
	// The first request is for the version, with a header of 40 bytes (linux/fuse.h); the next one is of the program.
	request := make([]byte, 1<<14)
	if _, err := unix.Read(fuse, request); err != nil {
		t.Fatal(err)
	}
	const size = 16 + 64
	answer := make([]byte, size)
	binary.NativeEndian.PutUint32(answer, size)
	copy(answer[8:], request[8:16])
	binary.NativeEndian.PutUint32(answer[16:], 7)
	binary.NativeEndian.PutUint32(answer[20:], 31)
	binary.NativeEndian.PutUint32(answer[36:], 4096) // the largest write
	if _, err := unix.Write(fuse, answer); err != nil {
		t.Fatal(err)
	}
	asked := make(chan os.Signal, 1)
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		_, _ = unix.Read(fuse, request)
		asked <- syscall.SIGIO
	}()
	t.Cleanup(func() { <-reading })
	return filepath.Join(dir, "program"), asked, release
}

// A program that cannot be had at once holds up its own start, and not the memory
// that is to be collected, without which everything stands still.
func TestHeldUp(t *testing.T) {
	for name, held := range map[string]func(*testing.T) (string, <-chan os.Signal, func()){"lease": leased, "file system": hanging} {
		t.Run(name, func(t *testing.T) {
			for way, start := range ways(t) {
				t.Run(way, func(t *testing.T) {
					program, wanted, release := held(t)
					cmd := exec.CommandContext(t.Context(), program)
					started := make(chan error)
					go func() { started <- start(cmd, time.Hour) }()
					<-wanted
					runtime.GC()
					select {
					case err := <-started:
						t.Fatalf("memory was collected when the start was over (%v)", err)
					default:
					}
					release()
					err := <-started
					if err == nil {
						err = cmd.Wait()
					}
					if gone := errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED); gone != (name == "file system") || err != nil && !gone {
						t.Error(err)
					}
				})
			}
		})
	}
}

// A start that the user's processes stop holds up itself alone.
func TestStopped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can take on the rights of another user")
	}
	attr := func() *syscall.SysProcAttr { // of a user that no other test has
		return &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: 65019, Gid: 65019}}
	}
	all := func(signal string) { // to all processes of the user
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "kill -"+signal+" -1")
		cmd.SysProcAttr = attr()
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
	}
	for way, start := range ways(t) {
		t.Run(way, func(t *testing.T) {
			program, wanted, release := leased(t)
			cmd := exec.CommandContext(t.Context(), program)
			cmd.SysProcAttr = attr()
			started := make(chan error)
			go func() { started <- start(cmd, time.Hour) }()
			select {
			case <-wanted: // it has the user's rights, and waits for the program
			case err := <-started:
				t.Fatal(err)
			}
			all("STOP")
			runtime.GC()
			release()
			all("CONT")
			if err := errors.Join(<-started, cmd.Wait()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHeldUpForLong(t *testing.T) {
	for way, start := range ways(t) {
		t.Run(way, func(t *testing.T) {
			program, _, _ := leased(t)
			cmd := exec.CommandContext(t.Context(), program)
			if err := start(cmd, time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not start within") {
				t.Errorf("got %v", err)
			}
		})
	}
}
