package actions

import (
	"context"
	"time"

	"github.com/actiond/actiond/api"
)

const (
	// watchTime is how often a watcher has the workspace looked at, if the looks are short.
	watchTime = time.Second
	// watchPart is the part of the time that these looks take at most.
	watchPart = 10
)

// Watching selects the changes that a watcher gets.
type Watching struct {
	// Since is the state from which on changes are reported; 0 is the present.
	Since uint64
	// Path leaves out the changes that are not at or below it; "" leaves out none.
	Path string
	// Lines asks for the lines of text files.
	Lines bool
	// Send is called with the changes, and Idle after each Silence. An error ends the watch.
	Send    func(*api.Changes) error
	Idle    func() error
	Silence time.Duration
}

// WatchChanges reports changes: first until the present, which may be nothing, then as it is seen. The error is that of
// Send or Idle, the cause of the end of ctx, or an *api.Error for a state that is not kept.
func (m *Manager) WatchChanges(ctx context.Context, w Watching) error {
	e := m.effects
	if e.workspace == nil {
		return errNoPresent()
	}
	e.settle(ctx, false)
	sent := time.Now()
	for first := true; ; first = false {
		now, moved := e.look(first)
		if now == 0 && first {
			return errNoPresent()
		}
		if w.Since == 0 {
			w.Since = now
		}
		if now != 0 && (first || now != w.Since) {
			c, err := m.ChangesBetween(w.Since, now, w.Path)
			if err != nil {
				return err
			}
			if first || !c.None() {
				if w.Lines {
					m.AddLines(c, w.Since, now)
				}
				if err := w.Send(c); err != nil {
					return err
				}
				sent = time.Now()
			}
			w.Since = now
		}
		if time.Since(sent) >= w.Silence {
			if err := w.Idle(); err != nil {
				return err
			}
			sent = time.Now()
		}
		select {
		case <-moved:
		case <-time.After(watchTime):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// look is a step, unless there was one such a short time ago and it need not be, and a channel that is closed once
// there is another state.
func (e *effects) look(must bool) (now uint64, moved <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if begun := time.Now(); must || begun.Sub(e.looked) >= max(watchTime/2, watchPart*e.looking) {
		e.step()
		e.looked = time.Now()
		e.looking = e.looked.Sub(begun)
	}
	if e.moved == nil {
		e.moved = make(chan struct{})
	}
	return e.last, e.moved
}
