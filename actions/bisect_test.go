package actions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/memtree"
	"github.com/actiond/actiond/api"
)

// tested returns a manager whose actions 1 to 64 wrote their numbers to "n", and whose programs a function carries out.
func tested(tb testing.TB, tree *memtree.Tree, program func(ctx context.Context, a api.ExecAction, w api.Watch) api.Observation) *actions.Manager {
	tb.Helper()
	m := undoingWith(tb, tree, func(ctx context.Context, req api.Request, watch api.Watch) (api.Observation, error) {
		if a, ok := req.Action.(api.ExecAction); ok {
			return program(ctx, a, watch), nil
		}
		if err := watch.Begins(); err != nil {
			return nil, err
		}
		tree.Write("n", req.Session)
		return api.NullObservation{}, nil
	})
	m.State()
	for i := range 64 {
		writes(tb, m, fmt.Sprint(i+1))
	}
	return m
}

// number returns what is in "n".
func number(tree *memtree.Tree) (n int) {
	_, text, _ := strings.Cut(tree.Show(), "n=")
	_, _ = fmt.Sscan(text, &n)
	return n
}

// exits is the end of a program.
func exits(code int) api.Observation { return api.ExecObservation{ExitCode: &code} }

// bisect returns the events in short.
func bisect(tb testing.TB, m *actions.Manager, req api.BisectRequest) []api.BisectEvent {
	tb.Helper()
	b, err := m.NewBisect(tb.Context(), req)
	if err != nil {
		tb.Fatal(err)
	}
	var events []api.BisectEvent
	b.Run(tb.Context(), func(e api.BisectEvent) error { events = append(events, e); return nil })
	return events
}

// One of 64 actions is found by at most 7 tests, and what the tests write is taken back.
func TestBisect(t *testing.T) {
	t.Parallel()
	for _, culprit := range []int{1, 2, 17, 32, 33, 48, 63, 64} {
		tree := memtree.New()
		m := tested(t, tree, func(_ context.Context, _ api.ExecAction, w api.Watch) api.Observation {
			if strings.Contains(tree.Show(), "junk") {
				t.Error("what a test wrote is there in the next one")
			}
			tree.Write("junk", "1")
			w.Output(api.Output{Data: []byte(strings.Repeat("x", 5000) + "end")})
			if number(tree) >= culprit {
				return exits(1)
			}
			return exits(0)
		})
		tree.Write("later", "1")
		events := bisect(t, m, api.BisectRequest{Good: "s1", Bad: "64", Command: "test", Timeout: 1})
		last := events[len(events)-1]
		if last.Event != api.BisectResult || last.N != uint64(culprit) || last.State != fmt.Sprintf("s%d", culprit+1) || last.Tests > 7 || last.Detail != "" || last.Skipped != nil {
			t.Fatalf("%d: got %+v", culprit, last)
		}
		if first := events[1]; first.Event != api.BisectTested || first.Verdict == "" || first.ExitCode == nil || !strings.HasSuffix(first.Output, "xend") || len(first.Output) > 4096 {
			t.Fatalf("%d: got %+v", culprit, first)
		}
		if tree.Show() != "later=1 n=64" || len(tree.Pins()) != 0 || m.Recovers() {
			t.Fatalf("%d: the files are %s, the pins %v", culprit, tree.Show(), tree.Pins())
		}
		if entries, _ := m.ChangeLog(0, 1); entries[0].Cause != api.CauseOutside {
			t.Fatalf("%d: got %+v", culprit, entries[0])
		}
	}
}

func TestBisectEnds(t *testing.T) {
	t.Parallel()
	killed, cancelled := "kill_after", "cancel"
	for _, tt := range []struct {
		name   string
		end    func(n int) api.Observation
		event  string
		n      uint64
		detail string
	}{
		{"skipped", func(n int) api.Observation { return exits(125) }, api.BisectResult, 64, ""},
		{"some skipped", func(n int) api.Observation {
			if n >= 30 && n < 40 {
				return exits(125)
			}
			return exits(n / 40)
		}, api.BisectResult, 40, ""},
		{"not found", func(int) api.Observation { return exits(127) }, api.BisectError, 0, "cannot be run: exit code 127 in s33; it printed nothing"},
		{"not executable", func(int) api.Observation { return exits(126) }, api.BisectError, 0, "cannot be run: exit code 126"},
		{"late", func(int) api.Observation { return api.ExecObservation{EndedBy: &killed} }, api.BisectError, 0, "longer than 1.0 seconds"},
		{"cancelled", func(int) api.Observation { return api.ExecObservation{EndedBy: &cancelled} }, api.BisectError, 0, "was ended by cancel"},
		{"a signal", func(int) api.Observation { return api.ExecObservation{} }, api.BisectResult, 1, ""},
		{"no program", func(int) api.Observation { return api.ErrorObservation{Content: "broken"} }, api.BisectError, 0, "broken"},
		{"a panic", func(int) api.Observation { panic("oh") }, api.BisectError, 0, "panic: oh"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := memtree.New()
			m := tested(t, tree, func(context.Context, api.ExecAction, api.Watch) api.Observation { return tt.end(number(tree)) })
			events := bisect(t, m, api.BisectRequest{Good: "s1", Bad: "s65", Command: "test", Timeout: 1})
			last := events[len(events)-1]
			if last.Event != tt.event || last.N != tt.n || !strings.Contains(last.Detail, tt.detail) || (tt.name == "skipped") != (len(last.Skipped) == 63) {
				t.Errorf("got %+v", last)
			}
			if tt.name == "some skipped" && len(last.Skipped) != 10 {
				t.Errorf("skipped %v", last.Skipped)
			}
			if tree.Show() != "n=64" || len(tree.Pins()) != 0 {
				t.Errorf("the files are %s, the pins %v", tree.Show(), tree.Pins())
			}
		})
	}
}

func TestBisectRefuses(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	m := tested(t, tree, nil)
	tree.Forget(3)
	for _, tt := range []struct{ good, bad, want string }{
		{"s5", "s5", "422 Invalid request parametersbody.good: must be before bad"},
		{"s6", "s5", "422 Invalid request parametersbody.good: must be before bad"},
		{"s3", "s5", "410"},
		{"s1", "s99", "404"},
		{"1", "99", "404"},
		{"none", "s5", "404"},
		{".", "s5", "422 Invalid request parametersbody.good"},
		{"s1", ".", "422 Invalid request parametersbody.bad"},
	} {
		_, err := m.NewBisect(t.Context(), api.BisectRequest{Good: api.StateRef(tt.good), Bad: api.StateRef(tt.bad), Command: "c", Timeout: 1})
		if err == nil || !strings.HasPrefix(status(err), tt.want) {
			t.Errorf("%s-%s: got %v", tt.good, tt.bad, err)
		}
	}
	b, err := m.NewBisect(t.Context(), api.BisectRequest{Good: "s1", Bad: "s65", Command: "c", Timeout: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := "409 A bisect is under way"
	for name, got := range map[string]func() error{
		"bisect": func() error {
			_, err := m.NewBisect(t.Context(), api.BisectRequest{Good: "s1", Bad: "s65", Command: "c", Timeout: 1})
			return err
		},
		"restore": func() error {
			_, err := m.Restore(t.Context(), api.RestoreRequest{To: "s1", Force: true}, nil)
			return err
		},
		"dry run": func() error {
			_, err := m.Restore(t.Context(), api.RestoreRequest{To: "s1", DryRun: true}, nil)
			return err
		},
		"checkpoint": func() error { _, err := m.Checkpoint(t.Context(), api.CheckpointRequest{Name: "a"}); return err },
		"attempt":    func() error { return m.BeginAttempt(t.Context(), "a") },
	} {
		if err := got(); err == nil || !strings.HasPrefix(status(err), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	gone := errors.New("gone")
	b.Run(t.Context(), func(api.BisectEvent) error { return gone })
	if _, err := m.Checkpoint(t.Context(), api.CheckpointRequest{Name: "a"}); err != nil {
		t.Error(err)
	}
}

// Restores that wait for another one do not wait for a bisect that begins after it, whichever of them goes on first.
func TestBisectAfterRestore(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			tree := memtree.New()
			testing, goOn := make(chan struct{}), make(chan struct{})
			m := tested(t, tree, func(context.Context, api.ExecAction, api.Watch) api.Observation {
				close(testing)
				<-goOn
				return exits(127)
			})
			restoring, restore := make(chan struct{}), make(chan struct{})
			tree.Restoring = func() { close(restoring); <-restore }
			const waiting = 10
			answers := make(chan error, 1+waiting)
			ask := func() { _, err := m.Restore(t.Context(), api.RestoreRequest{To: "s9"}, nil); answers <- err }
			go ask()
			<-restoring
			tree.Restoring = nil
			bisected := make(chan struct{})
			go func() {
				defer close(bisected)
				bisect(t, m, api.BisectRequest{Good: "s1", Bad: "s65", Command: "test", Timeout: 7})
			}()
			for range waiting {
				go ask()
			}
			synctest.Wait()
			close(restore)
			<-testing
			synctest.Wait()
			if n := len(answers); n != 1+waiting {
				t.Errorf("%d of %d restores wait for the bisect", 1+waiting-n, waiting)
			}
			close(goOn)
			<-bisected
			for range 1 + waiting {
				if err := <-answers; err != nil && !strings.HasPrefix(status(err), "409 A bisect is under way") {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// A client that leaves ends the test and the bisect, and the present is restored.
func TestBisectClientLeaves(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	ctx, leave := context.WithCancel(t.Context())
	m := tested(t, tree, func(_ context.Context, a api.ExecAction, w api.Watch) api.Observation {
		if a.Command != "test" || a.KillAfter != 7 {
			t.Errorf("got %+v", a)
		}
		leave()
		<-w.Cancelled
		return api.ExecObservation{}
	})
	b, err := m.NewBisect(ctx, api.BisectRequest{Good: "s1", Bad: "s65", Command: "test", Timeout: 7})
	if err != nil {
		t.Fatal(err)
	}
	var last api.BisectEvent
	b.Run(ctx, func(e api.BisectEvent) error { last = e; return nil })
	if last.Event != api.BisectError || tree.Show() != "n=64" {
		t.Errorf("got %+v, the files are %s", last, tree.Show())
	}
	writes(t, m, "65")
	if got := number(tree); got != 65 {
		t.Errorf("the next action wrote %d", got)
	}
}

// Contents of the present are never lost for a test, and files that a test wrote may be.
func TestBisectLosesNothing(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		tree := memtree.New()
		m := tested(t, tree, func(context.Context, api.ExecAction, api.Watch) api.Observation {
			tree.Write("large", "2")
			return exits(0)
		})
		tree.Unkept = []string{"large"}
		if own {
			tree.Write("large", "1")
		}
		want := tree.Show()
		events := bisect(t, m, api.BisectRequest{Good: "s1", Bad: "s65", Command: "test", Timeout: 7})
		last := events[len(events)-1]
		if lost := strings.Contains(last.Detail, `would lose the string "large", whose content is not kept`); lost != own || own != (last.Event == api.BisectError) || tree.Show() != want {
			t.Errorf("own %t: got %+v, the files are %s", own, last, tree.Show())
		}
	}
}

// If the process ends before the present is restored, the next one restores it.
func TestBisectProcessEnds(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	m := tested(t, tree, func(context.Context, api.ExecAction, api.Watch) api.Observation {
		tree.Fails = context.Canceled
		return exits(127)
	})
	bisect(t, m, api.BisectRequest{Good: "s1", Bad: "s65", Command: "test", Timeout: 7})
	again := tree.Again()
	next := undoing(t, again)
	if err := next.Recover(t.Context()); err != nil || again.Show() != "n=64" || len(next.Checkpoints()) > 0 {
		t.Errorf("got %v, the files are %s, the checkpoints %v", err, again.Show(), next.Checkpoints())
	}
}

// After the end of the process the present is restored, or becomes a checkpoint.
func TestRecover(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		tree := memtree.New()
		var again *memtree.Tree
		m := tested(t, tree, func(context.Context, api.ExecAction, api.Watch) api.Observation {
			tree.Write("junk", "1")
			again = tree.Again()
			return exits(127)
		})
		if m.Recovers() || m.Recover(t.Context()) != nil {
			t.Error("there was nothing to recover from")
		}
		bisect(t, m, api.BisectRequest{Good: "s1", Bad: "s65", Command: "test", Timeout: 7})
		next := undoing(t, again)
		if refused {
			again.Refuse = []string{"junk"}
		}
		if !next.Recovers() || len(next.Checkpoints()) != 0 {
			t.Error("there is nothing to recover from")
		}
		err := next.Recover(t.Context())
		if next.Recovers() || (err != nil) != refused {
			t.Errorf("got %v", err)
		}
		want := map[bool]string{false: "n=64", true: "junk=1 n=64"}[refused]
		if got := again.Show(); got != want || len(next.Checkpoints()) == 1 != refused {
			t.Errorf("the files are %s, the checkpoints %v", got, next.Checkpoints())
		}
	}
}
