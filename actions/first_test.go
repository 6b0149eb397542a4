package actions_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

// What may change files waits for the first list of the workspace. What reads, and the check of the driver, do not.
func TestFirstList(t *testing.T) {
	t.Parallel()
	view, edit := api.EditAction{}, api.EditAction{}
	view.Command, edit.Command = "view", "insert"
	for _, tt := range []struct {
		name  string
		a     api.Action
		asked string
		waits bool
	}{
		{"the check of the driver", api.ReadyCheck, "", false},
		{"a read", api.ReadAction{}, "", false},
		{"a list", api.ListAction{}, "", false},
		{"glob", api.GlobAction{}, "", false},
		{"grep", api.GrepAction{}, "", false},
		{"view", view, "", false},
		{"a read that asks for changes", api.ReadAction{}, api.ChangesFacts, true},
		{"a command", api.RunAction{Command: "true"}, "", true},
		{"a hidden command", api.RunAction{Command: "rm -r src", Blocking: true, Hidden: true}, "", true},
		{"exec", api.ExecAction{}, "", true},
		{"a cell", api.IPythonAction{}, "", true},
		{"a write", api.WriteAction{}, "", true},
		{"an edit", edit, "", true},
		{"a tool", api.MCPAction{}, "", true},
		{"an upload", nil, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const listed = 4 * time.Second
				w := &fakeWorkspace{listing: make(chan struct{})}
				m, _ := following(t, w, func(api.Watch) error { return nil })
				time.AfterFunc(listed, func() { close(w.listing) })
				begun, want := time.Now(), time.Duration(0)
				if tt.waits {
					want = listed
				}
				c := named("a", tt.asked)
				c.Request.Action = tt.a
				run := do(t, m, c)
				if took := time.Since(begun); took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
				time.Sleep(2 * listed)
				m.State()
				if info := run.Info(); info.Effect != journal.EffectNone || info.After != 1 {
					t.Errorf("got effect %d, state %d", info.Effect, info.After)
				}
				before, err := m.BeginBefore(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				m.LeaveBefore(before)
			})
		})
	}
}

// Beyond ten seconds nothing waits any longer, and each answer says why its changes are not known.
func TestFirstListIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorkspace{listing: make(chan struct{})}
		m, _ := following(t, w, func(api.Watch) error { w.change(); return nil })
		c := named("check", "")
		c.Request.Action = api.ReadyCheck
		do(t, m, c)
		begun := time.Now()
		first := do(t, m, named("first", ""))
		do(t, m, named("second", api.ChangesFacts))
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("they took %v", took)
		}
		if got := line(first.Changes()); got != "n=2; +0 ~0 -0 >0; inexact:before the workspace was known by [] during [2]" {
			t.Errorf("got %s", got)
		}
		if err := m.Known(t.Context()); status(err) != "409 The workspace is listed for the first time: try again in a moment" {
			t.Errorf("got %v", err)
		}
		close(w.listing)
		if err := m.Known(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := m.Restore(t.Context(), api.RestoreRequest{Last: true}, nil); !strings.Contains(status(err), "404 What the action 3 changed cannot be taken back: it began before the workspace was known") {
			t.Errorf("undo: got %s", status(err))
		}
		if _, err := m.Restore(t.Context(), api.RestoreRequest{Before: 2}, nil); !strings.Contains(status(err), "404 What the action 2 changed cannot be taken back: it began before the workspace was known") {
			t.Errorf("undo of the first: got %s", status(err))
		}
		if n := m.StateAfter(1); n != 0 {
			t.Errorf("the state after the check is said to be %d, though others came before it was known", n)
		}
		do(t, m, named("third", ""))
		if got, want := logged(m), "4 action s4-s5 +1, 3 action - +0, 2 action - +0"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if entries, _ := m.ChangeLog(0, 2); entries[1].Why != api.WhyEarly || entries[1].Exact {
			t.Errorf("got %+v", entries[1])
		}
	})
}

// An action that is cancelled while it waits for the list does not run.
func TestCancelledBeforeTheList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorkspace{listing: make(chan struct{})}
		m, _ := following(t, w, func(api.Watch) error { t.Error("it ran"); return nil })
		run, _, err := m.Start(named("a", ""))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { m.Cancel(run) })
		m.Do(t.Context(), run, func() {})
		if info := run.Info(); info.State != journal.Cancelled {
			t.Errorf("it is %s", info.State)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if _, err := m.Beside(ctx, api.CauseUpload, false, func() error { return errors.New("it ran") }); !errors.Is(err, gone) {
			t.Errorf("an upload: got %v", err)
		}
	})
}
