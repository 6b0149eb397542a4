package actions_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
)

// fakeWorkspace has a file more with each change.
type fakeWorkspace struct {
	actions.Workspace // nil: what nothing calls

	mu      sync.Mutex
	from    uint64 // the number of the first state
	changes uint64
	inexact bool
	left    bool // a process lives that is older than all actions
	unknown bool
	listing chan struct{} // closed once the first state is known; nil if it always is
}

func (w *fakeWorkspace) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
}

func (w *fakeWorkspace) After(recorded uint64) { w.from = recorded + 1 }
func (w *fakeWorkspace) Earlier() uint64       { return 0 }
func (w *fakeWorkspace) Unfinished() bool      { return false }

func (w *fakeWorkspace) Await(ctx context.Context) bool {
	if w.listing != nil {
		select {
		case <-w.listing:
		case <-ctx.Done():
		}
	}
	return w.listing == nil || channel.Closed(w.listing)
}
func (w *fakeWorkspace) Rest()                     {}
func (w *fakeWorkspace) Living() bool              { return false }
func (w *fakeWorkspace) Left(time.Time, bool) bool { return w.left }

func (w *fakeWorkspace) NoUndo() string                { return "" }
func (w *fakeWorkspace) Capture(context.Context) error { return nil }
func (w *fakeWorkspace) Pins() []api.Pin               { return nil }

func (w *fakeWorkspace) Diff(c *api.Changes, from, to uint64) {
	c.Paths = append(c.Paths, api.ChangedPath{Op: "created", Path: "a", Diff: fmt.Sprint(from, to)})
}

func (w *fakeWorkspace) Step() (n uint64, exact bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unknown || w.listing != nil && !channel.Closed(w.listing) {
		return 0, false
	}
	return w.from + w.changes, !w.inexact
}

func (w *fakeWorkspace) Known(n uint64) (kept, given bool) {
	now, _ := w.Step()
	return n >= w.from && n <= now, n > 0 && n <= now
}

func (w *fakeWorkspace) Compare(from, to uint64, _ string) *api.Changes {
	c := &api.Changes{Before: api.StateName(from), After: api.StateName(to), Exact: !w.inexact, Paths: []api.ChangedPath{}}
	if from == 0 || to == 0 {
		c.Exact, c.Why = false, "offline"
		return c
	}
	c.Counts.Created = int(to - from)
	return c
}

// following returns a manager with a workspace and a journal, whose actions do what a function says.
func following(tb testing.TB, w *fakeWorkspace, do func(w api.Watch) error) (*actions.Manager, *journal.Journal) {
	tb.Helper()
	j, err := journal.Open(journal.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = j.Close() })
	cfg := actions.Config{
		Journal: j, Memory: actions.NewMemory(64 << 20), Ended: func(context.Context, *actions.Call, error, time.Duration) {},
		Executor: fake{func(_ context.Context, watch api.Watch) (api.Observation, error) {
			if err := watch.Begins(); err != nil {
				return nil, err
			}
			return api.NullObservation{}, do(watch)
		}},
	}
	if w != nil {
		cfg.Workspace = w
	}
	return actions.New(cfg), j
}

// named is a call with an id that asks for changes.
func named(id, asked string) *actions.Call {
	return &actions.Call{
		ID: id, Digest: sha256.Sum256([]byte(id)), Kind: "run", Form: "action", Detached: true, Encode: api.EncodeObservation,
		Request: api.Request{Action: api.RunAction{}, Changes: asked},
	}
}

// do carries out an action to its end.
func do(tb testing.TB, m *actions.Manager, c *actions.Call) *actions.Run {
	tb.Helper()
	run, _, err := m.Start(c)
	if err != nil {
		tb.Fatal(err)
	}
	m.Do(tb.Context(), run, func() {})
	run.Leave()
	return run
}

// line describes changes; "nil" for none.
func line(c *api.Changes) string {
	if c == nil {
		return "nil"
	}
	return fmt.Sprintf("%s by %v during %v", c.Header(), c.By, c.During)
}

// logged describes the log, the newest entry first.
func logged(m *actions.Manager) string {
	entries, _ := m.ChangeLog(0, 100)
	var all []string
	for _, e := range entries {
		n := uint64(0)
		if e.N != nil {
			n = *e.N
		}
		all = append(all, fmt.Sprintf("%d %s %s-%s +%d", n, e.Cause, e.Before, e.After, e.Counts.Created))
	}
	return strings.Join(all, ", ")
}

func TestChangesByOneAction(t *testing.T) {
	t.Parallel()
	w := &fakeWorkspace{}
	m, j := following(t, w, func(api.Watch) error { w.change(); return nil })
	asked := do(t, m, named("asked", api.ChangesFacts))
	if got, want := line(asked.Changes()), "n=1; +1 ~0 -0 >0; exact by [1] during []"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.change() // by nobody who is known
	do(t, m, named("not asked", ""))
	w.left = true
	w.change()
	beside := do(t, m, named("beside a process", api.ChangesDiff))
	if c := beside.Changes(); c.Truncated || len(c.Paths) != 1 || c.Paths[0].Diff != "5 6" || c.By != nil || !reflect.DeepEqual(c.During, []uint64{3}) {
		t.Errorf("beside a process: got %+v", c)
	}
	recorded, err := m.Find("beside a process")
	if err != nil {
		t.Fatal(err)
	}
	if c := recorded.Changes(); !c.Truncated || len(c.Paths) != 0 {
		t.Errorf("the record has lines: %+v", c)
	}
	want := "3 action s5-s6 +1, 0 background s4-s5 +1, 2 action s3-s4 +1, 0 outside s2-s3 +1, 1 action s1-s2 +1"
	if got := logged(m); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, id := range []string{"asked", "not asked"} {
		run, err := m.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		if c := run.Changes(); c == nil || c.Counts.Created != 1 || run.Info().Effect != journal.EffectSome {
			t.Errorf("%s: got %s, effect %d", id, line(c), run.Info().Effect)
		}
	}
	if n := len(j.Changes(0, 100)); n != 5 {
		t.Errorf("got %d records", n)
	}
}

// An action that changes nothing writes no record, unless it was asked for.
func TestNoChanges(t *testing.T) {
	t.Parallel()
	w := &fakeWorkspace{}
	m, j := following(t, w, func(api.Watch) error { return nil })
	quiet := do(t, m, named("quiet", ""))
	if quiet.Changes() != nil || quiet.Info().Effect != journal.EffectNone || len(j.Changes(0, 10)) != 0 {
		t.Errorf("got %s, effect %d", line(quiet.Changes()), quiet.Info().Effect)
	}
	w.left = true // which does not matter
	asked := do(t, m, named("asked", api.ChangesFacts))
	if got := line(asked.Changes()); got != "n=2; +0 ~0 -0 >0; exact by [2] during []" {
		t.Errorf("got %s", got)
	}
	again, err := m.Find("asked")
	if err != nil || line(again.Changes()) != line(asked.Changes()) {
		t.Errorf("the recorded ones are %s, %v", line(again.Changes()), err)
	}
	if got := logged(m); got != "" {
		t.Errorf("got %s", got)
	}
	w.inexact = true
	if run := do(t, m, named("inexact", "")); run.Info().Effect != journal.EffectUnknown {
		t.Errorf("inexact: got effect %d", run.Info().Effect)
	}
	w.unknown = true
	unknown := do(t, m, named("unknown", api.ChangesFacts))
	if got := line(unknown.Changes()); got != "n=4; +0 ~0 -0 >0; inexact:offline by [] during [4]" || unknown.Info().Effect != journal.EffectUnknown {
		t.Errorf("unknown: got %s, effect %d", got, unknown.Info().Effect)
	}
	for n, want := range map[uint64]uint64{1: 1, 3: 1, 4: 0} {
		if got := m.StateAfter(n); got != want {
			t.Errorf("after action %d: got state %d, want %d", n, got, want)
		}
	}
	none, _ := following(t, nil, func(api.Watch) error { return nil })
	if got := line(do(t, none, named("a", api.ChangesFacts)).Changes()); got != "n=1; +0 ~0 -0 >0; inexact:offline by [] during [1]" {
		t.Errorf("without a workspace: got %s", got)
	}
}

// BenchmarkChanges is an action that changes nothing, with a workspace and without.
func BenchmarkChanges(b *testing.B) {
	for name, w := range map[string]*fakeWorkspace{"followed": {}, "off": nil} {
		b.Run(name, func(b *testing.B) {
			m, _ := following(b, w, func(api.Watch) error { return nil })
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				do(b, m, named(fmt.Sprint(n), ""))
			}
		})
	}
}
