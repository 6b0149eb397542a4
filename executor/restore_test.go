package executor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// kept returns once the contents of the present state are kept.
func kept(tb testing.TB, w *executor.Workspace) uint64 {
	tb.Helper()
	n := stepOf(w)
	if err := w.Capture(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	missing, paths, err := w.Missing(n)
	if err != nil || missing > 0 {
		tb.Fatalf("state %d: got %d missing, %v, %v", n, missing, paths, err)
	}
	return n
}

// texts are the files below a directory, with their contents.
func texts(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found[path[len(dir)+1:]] = string(data)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

func remove(tb testing.TB, dir string, names ...string) {
	tb.Helper()
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "src/a.go", "one\ntwo\n")
	put(t, dir, "src/b.go", "b\n")
	w := follow(t, dir, executor.WorkspaceConfig{StateDir: filepath.Join(t.TempDir(), "state")})
	before := texts(t, dir)
	first := kept(t, w)
	put(t, dir, "src/a.go", "one\n2\n")
	remove(t, dir, "src/b.go")
	second := kept(t, w)

	c := w.Compare(first, second, "")
	w.Diff(c, first, second)
	if len(c.Paths) != 2 || c.Paths[0].Mode != "100644" || c.Paths[1].OldMode != "100644" || c.Paths[1].Mode != "" || c.Paths[0].Diff != "@@ -2 +2 @@\n-two\n+2" || *c.Paths[0].Lines != [2]int{1, 1} || c.Truncated {
		t.Errorf("got the diff %+v", c)
	}

	dry, err := w.Restore(first, api.RestoreOptions{DryRun: true, Diff: true})
	if err != nil || !dry.DryRun || dry.Before == "" || dry.After != "" || dry.Counts != (api.ChangeCounts{Created: 1, Modified: 1}) {
		t.Errorf("dry: got %+v, %v", dry, err)
	}
	if dry.Paths[0].Diff != "@@ -2 +2 @@\n-2\n+two" {
		t.Errorf("dry: got %+v", dry.Paths)
	}
	if c := w.Compare(second, stepOf(w), ""); !c.None() || !c.Exact {
		t.Errorf("the dry run changed %+v", c)
	}
	second = stepOf(w)

	done, err := w.Restore(first, api.RestoreOptions{})
	if err != nil || done.RefusedCount > 0 || len(done.Refused) != 0 || done.Before == "" || done.After == "" || done.Counts != (api.ChangeCounts{Created: 1, Modified: 1}) {
		t.Errorf("got %+v, %v", done, err)
	}
	if got := texts(t, dir); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("got %v", got)
	}
	third := stepOf(w)
	if api.StateName(third) != done.After {
		t.Errorf("got state %d, want %s", third, done.After)
	}

	put(t, dir, "new", "x")
	last := kept(t, w)
	only, err := w.Revert(first, second, api.RestoreOptions{}) // it is taken back already
	if err != nil || only.Counts != (api.ChangeCounts{}) {
		t.Errorf("got %+v, %v", only, err)
	}
	undo, err := w.Revert(second, third, api.RestoreOptions{})
	if err != nil || undo.Counts != (api.ChangeCounts{Deleted: 1, Modified: 1}) || texts(t, dir)["new"] != "x" {
		t.Errorf("got %+v, %v", undo, err)
	}
	if _, err := w.Restore(last, api.RestoreOptions{Paths: []string{"src"}}); err != nil || fmt.Sprint(texts(t, dir)) != fmt.Sprint(map[string]string{"new": "x", "src/a.go": "one\ntwo\n", "src/b.go": "b\n"}) {
		t.Errorf("got %v, %v", texts(t, dir), err)
	}
	for n, status := range map[uint64]int{0: http.StatusNotFound, 99: http.StatusNotFound} {
		if _, err := w.Restore(n, api.RestoreOptions{}); statusOf(err) != status {
			t.Errorf("state %d: got %v", n, err)
		}
	}
}

func statusOf(err error) int {
	if refused, ok := errors.AsType[*api.Error](err); ok {
		return refused.Status
	}
	return 0
}

// The states, their contents and their names are those of the next server too, which says what changed meanwhile.
func TestRestoreAfterRestart(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	cfg := executor.WorkspaceConfig{Dir: dir, StateDir: state}
	begin := func(recorded uint64) *executor.Executor {
		t.Helper()
		e, err := executor.New(t.Context(), executor.Config{WorkingDir: dir, Workspace: cfg, Env: os.Environ()})
		if err != nil {
			t.Fatal(err)
		}
		e.Workspace().After(recorded)
		e.Workspace().Await(t.Context())
		return e
	}
	end := func(e *executor.Executor) {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir, "a", "1")
	e := begin(0)
	first := kept(t, e.Workspace())
	if err := e.Workspace().Pin(api.Pin{Name: "point", State: first, Time: time.Unix(5, 0)}); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a", "2")
	last := kept(t, e.Workspace())
	end(e)

	e = begin(last)
	if n := stepOf(e.Workspace()); n != last || e.Workspace().Earlier() != 0 {
		t.Errorf("nothing changed: got state %d after %d, earlier %d", n, last, e.Workspace().Earlier())
	}
	end(e)
	put(t, dir, "b", "3")
	e = begin(last)
	w := e.Workspace()
	now := stepOf(w)
	if w.Earlier() != last || now <= last+500 {
		t.Errorf("got state %d, earlier %d", now, w.Earlier())
	}
	if c := w.Compare(w.Earlier(), now, ""); !c.Exact || c.Counts != (api.ChangeCounts{Created: 1}) {
		t.Errorf("got %+v", c)
	}
	pins := w.Pins()
	if len(pins) != 1 || pins[0].Name != "point" || pins[0].State != first {
		t.Fatalf("got %+v", pins)
	}
	if r, err := w.Restore(first, api.RestoreOptions{}); err != nil || r.RefusedCount > 0 || fmt.Sprint(texts(t, dir)) != "map[a:1]" {
		t.Errorf("got %+v, %v, %v", r, err, texts(t, dir))
	}
	if err := w.Unpin("point"); err != nil {
		t.Error(err)
	}
	if err := w.Unpin("point"); statusOf(err) != http.StatusNotFound {
		t.Error(err)
	}
	end(e)
}

// A store of an earlier server, in which an attempt was open and a bisect broken off, opens without them: checkpoints are there.
func TestStoreOfEarlierServer(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	put(t, dir, "a", "1")
	w, e := followBy(t, dir, executor.WorkspaceConfig{StateDir: state})
	n := kept(t, w)
	if err := w.Pin(api.Pin{Name: "mine", State: n, Time: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(state, "states")
	list := string(testhelp.ReadFile(t, name))
	early := strings.Replace(list, "pin \"mine\" 1 1000000000 \"\" 0\n", fmt.Sprintf("pin \".attempt\" %[1]d 5 \"x\"\npin \".bisect\" %[1]d 6 \"\"\npin \"mine\" %[1]d 1000000000 \"\"\n", n), 1)
	if early == list {
		t.Fatalf("got the list %s", list)
	}
	testhelp.WriteFile(t, name, early, 0o600)
	put(t, dir, "a", "2")
	w = follow(t, dir, executor.WorkspaceConfig{StateDir: state})
	if pins := w.Pins(); len(pins) != 1 || pins[0].Name != "mine" || pins[0].State != n || w.Unfinished() {
		t.Errorf("got %+v, %t", pins, w.Unfinished())
	}
	if r, err := w.Restore(n, api.RestoreOptions{}); err != nil || r.RefusedCount > 0 || fmt.Sprint(texts(t, dir)) != "map[a:1]" {
		t.Errorf("got %+v, %v, %v", r, err, texts(t, dir))
	}
}

// A number that a killed server gave out is not given again, also if nothing was recorded or saved since.
func TestNumbersAfterKill(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	put(t, dir, "below/a", "1")
	w := follow(t, dir, executor.WorkspaceConfig{StateDir: state})
	last := kept(t, w)
	copied := filepath.Join(t.TempDir(), "copied") // as the kill leaves it
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", state, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chtimes(filepath.Join(dir, "below"), time.Now(), time.Unix(5, 0)); err != nil {
		t.Fatal(err)
	}
	given := stepOf(w)
	if given == last {
		t.Fatal("there is no other state")
	}
	w = follow(t, dir, executor.WorkspaceConfig{StateDir: copied})
	w.After(last)
	put(t, dir, "b", "2")
	if next := stepOf(w); next <= given {
		t.Errorf("got the state %d after %d", next, given)
	}
}

// Where changes cannot be taken back, the answer names the flag.
func TestNoUndo(t *testing.T) {
	t.Parallel()
	large := t.TempDir()
	f, err := os.Create(filepath.Join(large, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(300<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	for _, test := range []struct {
		dir  string
		cfg  executor.WorkspaceConfig
		mode string
		why  string
	}{
		{"", executor.WorkspaceConfig{}, "off", "the server was started with --changes off: start it with --changes undo"},
		{t.TempDir(), executor.WorkspaceConfig{Mode: api.ChangesFacts}, "facts", "the server was started with --changes facts: start it with --changes undo"},
		{t.TempDir(), executor.WorkspaceConfig{}, "facts", "the server has no directory for contents: start it with --state-dir"},
		{large, executor.WorkspaceConfig{StateDir: filepath.Join(state, "1")}, "facts", "the workspace is larger than 256 MiB or 50,000 names: start the server with --changes undo"},
		{large, executor.WorkspaceConfig{StateDir: filepath.Join(state, "2"), Mode: api.ChangesUndo}, "undo", ""},
	} {
		w := follow(t, test.dir, test.cfg)
		if got := w.Info(); got.Mode != test.mode || got.NoUndo != test.why {
			t.Errorf("%+v: got %+v", test.cfg, got)
		}
		_, restoring := w.Restore(max(stepOf(w), 1), api.RestoreOptions{})
		pinning := w.Pin(api.Pin{Name: "x", State: stepOf(w)})
		if test.why != "" && (test.dir != "" && statusOf(restoring) != http.StatusConflict || statusOf(pinning) != http.StatusConflict) {
			t.Errorf("%+v: got %v and %v", test.cfg, restoring, pinning)
		}
		if test.why == "" && (restoring != nil || pinning != nil) {
			t.Errorf("%+v: got %v and %v", test.cfg, restoring, pinning)
		}
	}
}

// A file that is too large or unreadable is named as missing, and a full store keeps the latest states.
func TestCapture(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a", "1")
	f, err := os.Create(filepath.Join(dir, "large"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(11<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	w := follow(t, dir, executor.WorkspaceConfig{StateDir: filepath.Join(t.TempDir(), "state")})
	n := stepOf(w)
	if err := w.Capture(t.Context()); err != nil {
		t.Fatal(err)
	}
	missing, paths, err := w.Missing(n)
	if err != nil || missing != 1 || !slices.Equal(paths, []api.FilePath{"large"}) {
		t.Errorf("got %d, %v, %v", missing, paths, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Capture(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	testhelp.Eventually(t, func() bool { s := w.Info().Store; return s != nil && s.Bytes > 0 && s.Pending == 0 }, "the store has something")
}

// A forced restore takes away what an upload received: that is a conflict, and not a file that is missing.
func TestRestoreBesideUpload(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"old", "new", "made/for/it"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, "old", "1")
			w, e := followBy(t, dir, executor.WorkspaceConfig{StateDir: filepath.Join(t.TempDir(), "state")})
			first := kept(t, w)
			path := filepath.Join(dir, name)
			send := func(while func()) error {
				in, err := e.StageFile(t.Context(), path)
				if err != nil {
					t.Fatal(err)
				}
				defer in.Discard()
				if _, _, err := in.Fill(strings.NewReader("2")); err != nil {
					t.Fatal(err)
				}
				while()
				_, err = in.Put(t.Context(), api.FileConditions{}, nil)
				return err
			}
			err := send(func() {
				if _, err := w.Restore(first, api.RestoreOptions{}); err != nil {
					t.Fatal(err)
				}
			})
			refusal, ok := errors.AsType[*api.Error](err)
			if !ok || refusal.Status != 409 || refusal.Fault.Code != "conflict" || !strings.Contains(refusal.Detail, "send it again") {
				t.Errorf("got %+v", err)
			}
			if got := texts(t, dir); fmt.Sprint(got) != "map[old:1]" {
				t.Errorf("the files are %v", got)
			}
			if err := send(func() {}); err != nil || texts(t, dir)[name] != "2" {
				t.Errorf("again: got %v, %v", err, texts(t, dir))
			}
		})
	}
}
