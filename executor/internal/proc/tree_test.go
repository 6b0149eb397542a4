package proc_test

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// start starts a shell in a session of its own, with a mark, and returns what
// its script prints: the ids of processes. They end with the test.
func start(t *testing.T, mark, script string) (root int, pids []int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	t.Cleanup(func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid, pids
}

// gone waits until a process does not exist, or is a zombie without a parent here.
func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(time.Minute)
	for alive(pid) {
		select {
		case <-deadline:
			t.Fatalf("process %d lives", pid)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// daemon prints the id of a process that left session and parents.
const daemon = `setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'`

func TestKillTree(t *testing.T) {
	t.Parallel()
	root, pids := start(t, "A=b", `sleep 1000 & one=$!; setsid sleep 1000 & echo $one $!; wait`)
	proc.KillTree(root)
	for _, pid := range append(pids, root) {
		gone(t, pid)
	}
}

// Of the leader's group, the processes that are older and the leader live on, and
// so do processes of other groups.
func TestKillYounger(t *testing.T) {
	t.Parallel()
	older, pids := start(t, "A=1", "sleep 1000 & echo $$ $!; read x; exec sleep 1000")
	proc.KillYounger(older, proc.Uptime()+time.Second)
	if !alive(older) || !alive(pids[1]) {
		t.Fatal("a process was killed that was not started after that time")
	}
	proc.KillYounger(older, 0)
	gone(t, pids[1])
	if !alive(older) {
		t.Error("the leader was killed")
	}
	_, others := start(t, "A=1", "setsid sleep 1000 & echo $$ $!; wait")
	for group := others[0]; group == others[0]; { // until setsid has run
		var err error
		if group, err = syscall.Getpgid(others[1]); err != nil {
			t.Fatal(err)
		}
	}
	proc.KillYounger(others[0], 0)
	if !alive(others[1]) {
		t.Error("a process of another group was killed")
	}
}

// Of a session, the groups and what was started since a time get the signal, and the root does
// not; and the caller learns whether there was any such process.
func TestSignalYounger(t *testing.T) {
	t.Parallel()
	root, pids := start(t, "A=1", "sleep 1000 & echo $$ $!; read x; exec sleep 1000")
	if proc.SignalYounger(root, nil, proc.Uptime()+time.Second, syscall.SIGKILL) || !alive(pids[1]) {
		t.Error("a process got the signal that is of another group and older")
	}
	if !proc.SignalYounger(root, []int{0, root}, proc.Uptime()+time.Second, syscall.SIGKILL) {
		t.Error("no process of the group got the signal")
	}
	gone(t, pids[1])
	if proc.SignalYounger(root, []int{root}, 0, syscall.SIGKILL) || !alive(root) {
		t.Error("the root got the signal")
	}
}

// A process that loses its parents while these are killed is killed too.
func TestKillTreeOrphans(t *testing.T) {
	t.Parallel()
	const generations = `setsid sh -c 'setsid sh -c "setsid sh -c \"sleep 1000 & sleep 1000 & sleep 1000 & echo \\\$!; wait\"; wait"; wait'`
	for range 20 {
		root, pids := start(t, "A=b", generations+"; wait")
		proc.KillTree(root)
		for _, pid := range pids {
			gone(t, pid)
		}
	}
}

// A root that ended takes the rest along, and its number is its own until it is
// waited for, and ignored after that.
func TestTree(t *testing.T) {
	t.Parallel()
	root, pids := start(t, "A=b", `sleep 1000 & echo $!; wait`)
	tree := proc.NewTree(root)
	reached := 0
	tree.Do(func(pid int) { reached = pid })
	if reached != root {
		t.Errorf("got %d, want %d", reached, root)
	}
	var waiting sync.WaitGroup
	waiting.Go(tree.Await)
	_ = syscall.Kill(root, syscall.SIGTERM)
	waiting.Wait()
	gone(t, pids[0])
	if _, err := os.Stat("/proc/" + strconv.Itoa(root)); err != nil {
		t.Errorf("the root was waited for: %v", err)
	}
	tree.Do(func(int) { t.Error("a root that ended was reached") })
	tree.Kill()
}

func TestTreeKill(t *testing.T) {
	t.Parallel()
	root, pids := start(t, "A=b", `setsid sleep 1000 & echo $!; wait`)
	tree := proc.NewTree(root)
	tree.Kill()
	tree.Await()
	gone(t, root)
	gone(t, pids[0])
}

func TestKillMarked(t *testing.T) {
	t.Parallel()
	mark, other := proc.NewMark(), proc.NewMark()
	if mark == other {
		t.Fatalf("two marks are %s", mark)
	}
	_, found := start(t, mark, daemon)
	_, strangers := start(t, other, daemon)
	_, similar := start(t, mark+"x", daemon)
	stay := append(strangers, similar...)
	proc.KillMarkedOf(mark, os.Geteuid()+1)
	if !alive(found[0]) {
		t.Error("a process of another user was killed")
	}
	proc.KillMarked(mark, &identity.User{UID: uint32(os.Geteuid()) + 1})
	if !alive(found[0]) {
		t.Error("a process was killed without the rights")
	}
	proc.KillMarked(mark, nil)
	gone(t, found[0])
	for _, pid := range stay {
		if !alive(pid) {
			t.Errorf("process %d had another mark and was killed", pid)
		}
	}
}

// A process with its own mark does not end itself, and all its children do end.
func TestKillMarkedSparesItself(t *testing.T) {
	const name = "ACTIOND_TREE_OF_THE_TEST"
	mark := name + "=" + os.Getenv(name)
	if os.Getenv(name) == "" {
		mark += strconv.Itoa(os.Getpid()) // another run of this test must not find ours
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillMarkedSparesItself$", "-test.v")
		cmd.Env = append(os.Environ(), mark)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("got %v\n%s", err, out)
		}
		return
	}
	_, pids := start(t, "A=b", daemon)
	proc.KillMarked(mark, nil)
	gone(t, pids[0])
}

func TestRaiseOOMScore(t *testing.T) {
	t.Parallel()
	root, pids := start(t, "A=b", `echo $$; exec sleep 1000`)
	proc.RaiseOOMScore(root, nil)
	own := testhelp.ReadFile(t, "/proc/self/oom_score_adj")
	got := testhelp.ReadFile(t, "/proc/"+strconv.Itoa(pids[0])+"/oom_score_adj")
	before, _ := strconv.Atoi(strings.TrimSpace(string(own)))
	if after, err := strconv.Atoi(strings.TrimSpace(string(got))); err != nil || after <= before && before < 1000 {
		t.Errorf("got %d, want more than %d", after, before)
	}
}
