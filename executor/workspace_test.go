package executor_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// follow returns the workspace of an executor whose first state is known.
func follow(tb testing.TB, dir string, cfg executor.WorkspaceConfig) *executor.Workspace {
	tb.Helper()
	w, _ := followBy(tb, dir, cfg)
	return w
}

func followBy(tb testing.TB, dir string, cfg executor.WorkspaceConfig) (*executor.Workspace, *executor.Executor) {
	tb.Helper()
	cfg.Dir = dir
	e, err := executor.New(tb.Context(), executor.Config{WorkingDir: dir, Workspace: cfg, Env: os.Environ()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	w := e.Workspace()
	w.Await(tb.Context())
	return w, e
}

// stepOf returns the number of the present state.
func stepOf(w *executor.Workspace) uint64 {
	n, _ := w.Step()
	return n
}

func put(tb testing.TB, dir, name, text string) {
	tb.Helper()
	testhelp.WriteFile(tb, filepath.Join(dir, name), text, 0o644)
}

// known returns once all contents are known.
func known(tb testing.TB, w *executor.Workspace) {
	tb.Helper()
	testhelp.Eventually(tb, func() bool { return w.Info().Baseline.State == api.BaselineDone }, "the baseline is done")
}

func TestWorkspaceStates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a", "1")
	put(t, dir, ".gitignore", "build/\n")
	w := follow(t, dir, executor.WorkspaceConfig{})
	first := stepOf(w)
	if first != 1 || stepOf(w) != first {
		t.Errorf("got the states %d and %d", first, stepOf(w))
	}
	put(t, dir, "d/b\xff", "2")
	put(t, dir, "a", "11")
	put(t, dir, "build/x", "3")
	second := stepOf(w)
	got := w.Compare(first, second, "")
	want := &api.Changes{
		Before: "s1", After: "s2", Exact: true, Counts: api.ChangeCounts{Created: 2, Modified: 1}, Ignored: map[string]int{"build": 2},
		Paths: []api.ChangedPath{{Op: "modified", Path: "a"}, {Op: "created", Path: "d"}, {Op: "created", PathBase64: []byte("d/b\xff")}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	below := w.Compare(first, second, "d")
	if below.Counts != (api.ChangeCounts{Created: 2}) || len(below.Paths) != 2 || below.Ignored != nil {
		t.Errorf("below d: got %+v", below)
	}
	if kept, given := w.Known(second + 1); kept || given {
		t.Errorf("got kept %t, given %t of a state that was never", kept, given)
	}
	if c := w.Compare(0, second, ""); c.Exact || c.Why != "offline" || c.Before != "" {
		t.Errorf("of an unknown state: got %+v", c)
	}
}

// Earlier states are forgotten beyond the bound of memory.
func TestStatesAreForgotten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := follow(t, dir, executor.WorkspaceConfig{MaxStateBytes: 1})
	first := stepOf(w)
	put(t, dir, "a", "1")
	last := stepOf(w)
	if kept, given := w.Known(first); kept || !given {
		t.Errorf("the first: got kept %t, given %t", kept, given)
	}
	if kept, _ := w.Known(last); !kept {
		t.Error("the last is not kept")
	}
}

// Directories that cannot be followed are not, and that is said.
func TestUnfollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	private := filepath.Join(dir, "state")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"/", link, "/proc", "/sys", dir, private} {
		w := follow(t, root, executor.WorkspaceConfig{Private: []string{private}})
		info := w.Info()
		if info.Mode != "facts" || info.Baseline.State != "off" || info.Baseline.Why != "root" {
			t.Errorf("%s: got %+v", root, info)
		}
		if n := stepOf(w); n != 0 {
			t.Errorf("%s: got state %d", root, n)
		}
		if c := w.Compare(0, 0, ""); c.Exact || c.Why != "root" {
			t.Errorf("%s: got %+v", root, c)
		}
	}
	w := follow(t, "", executor.WorkspaceConfig{})
	if info := w.Info(); info.Mode != "off" || stepOf(w) != 0 {
		t.Errorf("off: got %+v", info)
	}
}

// What the first state did not read is read after it, so that a later change of the time alone is known to be none of
// the content.
func TestContentsAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "large", strings.Repeat("x", 5<<20))
	w := follow(t, dir, executor.WorkspaceConfig{})
	known(t, w)
	if b := w.Info().Baseline; b.Files != 1 || b.Bytes != 5<<20 {
		t.Errorf("got %+v", b)
	}
	before := stepOf(w)
	if err := os.Chtimes(filepath.Join(dir, "large"), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if c := w.Compare(before, stepOf(w), ""); !c.Exact || c.Counts != (api.ChangeCounts{Meta: 1}) {
		t.Errorf("got %+v", c)
	}
}

// A workspace that is removed and made anew, or that is a link to another directory, is a workspace still.
func TestWorkspaceMadeAnew(t *testing.T) {
	t.Parallel()
	real, other := t.TempDir(), t.TempDir()
	put(t, real, "a", "1")
	put(t, other, "b", "1")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	w := follow(t, link, executor.WorkspaceConfig{})
	before := stepOf(w)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	gone := stepOf(w)
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	after := stepOf(w)
	if c := w.Compare(before, after, ""); c.Exact || c.Why != "root" || c.Counts.Created != 1 || c.Counts.Deleted != 1 {
		t.Errorf("got %+v", c)
	}
	if c := w.Compare(before, gone, ""); c.Exact || c.Why != "root" {
		t.Errorf("without a workspace: got %+v", c)
	}
	put(t, other, "c", "1")
	if c := w.Compare(after, stepOf(w), ""); !strings.Contains(c.Header(), "+1 ~0 -0 >0") {
		t.Errorf("got %+v", c)
	}
}

func BenchmarkWorkspaceStep(b *testing.B) {
	dir := b.TempDir()
	for i := range 5000 {
		put(b, dir, filepath.Join(string(rune('a'+i%26)), strings.Repeat("d", i%20+1), string(rune('a'+i/26%26))+string(rune('a'+i/676))), "text")
	}
	w := follow(b, dir, executor.WorkspaceConfig{})
	known(b, w)
	b.ReportAllocs()
	for b.Loop() {
		w.Step()
	}
}
