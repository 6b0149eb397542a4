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
	"github.com/actiond/actiond/actions/memtree"
	"github.com/actiond/actiond/api"
)

func TestWatchChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tree := memtree.New()
		m := undoing(t, tree)
		m.State()
		writes(t, m, "a=1")
		events := make(chan string, 100)
		want := func(name, event string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for len(events) > 0 {
				got = append(got, <-events)
			}
			if got := strings.Join(got, ", "); got != event {
				t.Errorf("%s: got %s, want %s", name, got, event)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- m.WatchChanges(ctx, actions.Watching{
				Since: 1, Lines: true, Silence: 15 * time.Second,
				Send: func(c *api.Changes) error {
					text := fmt.Sprintf("%s-%s", c.Before, c.After)
					for _, p := range c.Paths {
						text += " " + p.Op + " " + p.Path + " " + strings.ReplaceAll(p.Diff, "\n", "")
					}
					events <- text
					return nil
				},
				Idle: func() error { events <- "idle"; return nil },
			})
		}()
		want("up to date", "s1-s2 created a -+1")
		writes(t, m, "a=2")
		want("an action", "s2-s3 modified a -1+2")
		writes(t, m, "")
		want("an action without an effect", "")
		if _, err := m.Restore(t.Context(), api.RestoreRequest{Last: true}, nil); err != nil {
			t.Fatal(err)
		}
		want("a restore", "s3-s4 modified a -2+1")
		tree.Write("b", "1")
		time.Sleep(time.Second)
		want("from outside", "s4-s5 created b -+1")
		time.Sleep(20 * time.Second)
		want("nothing", "idle")
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWatchChangesFails(t *testing.T) {
	t.Parallel()
	tree := memtree.New()
	m := undoing(t, tree)
	m.State()
	full := errors.New("full")
	sent := 0
	w := actions.Watching{Silence: time.Hour, Send: func(c *api.Changes) error {
		if sent++; c.Before != "s1" || c.After != "s1" || !c.None() {
			t.Errorf("got %+v", c)
		}
		return full
	}}
	if err := m.WatchChanges(t.Context(), w); !errors.Is(err, full) || sent != 1 {
		t.Errorf("got %v, sent %d", err, sent)
	}
	w.Since = 9
	if err := m.WatchChanges(t.Context(), w); status(err) != `404 There is no state "s9"` {
		t.Errorf("got %v", err)
	}
	if err := undoing(t, nil).WatchChanges(t.Context(), w); !strings.HasPrefix(status(err), "409") {
		t.Errorf("got %v", err)
	}
}
