package actions_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/api"
)

// Actions that overlap, also with an upload, share what changed.
func TestChangesOverlap(t *testing.T) {
	t.Parallel()
	w := &fakeWorkspace{}
	begun, end := make(chan struct{}, 2), make(chan struct{})
	m, _ := following(t, w, func(api.Watch) error {
		begun <- struct{}{}
		<-end
		return nil
	})
	var runs sync.WaitGroup
	var got [2]*api.Changes
	for i, id := range []string{"a", "b"} {
		run, _, err := m.Start(named(id, api.ChangesFacts))
		if err != nil {
			t.Fatal(err)
		}
		runs.Go(func() {
			m.Do(t.Context(), run, func() {})
			got[i] = run.Changes()
		})
		<-begun
	}
	uploaded, err := m.Beside(t.Context(), api.CauseUpload, false, func() error { w.change(); return nil })
	if err != nil || line(uploaded) != "+1 ~0 -0 >0; exact by [] during [1 2]" {
		t.Errorf("the upload: got %s, %v", line(uploaded), err)
	}
	if n := m.State(); n != 2 {
		t.Errorf("got state %d", n)
	}
	close(end)
	runs.Wait()
	for i, c := range got {
		if want := fmt.Sprintf("n=%d; +1 ~0 -0 >0; exact by [] during [1 2]", i+1); line(c) != want {
			t.Errorf("got %s, want %s", line(c), want)
		}
	}
	if entries, _ := m.ChangeLog(0, 10); len(entries) != 3 || entries[2].Cause != api.CauseUpload || entries[2].Kind != "upload" || entries[2].N != nil {
		t.Errorf("got %+v", entries)
	}
}

// An action that is refused after its turn came did nothing, and what changed meanwhile is outside of it.
func TestChangesOfRefusals(t *testing.T) {
	t.Parallel()
	w := &fakeWorkspace{}
	var failure error
	m, _ := following(t, w, func(api.Watch) error { w.change(); return failure })
	failure = api.BadRequest("no")
	if run := do(t, m, named("refused", api.ChangesFacts)); run.Changes() != nil {
		t.Errorf("refused: got %s", line(run.Changes()))
	}
	failure = errors.New("broken")
	broken := do(t, m, named("broken", api.ChangesFacts))
	if got := line(broken.Changes()); got != "n=2; +1 ~0 -0 >0; exact by [2] during []" {
		t.Errorf("broken: got %s", got)
	}
	if got := logged(m); got != "2 action s2-s3 +1, 0 outside s1-s2 +1" {
		t.Errorf("got %s", got)
	}
}

// Work before the turn of an action is its own.
func TestChangesBeforeTheTurn(t *testing.T) {
	t.Parallel()
	w := &fakeWorkspace{}
	m, _ := following(t, w, func(api.Watch) error { w.change(); return nil })
	before := func() *actions.Before {
		b, err := m.BeginBefore(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	m.LeaveBefore(before()) // of a request that was not carried out
	c := named("a", api.ChangesFacts)
	c.Before = before()
	w.change()
	if got := line(do(t, m, c).Changes()); got != "n=1; +2 ~0 -0 >0; exact by [1] during []" {
		t.Errorf("got %s", got)
	}
	if got := line(do(t, m, named("b", api.ChangesFacts)).Changes()); got != "n=2; +1 ~0 -0 >0; exact by [2] during []" {
		t.Errorf("after it: got %s", got)
	}
}

func TestChangesBetween(t *testing.T) {
	t.Parallel()
	w := &fakeWorkspace{}
	quiet := false
	m, _ := following(t, w, func(api.Watch) error {
		if !quiet {
			w.change()
		}
		return nil
	})
	do(t, m, named("a", ""))
	do(t, m, named("b", ""))
	quiet = true
	do(t, m, named("c", ""))
	for _, test := range []struct {
		from, to uint64
		want     string
	}{
		{1, 3, "+2 ~0 -0 >0; exact by [1 2] during []"},
		{2, 3, "+1 ~0 -0 >0; exact by [2] during []"},
		{3, 3, "+0 ~0 -0 >0; exact by [] during []"},
		{3, 1, "400"},
		{1, 4, "404"},
		{0, 3, "404"},
	} {
		c, err := m.ChangesBetween(test.from, test.to, "")
		got := line(c)
		if refused, ok := errors.AsType[*api.Error](err); ok {
			got = fmt.Sprint(refused.Status)
		}
		if got != test.want {
			t.Errorf("%d to %d: got %s, want %s", test.from, test.to, got, test.want)
		}
	}
	for n, want := range map[uint64]uint64{1: 2, 2: 3, 3: 3, 4: 0} {
		if got := m.StateAfter(n); got != want {
			t.Errorf("after action %d: got state %d, want %d", n, got, want)
		}
	}
	w.change()
	m.State()
	if c, err := m.ChangesBetween(1, 4, ""); err != nil || line(c) != "+3 ~0 -0 >0; exact by [] during [1 2]" {
		t.Errorf("with a change outside: got %s, %v", line(c), err)
	}
}
