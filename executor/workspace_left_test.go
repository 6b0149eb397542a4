package executor_test

import (
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/testhelp"
)

// A process that was left is found, and no longer once it has ended.
func TestLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, e := followBy(t, dir, executor.WorkspaceConfig{})
	known(t, w)
	testhelp.Eventually(t, func() bool { return stepOf(w) != 0 }, "the first state is known")
	check := func(what string, want bool) {
		t.Helper()
		if got := w.Left(time.Now(), false); got != want {
			t.Errorf("%s: got %t", what, got)
		}
	}
	check("no process", false)

	pid, err := strconv.Atoi(strings.TrimSpace(run(t, e, "", "(setsid sleep 1000 >/dev/null 2>&1 & echo $!)").Content))
	if err != nil {
		t.Fatal(err)
	}
	check("a process", true)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { _, lives := proc.Snapshot()[pid]; return !lives }, "the process has ended")
	check("a process that has ended since", false)

	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read x")
	cmd.Env = []string{e.Mark()}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return w.Left(time.Now(), false) }, "it has its environment")
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	proc.AwaitExit(cmd.Process.Pid)
	check("a process that nothing waited for", false)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
