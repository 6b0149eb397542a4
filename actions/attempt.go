package actions

import (
	"context"
	"time"

	"github.com/actiond/actiond/api"
)

// attemptPin is the name under which the state before the open attempt is kept, with the id of the action, which is
// that of the attempt too.
const attemptPin = ".attempt"

// openAttempt returns the open attempt and the number of the state before it.
func (m *Manager) openAttempt() (a api.Attempt, before uint64, ok bool) {
	p, ok := m.pin(attemptPin)
	if !ok {
		return a, 0, false
	}
	return api.Attempt{Attempt: p.Note, Action: p.Note, Before: api.StateName(p.State), Time: p.Time.UTC()}, p.State, true
}

// Attempts returns the open attempt, if there is one.
func (m *Manager) Attempts() []api.Attempt {
	if a, _, ok := m.openAttempt(); ok {
		return []api.Attempt{a}
	}
	return []api.Attempt{}
}

// AttemptOf returns the id of the attempt that an action began and that is open; "" without one.
func (m *Manager) AttemptOf(action string) string {
	if a, _, ok := m.openAttempt(); ok && a.Action == action {
		return a.Attempt
	}
	return ""
}

// BeginAttempt keeps the present state before an action that is about to start. Its id is that of the action, so that a
// request that is sent again gets the same one. An action that came before opens none.
func (m *Manager) BeginAttempt(ctx context.Context, action string) error {
	if err := m.canUndo(ctx); err != nil {
		return err
	}
	m.pinning.Lock()
	defer m.pinning.Unlock()
	a, _, open := m.openAttempt()
	switch {
	case m.came(action), open && a.Action == action:
		return nil
	case open:
		return api.Conflict("The attempt " + api.Excerpt(a.Attempt) + " is open: keep or discard it first")
	}
	state, err := m.present(ctx, false)
	if err != nil {
		return err
	}
	if err := m.effects.workspace.Pin(api.Pin{Name: attemptPin, State: state, Time: time.Now(), Note: action}); err != nil {
		return err
	}
	m.capture(ctx, restoreTime) // the action may destroy contents that are not kept yet
	return nil
}

// came reports whether there ever was an action with an id.
func (m *Manager) came(id string) bool {
	a, err := m.cfg.Journal.Lookup(id)
	return a != nil || err != nil
}

// LeaveAttempt closes the attempt of an action that was not started.
func (m *Manager) LeaveAttempt(action string) {
	m.pinning.Lock()
	defer m.pinning.Unlock()
	if !m.came(action) {
		m.closeAttempt(action)
	}
}

// closeAttempt closes the attempt of an action, if it is open. The caller holds pinning.
func (m *Manager) closeAttempt(action string) {
	if m.AttemptOf(action) != "" {
		_ = m.effects.workspace.Unpin(attemptPin) // there is one, and the next takes its place
	}
}

// KeepAttempt closes an attempt, and returns the changes since it began. The error is an *api.Error if it is not open.
func (m *Manager) KeepAttempt(id string) (*api.Restored, error) {
	kept := &api.Restored{Refused: []api.RefusedPath{}}
	if now := m.State(); now != 0 {
		if a, before, ok := m.openAttempt(); ok && a.Attempt == id {
			if c, err := m.ChangesBetween(before, now, ""); err == nil {
				kept.Changes = *c
			}
		}
	}
	if kept.Paths == nil { // one of the states is not known
		kept.Paths, kept.During, kept.Why = []api.ChangedPath{}, []uint64{}, "offline"
	}
	m.pinning.Lock()
	defer m.pinning.Unlock()
	if a, _, ok := m.openAttempt(); !ok || a.Attempt != id {
		return nil, noAttempt(id)
	}
	return kept, m.effects.workspace.Unpin(attemptPin)
}

// DiscardAttempt restores the state before an attempt, and closes it.
func (m *Manager) DiscardAttempt(ctx context.Context, id string, force bool) (*api.Restored, error) {
	if err := m.canUndo(ctx); err != nil {
		return nil, err
	}
	m.pinning.Lock() // before the workspace is held, as a checkpoint does
	defer m.pinning.Unlock()
	return m.restore(ctx, force, func() (*api.Restored, error) {
		a, before, ok := m.openAttempt()
		if !ok || a.Attempt != id {
			return nil, noAttempt(id)
		}
		if _, err := m.kept(before); err != nil {
			return nil, err
		}
		r, err := m.effects.workspace.Restore(before, api.RestoreOptions{})
		if err == nil {
			err = m.effects.workspace.Unpin(attemptPin)
		}
		return r, err
	})
}

func noAttempt(id string) *api.Error {
	return api.NotFound("There is no open attempt " + api.Excerpt(id))
}
