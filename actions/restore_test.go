package actions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/actions/memtree"
	"github.com/actiond/actiond/api"
)

// undoing returns a manager of a tree. The session of a call of its actions is what they write, such as "a=1 b=".
func undoing(tb testing.TB, tree *memtree.Tree) *actions.Manager {
	tb.Helper()
	return undoingWith(tb, tree, func(_ context.Context, req api.Request, watch api.Watch) (api.Observation, error) {
		if err := watch.Begins(); err != nil {
			return nil, err
		}
		for word := range strings.FieldsSeq(req.Session) {
			path, content, _ := strings.Cut(word, "=")
			tree.Write(path, content)
		}
		return api.NullObservation{}, nil
	})
}

// watching is an executor.
type watching func(ctx context.Context, req api.Request, w api.Watch) (api.Observation, error)

func (f watching) Watch(ctx context.Context, req api.Request, w api.Watch) (api.Observation, error) {
	return f(ctx, req, w)
}

func (f watching) Turn(api.Request) api.Turn { return nil } //nolint:ireturn // of the interface

func undoingWith(tb testing.TB, tree *memtree.Tree, do watching) *actions.Manager {
	tb.Helper()
	return undoingUntil(tb, tree, do, func(*actions.Call) {})
}

// undoingUntil is undoingWith that calls ended with each call whose changes are recorded and whose end is not.
func undoingUntil(tb testing.TB, tree *memtree.Tree, do watching, ended func(c *actions.Call)) *actions.Manager {
	tb.Helper()
	j, err := journal.Open(journal.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = j.Close() })
	cfg := actions.Config{
		Journal: j, Memory: actions.NewMemory(64 << 20), Executor: do,
		Ended: func(_ context.Context, c *actions.Call, _ error, _ time.Duration) { ended(c) },
	}
	if tree != nil {
		cfg.Workspace = tree
	}
	return actions.New(cfg)
}

// writes carries out an action that writes.
func writes(tb testing.TB, m *actions.Manager, words string) {
	tb.Helper()
	c := named(words, "")
	c.Request.Session = words
	do(tb, m, c)
}

// restored describes the answer of a restore.
func restored(r *api.Restored, err error) string {
	if err != nil {
		return status(err)
	}
	text := fmt.Sprintf("%s-%s %s", r.Before, r.After, r.Header())
	for _, refused := range r.Refused {
		text += " refused " + refused.Path
	}
	return text
}

// status describes a refusal.
func status(err error) string {
	refusal, ok := errors.AsType[*api.Error](err)
	if !ok {
		return fmt.Sprint("broken: ", err)
	}
	return fmt.Sprintf("%d %s%s", refusal.Status, refusal.Detail, refusal.Errors)
}

func TestRestore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		req   api.RestoreRequest
		paths []string
		want  string // the answer
		files string // afterwards
	}{
		{"a state", api.RestoreRequest{To: "s2"}, nil, "s5-s6 +0 ~1 -2 >0; exact", "a=1"},
		{"the beginning", api.RestoreRequest{To: "start"}, nil, "s5-s6 +0 ~0 -3 >0; exact", ""},
		{"after an action", api.RestoreRequest{To: "2"}, nil, "s5-s6 +0 ~1 -1 >0; exact", "a=1 b=2"},
		{"a checkpoint", api.RestoreRequest{To: "good"}, nil, "s5-s6 +0 ~1 -1 >0; exact", "a=1 b=2"},
		{"before an action", api.RestoreRequest{Before: 2}, nil, "s5-s6 +0 ~1 -2 >0; exact", "a=1"},
		{"before an action without an effect", api.RestoreRequest{Before: 3}, nil, "s5-s6 +0 ~1 -1 >0; exact", "a=1 b=2"},
		{"one action", api.RestoreRequest{Only: 2}, nil, "s5-s6 +0 ~0 -1 >0; exact", "a=3 c=9"},
		{"one action, of which a path changed", api.RestoreRequest{Only: 1}, nil, "s5-s5 +0 ~0 -0 >0; exact refused a", "a=3 b=2 c=9"},
		{"one action without an effect", api.RestoreRequest{Only: 3}, nil, "s5-s5 +0 ~0 -0 >0; exact", "a=3 b=2 c=9"},
		{"the last one, and what came after it", api.RestoreRequest{Last: true}, nil, "s5-s6 +0 ~1 -1 >0; exact", "a=1 b=2"},
		{"a path", api.RestoreRequest{To: "s1"}, []string{"b"}, "s5-s6 +0 ~0 -1 >0; exact", "a=3 c=9"},
		{"a dry run", api.RestoreRequest{To: "s2", DryRun: true}, nil, "s5-s5 +0 ~1 -2 >0; exact", "a=3 b=2 c=9"},
		{"no such state", api.RestoreRequest{To: "s77"}, nil, "404 There is no state \"s77\"", "a=3 b=2 c=9"},
		{"a state that is gone", api.RestoreRequest{To: "s1"}, nil, "410", "a=3 b=2 c=9"},
		{"no such checkpoint", api.RestoreRequest{To: "none"}, nil, "404 There is no checkpoint \"none\"", "a=3 b=2 c=9"},
		{"no name", api.RestoreRequest{To: "."}, nil, "422", "a=3 b=2 c=9"},
		{"an action that never was", api.RestoreRequest{To: "99"}, nil, "404", "a=3 b=2 c=9"},
		{"before it", api.RestoreRequest{Before: 99}, nil, "404", "a=3 b=2 c=9"},
		{"only it", api.RestoreRequest{Only: 99}, nil, "404", "a=3 b=2 c=9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := memtree.New()
			m := undoing(t, tree)
			m.State()
			writes(t, m, "a=1")
			writes(t, m, "b=2")
			writes(t, m, "")
			if err := tree.Pin(api.Pin{Name: "good", State: m.State()}); err != nil {
				t.Fatal(err)
			}
			writes(t, m, "a=3")
			tree.Write("c", "9")
			if strings.HasPrefix(tt.want, "410") {
				tree.Forget(1)
			}
			got := restored(m.Restore(t.Context(), tt.req, tt.paths))
			if !strings.HasPrefix(got, tt.want) || tree.Show() != tt.files {
				t.Errorf("got  %s: %s\nwant %s: %s", got, tree.Show(), tt.want, tt.files)
			}
		})
	}
}

// The state after an action is the one at its end, whatever actions that overlap it change before and after.
func TestRestoreToOverlapped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		within, after string // the words of an action within the first one, and between its last change and its end
		number, want  string // the action, and what it left
	}{
		{"the inner one changes something", "b=2", "", "2", "a=1 b=2"},
		{"the inner one changes nothing", "-", "", "2", "a=1"},
		{"the outer one", "b=2", "", "1", "a=1 b=2 c=3"},
		{"another one ends just before", "b=2", "d=4", "1", "a=1 b=2 c=3"},
		{"another one ends just before a quiet one", "-", "d=4", "1", "a=1 c=3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := memtree.New()
			var m *actions.Manager
			m = undoingUntil(t, tree, func(_ context.Context, req api.Request, watch api.Watch) (api.Observation, error) {
				if err := watch.Begins(); err != nil {
					return nil, err
				}
				for word := range strings.FieldsSeq(req.Session) { //nolint:contextcheck // the inner action has its own
					switch path, content, ok := strings.Cut(word, "="); {
					case word == "within":
						writes(t, m, tt.within)
					case ok:
						tree.Write(path, content)
					}
				}
				return api.NullObservation{}, nil
			}, func(c *actions.Call) {
				if strings.Contains(c.ID, "within") && tt.after != "" {
					writes(t, m, tt.after)
				}
			})
			m.State()
			writes(t, m, "a=1 within c=3")
			if r, err := m.Restore(t.Context(), api.RestoreRequest{To: api.StateRef(tt.number)}, nil); err != nil || tree.Show() != tt.want {
				t.Errorf("got %s, %v, files %s, want %s", restored(r, err), err, tree.Show(), tt.want)
			}
		})
	}
}

// An undo is undone by the next one, and each is an entry of the log.
func TestUndoOfUndo(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	m := undoing(t, tree)
	m.State()
	writes(t, m, "a=1")
	tree.Write("b", "2")
	for _, want := range []string{"", "a=1 b=2", ""} {
		r, err := m.Restore(t.Context(), api.RestoreRequest{Last: true, Diff: true}, nil)
		if err != nil || r.By == nil || r.During != nil || tree.Show() != want {
			t.Fatalf("got %s, %+v, want %s", tree.Show(), r, want)
		}
	}
	want := "0 restore s5-s6 +0, 0 restore s4-s5 +2, 0 restore s3-s4 +0, 0 outside s2-s3 +1, 1 action s1-s2 +1"
	if got := logged(m); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	none := undoing(t, memtree.New())
	if got := restored(none.Restore(t.Context(), api.RestoreRequest{Last: true}, nil)); !strings.HasPrefix(got, "404") {
		t.Errorf("without anything: got %s", got)
	}
}

func TestNoUndo(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	tree.Off = "too large, see --changes"
	for m, want := range map[*actions.Manager]string{
		undoing(t, tree): "409 Changes cannot be taken back: too large, see --changes",
		undoing(t, nil):  "409 Changes cannot be taken back: the server follows no changes, see --changes",
	} {
		if got := restored(m.Restore(t.Context(), api.RestoreRequest{To: "s1"}, nil)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Whether changes can be taken back is known with the first state, which the first requests wait for.
func TestUndoAtFirst(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(m *actions.Manager) error{
		"restore": func(m *actions.Manager) error {
			_, err := m.Restore(t.Context(), api.RestoreRequest{To: "s9"}, nil)
			return err
		},
		"checkpoint": func(m *actions.Manager) error {
			_, err := m.Checkpoint(t.Context(), api.CheckpointRequest{Name: "a"})
			return err
		},
	} {
		tree := memtree.New()
		tree.Off = "the workspace is not followed"
		tree.First = func() { tree.Off = "" }
		if err := ask(undoing(t, tree)); err != nil && strings.Contains(err.Error(), "cannot be taken back") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// While an action runs nothing is restored unless it is forced; while something is restored no action begins, and one
// that waits can be cancelled.
func TestRestoreBesideActions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tree := memtree.New()
		goOn := make(chan struct{})
		m := undoingWith(t, tree, func(_ context.Context, req api.Request, watch api.Watch) (api.Observation, error) {
			if err := watch.Begins(); err != nil {
				return nil, err
			}
			tree.Write(req.Session, "1")
			if req.Session == "a" {
				<-goOn
			}
			return api.NullObservation{}, nil
		})
		session := func(name string) *actions.Run {
			c := named(name, api.ChangesFacts)
			c.Request.Session = name
			return start(t, m, c)
		}
		m.State()
		first := session("a")
		synctest.Wait()
		if got := restored(m.Restore(t.Context(), api.RestoreRequest{To: "s1"}, nil)); got != "409 The action 1 runs; wait for its end or cancel it, or use force" {
			t.Errorf("got %s", got)
		}
		if got := restored(m.Restore(t.Context(), api.RestoreRequest{To: "s1", DryRun: true}, nil)); !strings.HasPrefix(got, "s2-s2 +0 ~0 -1") {
			t.Errorf("a dry run: got %s", got)
		}
		r, err := m.Restore(t.Context(), api.RestoreRequest{To: "s1", Force: true}, nil)
		if err != nil || tree.Show() != "" || r.By != nil || fmt.Sprint(r.During) != "[1]" {
			t.Errorf("forced: got %+v, %v; files %s", r, err, tree.Show())
		}
		close(goOn)
		say(t, first)

		restoring, restore := make(chan struct{}), make(chan struct{})
		tree.Restoring = func() { close(restoring); <-restore }
		answer := make(chan string, 1)
		go func() { answer <- restored(m.Restore(t.Context(), api.RestoreRequest{To: "s2"}, nil)) }()
		<-restoring
		second, third := session("b"), session("c")
		uploaded := make(chan error, 1)
		go func() {
			_, err := m.Beside(t.Context(), api.CauseUpload, false, func() error { tree.Write("d", "1"); return nil })
			uploaded <- err
		}()
		synctest.Wait()
		if state := second.Info().State; state != journal.Reserved || tree.Show() != "" {
			t.Errorf("got state %v, files %s", state, tree.Show())
		}
		if n := m.State(); n != 3 {
			t.Errorf("meanwhile the state is %d", n)
		}
		m.Cancel(third)
		if got := say(t, third); !strings.Contains(got, "was cancelled before it began") {
			t.Errorf("got %s", got)
		}
		close(restore)
		if got := <-answer; !strings.HasPrefix(got, "s3-s4 +1 ~0 -0") {
			t.Errorf("got %s", got)
		}
		say(t, second)
		if err := <-uploaded; err != nil || tree.Show() != "a=1 b=1 d=1" {
			t.Errorf("got %v, files %s", err, tree.Show())
		}
	})
}

// After a restore that the end of a process broke off, actions wait for the first state.
func TestRecover(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	tree.Broken = true
	m := undoing(t, tree)
	tree.First = func() {
		if !m.Recovers() {
			t.Error("it is over before the first state")
		}
	}
	if err := m.Recover(t.Context()); err != nil || m.Recovers() {
		t.Errorf("got %v, %t", err, m.Recovers())
	}
}
