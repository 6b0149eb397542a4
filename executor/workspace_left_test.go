package executor_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/testhelp"
)

// A process that was left is found beside a step that has something to look at, and what was found before another step is not
// believed.
func TestLeftBesideAStep(t *testing.T) {
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
	seeks := func(what string, want bool) {
		t.Helper()
		w.StepAndSeek()
		if got := w.Sought(); got != want {
			t.Errorf("%s: it sought: %t", what, got)
		}
	}
	put(t, dir, "a", "1")
	seeks("a change", true)
	check("no process", false)
	seeks("no change", false)
	check("no process, and no change", false)

	pid, err := strconv.Atoi(strings.TrimSpace(run(t, e, "", "(setsid sleep 1000 >/dev/null 2>&1 & echo $!)").Content))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a", "22")
	seeks("another change", true)
	check("a process", true)
	put(t, dir, "a", "333")
	seeks("a change while a process lives", true)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { _, lives := proc.Snapshot()[pid]; return !lives }, "the process has ended")
	w.Step()
	check("a process that has ended since", false)
}

// A search that takes too long is given up by the one that asks for the processes, and the step beside it is not. No further one begins beside
// a step.
func TestSearchThatHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := follow(t, dir, executor.WorkspaceConfig{StepLimit: time.Second})
	known(t, w)
	var before uint64
	testhelp.Eventually(t, func() bool { before = stepOf(w); return before != 0 }, "the first state is known")
	goOn := make(chan struct{})
	w.Seek(func() { <-goOn })
	put(t, dir, "a", "1")
	if n, exact := w.StepAndSeek(); n <= before || !exact || w.Sought() {
		t.Errorf("got the state %d after %d, exact %t, another search %t", n, before, exact, w.Sought())
	}
	if !w.Left(time.Now(), false) {
		t.Error("no process was left though none could be sought")
	}
	if n, _ := w.StepAndSeek(); n != 0 {
		t.Errorf("got the state %d while the search hangs", n)
	}
	close(goOn)
	testhelp.Eventually(t, func() bool { return stepOf(w) != 0 && !w.Left(time.Now(), false) }, "the state and the processes are known")
}
