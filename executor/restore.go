package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/store"
)

// Unfinished reports whether the end of a server broke off a restore: the tree is between two states.
func (w *Workspace) Unfinished() bool {
	return w.cfg.Dir != "" && w.cfg.StateDir != "" && changes.Unfinished(w.cfg.StateDir)
}

// resume ends the restore that a killed process began.
func (w *Workspace) resume(tracker *changes.Tracker) {
	restored, err := tracker.Resume()
	switch {
	case err != nil:
		w.deps.logger.ErrorContext(w.ctx, "a restore that was under way when the server ended is not complete", slog.Any("error", err))
	case restored != nil:
		w.deps.logger.InfoContext(w.ctx, "ended a restore that was under way when the server ended", slog.Int("refused", restored.RefusedCount))
	}
}

// Diff adds the lines of text files to changes between two states, and says which contents cannot be had.
func (w *Workspace) Diff(c *api.Changes, from, to uint64) {
	a, err := w.get(from)
	b, err2 := w.get(to)
	t := w.tracker.Load()
	if err != nil || err2 != nil || t == nil || w.NoUndo() != "" {
		c.Truncated = c.Truncated || c.Counts.Created+c.Counts.Modified > 0 // the lines are not known
		return
	}
	w.addDiffs(t, c, changes.Compare(a, b, changes.Limits{Facts: max(len(c.Paths), 1), Bytes: 64 << 20}), a, b)
}

// addDiffs adds the known differences of the contents to the paths of c, which were found between two states.
func (w *Workspace) addDiffs(t *changes.Tracker, c *api.Changes, found *changes.Changes, a, b *changes.State) {
	entries, truncated, err := t.Diff(a, b, found, 0)
	if err != nil {
		w.deps.logger.WarnContext(w.ctx, "changed lines are not known", slog.Any("error", err))
		c.Truncated = true
		return
	}
	c.Truncated = c.Truncated || truncated
	byFact := make(map[changes.Fact]*changes.Entry, len(entries))
	for i := range entries {
		byFact[entries[i].Fact] = &entries[i]
	}
	for i := range c.Paths {
		p := &c.Paths[i]
		path, from := p.Names()
		e := byFact[changes.Fact{Op: changes.Op(p.Op), Path: path, From: from}]
		if e == nil {
			continue
		}
		p.OldMode, p.Mode, p.Content = modeText(e.Was), modeText(e.Now), string(e.Content)
		if p.Diff = e.Diff; e.Read {
			p.Lines = &[2]int{e.Added, e.Removed}
		}
	}
}

// modeText is a type and mode as git writes it; "" for no file.
func modeText(mode uint32) string {
	if mode == 0 {
		return ""
	}
	return fmt.Sprintf("%06o", mode)
}

// Restore makes the tree as it was in a state.
func (w *Workspace) Restore(to uint64, o api.RestoreOptions) (*api.Restored, error) {
	target, err := w.get(to)
	if err != nil {
		return nil, stateError(to, err)
	}
	return w.restore(o, func(t *changes.Tracker, more changes.RestoreOptions) (*changes.Restored, error) {
		return t.Restore(target, more)
	})
}

// Revert takes back the changes from one state to another.
func (w *Workspace) Revert(from, to uint64, o api.RestoreOptions) (*api.Restored, error) {
	before, err := w.get(from)
	if err != nil {
		return nil, stateError(from, err)
	}
	after, err := w.get(to)
	if err != nil {
		return nil, stateError(to, err)
	}
	return w.restore(o, func(t *changes.Tracker, more changes.RestoreOptions) (*changes.Restored, error) {
		return t.Revert(before, after, o.All, more)
	})
}

// stateError refuses a request for a state that cannot be had.
func stateError(n uint64, err error) error {
	switch {
	case errors.Is(err, changes.ErrNoState):
		return api.NoState(api.StateName(n), false)
	case errors.Is(err, changes.ErrStateGone):
		return api.NoState(api.StateName(n), true)
	}
	return err
}

// restored is a restore that ended, and the numbers of the states around it.
type restored struct {
	*changes.Restored
	before, after uint64
}

// restore does the work of a restore, while nothing else looks at the tree.
func (w *Workspace) restore(o api.RestoreOptions, work func(*changes.Tracker, changes.RestoreOptions) (*changes.Restored, error)) (*api.Restored, error) {
	t, pids, err := w.beginRestore()
	if err != nil {
		return nil, err
	}
	var r restored
	err = errors.New("it broke")
	ended := make(chan struct{})
	w.work.Go(func() {
		defer close(ended)
		defer func() { r.before, r.after = w.endRestore(r.Restored, o.DryRun) }()
		defer w.recovers()
		r.Restored, err = work(t, changes.RestoreOptions{Paths: o.Paths, DryRun: o.DryRun, Pids: pids})
	})
	select {
	case <-ended:
	case <-w.ctx.Done(): // a file system may not answer; the next process ends it
		return nil, context.Cause(w.ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("restoring the workspace: %w", err)
	}
	return w.answer(t, r, o, pids), nil
}

// beginRestore keeps steps away, and returns the processes of the agent.
func (w *Workspace) beginRestore() (*changes.Tracker, []int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tracker.Load()
	switch why := w.NoUndo(); {
	case why != "":
		return nil, nil, api.Conflict("Changes cannot be taken back: " + why)
	case w.ctx.Err() != nil:
		return nil, nil, context.Cause(w.ctx)
	case t == nil:
		return nil, nil, api.Conflict("Changes cannot be taken back: the workspace is not followed")
	case w.restoring:
		return nil, nil, api.Conflict("Another restore is under way")
	case w.stuck.Load():
		return nil, nil, api.Conflict("A file system does not answer: try again later")
	}
	found, ok := w.seek()
	if w.ctx.Err() != nil {
		return nil, nil, context.Cause(w.ctx)
	}
	if !ok {
		return nil, nil, api.Conflict("The processes of the agent cannot be listed in time: try again later")
	}
	w.restoring = true
	return t, slices.Sorted(maps.Keys(found)), nil
}

// endRestore lets steps in again, and returns the numbers of the states around it.
func (w *Workspace) endRestore(r *changes.Restored, dryRun bool) (before, after uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restoring, w.behind = false, true
	if r == nil {
		return 0, 0
	}
	if r.Before != w.state {
		w.keep(r.Before)
	}
	before = w.last
	if dryRun {
		return before, 0
	}
	if r.After != w.state {
		w.keep(r.After)
		w.wake()
	}
	return before, w.last
}

// answer is the result of a restore, for the wire.
func (w *Workspace) answer(t *changes.Tracker, r restored, o api.RestoreOptions, living []int) *api.Restored {
	out := &api.Restored{DryRun: o.DryRun, Refused: make([]api.RefusedPath, len(r.Refused)), RefusedCount: r.RefusedCount, Living: living}
	out.Before, out.After, out.Paths = api.StateName(r.before), api.StateName(r.after), []api.ChangedPath{}
	fill(&out.Changes, r.Changes, "")
	if o.Diff {
		w.addDiffs(t, &out.Changes, r.Changes, r.Before, r.After)
	}
	for i, refused := range r.Refused {
		out.Refused[i] = api.NewRefusedPath(refused.Path, refused.Why)
	}
	out.Lost, out.Unread, out.Split = filePaths(r.Lost), filePaths(r.Unsure), filePaths(r.Split)
	return out
}

func filePaths(paths []string) []api.FilePath {
	var out []api.FilePath
	for _, p := range paths {
		out = append(out, api.FilePath(p))
	}
	return out
}

// Verify is a Step that lists everything, which also finds changes without an event.
func (w *Workspace) Verify() (n uint64, exact bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tracker.Load()
	if t == nil || w.stuck.Load() || w.restoring {
		return 0, false
	}
	if !w.find(false) {
		w.behind = true
		return 0, false
	}
	state := w.look(t.Verify)
	if w.behind = state == nil; w.behind {
		return 0, false
	}
	w.moveTo(state)
	return w.last, w.exact
}

// Capture waits until the contents of the present state are kept, or the store is full. The error is the cause of the
// end of ctx.
func (w *Workspace) Capture(ctx context.Context) error {
	if _, err := w.keeper(); err != nil {
		return err
	}
	err := w.states.Capture(ctx, true)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, store.ErrFull):
		return nil
	}
	return err
}

// keeper returns the tracker that keeps contents. The error is an *api.Error that says why none are kept.
func (w *Workspace) keeper() (*changes.Tracker, error) {
	t := w.tracker.Load()
	if why := w.NoUndo(); why != "" || t == nil {
		return nil, api.Conflict("Contents are not kept: " + why)
	}
	return t, nil
}

// Missing returns how many files of a state cannot be restored, because their contents are not kept (yet), with some
// of their paths.
func (w *Workspace) Missing(n uint64) (missing int, paths []api.FilePath, err error) {
	t, err := w.keeper()
	if err != nil {
		return 0, nil, err
	}
	state, err := w.get(n)
	if err != nil {
		return 0, nil, stateError(n, err)
	}
	missing, some := t.Missing(state)
	return missing, filePaths(some), nil
}

// Pin keeps a state by a name until Unpin, also for the next process, in the place of the state that has the name.
func (w *Workspace) Pin(p api.Pin) error {
	if _, err := w.keeper(); err != nil {
		return err
	}
	switch err := w.states.Pin(changes.Pin(p)); {
	case errors.Is(err, store.ErrFull):
		return api.NoSpace("There is no room for another state: remove checkpoints, or start the server with a larger --changes-bytes")
	case err != nil:
		return stateError(p.State, err)
	}
	return nil
}

// Unpin takes back a Pin.
func (w *Workspace) Unpin(name string) error {
	if w.NoUndo() != "" {
		return noPin(name)
	}
	if err := w.states.Unpin(name); errors.Is(err, changes.ErrNoPin) {
		return noPin(name)
	} else if !errors.Is(err, store.ErrFull) { // the list in memory holds
		return err
	}
	return nil
}

func noPin(name string) error {
	return api.NotFound("There is no checkpoint " + api.Excerpt(name))
}

// Pins returns all pins, the oldest first.
func (w *Workspace) Pins() []api.Pin {
	if w.NoUndo() != "" {
		return nil
	}
	pins := w.states.Pins()
	out := make([]api.Pin, len(pins))
	for i, p := range pins {
		out[i] = api.Pin(p)
	}
	return out
}
