package actions

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

// restoreTime is how long a restore waits for contents of the present.
const restoreTime = 10 * time.Second

// Known waits for the first state. The error is an *api.Error if it is not known in time, or the cause of the end of ctx.
func (m *Manager) Known(ctx context.Context) error {
	e := m.effects
	if e.workspace == nil || e.settle(ctx, false) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return api.Conflict("The workspace is listed for the first time: try again in a moment")
}

// canUndo refuses work that needs contents where none are kept, which is known with the
// first state.
func (m *Manager) canUndo(ctx context.Context) error {
	why := "the server follows no changes, see --changes"
	if w := m.effects.workspace; w != nil {
		m.effects.settle(ctx, false)
		why = w.NoUndo()
	}
	if why != "" {
		return api.Conflict("Changes cannot be taken back: " + why)
	}
	return nil
}

// kept returns a state that is kept, otherwise an *api.Error that says so.
func (m *Manager) kept(n uint64) (uint64, error) {
	kept, given := false, false
	if w := m.effects.workspace; w != nil {
		kept, given = w.Known(n)
	}
	if !kept {
		return 0, api.NoState(api.StateName(n), given)
	}
	return n, nil
}

// Resolve returns the number of a state that is kept. The error is an *api.Error.
func (m *Manager) Resolve(ref api.StateRef) (uint64, error) {
	name := string(ref)
	if n, ok := api.StateNumber(name); ok {
		return m.kept(n)
	}
	if n, err := strconv.ParseUint(name, 10, 63); err == nil && n > 0 {
		state := m.StateAfter(n)
		if state == 0 {
			return 0, api.NotFound(fmt.Sprintf("The state after the action %d is not known: it did not end, was not followed, or is not kept", n))
		}
		return m.kept(state)
	}
	if err := api.CheckCheckpointName(name); err != nil {
		return 0, api.Invalid(fmt.Sprintf(`must be a state such as "s16", the number of an action or the name of a checkpoint, got %s`, api.Describe(name)))
	}
	pin, ok := m.pin(name)
	switch {
	case !ok && name == api.StateStart:
		return m.kept(api.FirstState)
	case !ok:
		return 0, api.NotFound("There is no checkpoint " + api.Excerpt(name))
	}
	return m.kept(pin.State)
}

// pin returns the state that is kept under a name.
func (m *Manager) pin(name string) (p api.Pin, ok bool) {
	if w := m.effects.workspace; w != nil {
		for _, p := range w.Pins() {
			if p.Name == name {
				return p, true
			}
		}
	}
	return p, false
}

// around returns the states before and after an action; they are equal if it changed nothing.
func (m *Manager) around(n uint64) (before, after uint64, err error) {
	e := m.effects
	e.mu.Lock()
	for _, f := range e.open {
		if f.n == n {
			before = f.before
		}
	}
	e.mu.Unlock()
	if before != 0 {
		return before, 0, nil
	}
	if info, ok := m.infoOf(n); ok {
		if a, err := m.cfg.Journal.Lookup(info.ID); err == nil && a != nil {
			if record, ok := a.Changed(); ok {
				if r, err := api.DecodeChangeRecord(record.Data); err == nil {
					if r.Changes.Why == api.WhyEarly {
						return 0, 0, errEarly(&n)
					}
					before, _ := api.StateNumber(r.Changes.Before)
					return before, record.State, nil
				}
			}
		}
		if info.Effect == journal.EffectNone && info.After != 0 {
			return info.After, info.After, nil
		}
	}
	return 0, 0, api.NotFound(fmt.Sprintf("What the action %d changed is not known: it did not end, or its state is not kept", n))
}

// errEarly refuses to take back an action, nil for an upload, whose changes are not known.
func errEarly(n *uint64) *api.Error {
	what := "the last upload"
	if n != nil {
		what = fmt.Sprintf("the action %d", *n)
	}
	return api.NotFound(fmt.Sprintf("What %s changed cannot be taken back: it began %s", what, api.WhyEarly))
}

// undoable are the causes of changes that a client asked for.
var undoable = []string{api.CauseAction, api.CauseUpload, api.CauseRestore}

// BeforeLast returns the state before the last change that a client asked for; 0 where it is not known. The error is an
// *api.Error if the log has no such change.
func (m *Manager) BeforeLast() (uint64, error) {
	for before := uint64(0); ; {
		entries, next := m.ChangeLog(before, logPage)
		for _, entry := range entries {
			if slices.Contains(undoable, entry.Cause) {
				if entry.Why == api.WhyEarly {
					return 0, errEarly(entry.N)
				}
				n, _ := api.StateNumber(entry.Before)
				return n, nil
			}
		}
		if before = next; before == 0 {
			return 0, api.NotFound("Nothing was changed that could be taken back")
		}
	}
}

// Restore returns the workspace to an earlier state. Paths are relative to it, nil for everything. No action begins
// meanwhile. The error is an *api.Error if the caller is wrong.
func (m *Manager) Restore(ctx context.Context, req api.RestoreRequest, paths []string) (*api.Restored, error) {
	if err := m.canUndo(ctx); err != nil {
		return nil, err
	}
	options := api.RestoreOptions{Paths: paths, All: req.All, DryRun: req.DryRun, Diff: req.Diff}
	if req.DryRun {
		if err := m.effects.lock(ctx); err != nil {
			return nil, err
		}
		m.effects.step()
		m.effects.mu.Unlock()
		r, err := m.carryOut(req, options)
		if err == nil {
			r.By = []uint64{}
		}
		return r, err
	}
	return m.restore(ctx, req.Force, func() (*api.Restored, error) { return m.carryOut(req, options) })
}

// carryOut finds the paths to restore, and restores them.
func (m *Manager) carryOut(req api.RestoreRequest, o api.RestoreOptions) (*api.Restored, error) {
	var from, to uint64
	var err error
	switch {
	case req.Only > 0:
		if from, to, err = m.around(req.Only); err == nil && to == 0 {
			err = api.Conflict(fmt.Sprintf("The action %d has not ended", req.Only))
		}
	case req.Before > 0:
		to, _, err = m.around(req.Before)
	case req.Last:
		to, err = m.BeforeLast()
	default:
		to, err = m.Resolve(req.To)
	}
	switch {
	case err != nil:
	case to == 0:
		err = api.NotFound("The state before that change is not known")
	default:
		to, err = m.kept(to)
	}
	if err == nil && req.Only > 0 {
		from, err = m.kept(from)
	}
	switch {
	case err != nil:
		return nil, err
	case req.Only > 0:
		return m.effects.workspace.Revert(from, to, o)
	}
	return m.effects.workspace.Restore(to, o)
}

// restore calls work, which restores something, while no action begins, and records it.
func (m *Manager) restore(ctx context.Context, force bool, work func() (*api.Restored, error)) (*api.Restored, error) {
	if m.State() != 0 {
		m.capture(ctx, restoreTime) // so that the restore can be taken back
	}
	free, err := m.effects.hold(ctx, force)
	if err != nil {
		return nil, err
	}
	defer free()
	r, err := work()
	m.effects.restored(api.CauseRestore, r)
	return r, err
}

// capture waits for the contents of the present, for a while: the answer of a restore names the missing
// ones.
func (m *Manager) capture(ctx context.Context, limit time.Duration) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = m.effects.workspace.Capture(limited)
}

// settle waits for the first state, and reports whether it is known or will never be. Before changes it waits for the
// contents too, but no longer than all changes together.
func (e *effects) settle(ctx context.Context, changes bool) bool {
	e.mu.Lock()
	settled, limit := e.listed, settleTime
	if changes {
		if settled = e.kept; e.asked.IsZero() {
			e.asked = time.Now()
		}
		limit -= time.Since(e.asked)
	}
	e.mu.Unlock()
	if settled {
		return true
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	known := e.workspace.Await(limited)
	if known && changes {
		_ = e.workspace.Capture(limited) // a restore names what is not kept in time
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listed = e.listed || known
	e.kept = e.kept || known && changes && ctx.Err() == nil
	return known
}

// restored records the changes by a restore, nil after an error.
func (e *effects) restored(cause string, r *api.Restored) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r == nil {
		now, _ := e.workspace.Step()
		if last := e.last; now != last && now != 0 && last != 0 {
			c := e.workspace.Compare(last, now, "")
			c.During = e.opened()
			e.record(cause, now, c)
		}
		e.reached(now)
		return
	}
	before, _ := api.StateNumber(r.Before)
	after, _ := api.StateNumber(r.After)
	e.stepped(before)
	if r.By, r.During = []uint64{}, nil; len(e.open) > 0 || len(r.Living) > 0 {
		r.By, r.During = nil, e.opened()
	}
	e.record(cause, after, &r.Changes)
	e.reached(after)
}

// opened are the numbers of the actions that are open. The caller holds mu.
func (e *effects) opened() []uint64 {
	numbers := []uint64{}
	for _, f := range e.open {
		if f.n > 0 && len(numbers) < maxWith {
			numbers = append(numbers, f.n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// record notes changes, if there are some, without the lines of text files.
func (e *effects) record(cause string, state uint64, c *api.Changes) {
	if c.None() || state == 0 {
		return
	}
	short := *c
	short.Paths = slices.Clone(c.Paths)
	for i := range short.Paths {
		p := &short.Paths[i]
		p.OldMode, p.Mode, p.Diff, p.Lines = "", "", "", nil
	}
	e.note(cause, state, &short)
}

// Recovers reports whether a restore that the end of a process broke off has not ended.
func (m *Manager) Recovers() bool { return m.broken.Load() }

// Recover waits for the end of such a restore. Actions wait for it.
func (m *Manager) Recover(ctx context.Context) error {
	if !m.broken.Load() {
		return nil
	}
	free, err := m.effects.hold(ctx, true)
	if err != nil {
		return err
	}
	defer m.broken.Store(false)
	defer free()
	m.effects.workspace.Await(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
