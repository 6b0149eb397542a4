package proc_test

import (
	"os/exec"
	"strings"
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
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 1000 & echo; wait")
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
	before := proc.Uptime()
	session, idle, marked := start("A=1"), start("A=1"), start(mark)
	count := func(sessions, idle []int) (n int, names string) {
		for pid, begun := range proc.Living(sessions, idle, mark, nil) {
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
