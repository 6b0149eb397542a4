package executor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// following returns an executor, which the caller closes.
func following(t *testing.T, cfg executor.WorkspaceConfig) *executor.Executor {
	t.Helper()
	e, err := executor.New(t.Context(), executor.Config{WorkingDir: t.TempDir(), Workspace: cfg, Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A workspace on a file system that does not answer keeps neither actions nor the end of the server waiting.
func TestWorkspaceThatHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hangAt(t, dir, false)
	e := following(t, executor.WorkspaceConfig{Dir: dir})
	w := e.Workspace()
	w.Begin()
	if n, exact := w.Step(); n != 0 || exact {
		t.Errorf("got the state %d, exact %t", n, exact)
	}
	if state := w.Info().Baseline.State; state != api.BaselineRunning {
		t.Errorf("the baseline is %s", state)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A look that takes too long is given up, and others are not begun. It is known again
// once the file system answers.
func TestStepThatHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := follow(t, dir, executor.WorkspaceConfig{StepLimit: 10 * time.Millisecond})
	known(t, w)
	var before uint64
	testhelp.Eventually(t, func() bool { before = stepOf(w); return before != 0 }, "the first state is known")
	if err := os.Mkdir(filepath.Join(dir, "mounted"), 0o755); err != nil {
		t.Fatal(err)
	}
	refuse := hangAt(t, filepath.Join(dir, "mounted"), false)
	put(t, dir, "a", "1")
	for range 3 {
		if n, exact := w.Step(); n != 0 || exact {
			t.Errorf("got the state %d, exact %t", n, exact)
		}
	}
	refuse()
	testhelp.Eventually(t, func() bool {
		after := stepOf(w)
		return after != 0 && w.Compare(before, after, "").Counts.Created > 0
	}, "what was made meanwhile is known")
}

// A mount whose server is gone leaves its own entry in doubt, and no other one.
func TestDeadMountInTheWorkspace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a", "1")
	put(t, dir, "mounted/b", "1")
	w := follow(t, dir, executor.WorkspaceConfig{})
	before := stepOf(w)
	free := hangAt(t, filepath.Join(dir, "mounted"), true)
	put(t, dir, "a", "11")
	put(t, dir, "c", "1")
	c := w.Compare(before, stepOf(w), "")
	if c.Exact || c.Why != "unsure" || c.Counts != (api.ChangeCounts{Created: 1, Modified: 1}) || !slices.Equal(c.Unsure, []api.FilePath{"mounted"}) {
		t.Errorf("got %+v", c)
	}
	free()
	if c := w.Compare(before, stepOf(w), ""); !c.Exact || c.Counts != (api.ChangeCounts{Created: 1, Modified: 1}) {
		t.Errorf("without it: got %+v", c)
	}
}

// What a look finds after it was given up is not missed though nothing changes any more.
func TestStepThatIsLate(t *testing.T) {
	t.Parallel()
	const files = 2000
	dir := t.TempDir()
	w := follow(t, dir, executor.WorkspaceConfig{StepLimit: time.Millisecond})
	known(t, w)
	var before, after uint64
	testhelp.Eventually(t, func() bool { before = stepOf(w); return before != 0 }, "the first state is known")
	for i := range files {
		put(t, dir, strconv.Itoa(i), "")
	}
	testhelp.Eventually(t, func() bool { after = stepOf(w); return after != 0 }, "the state is known")
	if c := w.Compare(before, after, ""); c.Counts.Created != files {
		t.Errorf("got %+v of the states %d and %d", c.Counts, before, after)
	}
}

// The end of the server does not wait for a look.
func TestCloseWhileAStepHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := following(t, executor.WorkspaceConfig{Dir: dir, StepLimit: time.Hour})
	w := e.Workspace()
	w.Await(t.Context())
	known(t, w)
	if err := os.Mkdir(filepath.Join(dir, "mounted"), 0o755); err != nil {
		t.Fatal(err)
	}
	hangAt(t, filepath.Join(dir, "mounted"), false)
	var work sync.WaitGroup
	work.Go(func() { w.Step() })
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	work.Wait()
}

// A look that panics ends the following, and nothing else.
func TestStepThatPanics(t *testing.T) {
	t.Parallel()
	w := follow(t, t.TempDir(), executor.WorkspaceConfig{})
	known(t, w)
	if w.Find(func() { panic("broken") }) {
		t.Error("it has returned")
	}
	if n, exact := w.Step(); n != 0 || exact || w.Living() {
		t.Errorf("got the state %d, exact %t", n, exact)
	}
	if b := w.Info().Baseline; b.State != api.BaselineOff || b.Why == "" {
		t.Errorf("the baseline is %+v", b)
	}
}
