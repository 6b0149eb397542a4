package actions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

// Workspace knows the states of the files that actions work on, by numbers. Its methods may be called concurrently.
type Workspace interface {
	States
	Undoer
	Processes
	// After says which state was the last one that was recorded, 0 for none. It is called before the other methods.
	After(recorded uint64)
	// Earlier returns the last state of an earlier process that can be compared with the first one; 0 without one, or
	// where nothing changed since.
	Earlier() uint64
	// Unfinished reports whether the end of a process broke off a restore.
	Unfinished() bool
	// Await waits for the first state. It reports whether that is known, or will never be.
	Await(ctx context.Context) bool
}

// Processes are those of the agent, which may change a [Workspace] after their action ended.
type Processes interface {
	// Rest says that no action runs. It is called before the Step at the begin of one.
	Rest()
	// Living reports whether processes of the agent lived at the last Step.
	Living() bool
	// Left reports whether processes of the agent live that were started before an action began. sure says that no
	// process was started just before.
	Left(begun time.Time, sure bool) bool
}

// States are the states of a [Workspace].
type States interface {
	// Step returns the number of the present state, which is that of the last step if nothing changed; 0 where it is not
	// known. exact is false if something may have changed unseen.
	Step() (n uint64, exact bool)
	// Verify is a Step that lists everything, which also finds changes without an
	// event.
	Verify() (n uint64, exact bool)
	// Known reports whether a state is kept, and whether its number was given out.
	Known(n uint64) (kept, given bool)
	// Compare returns the net changes between two states, at or below a path unless that is "". A state that is not kept,
	// or 0, makes them inexact.
	Compare(from, to uint64, path string) *api.Changes
	// Diff adds the lines of text files to changes between two states, and says which contents cannot be had.
	Diff(c *api.Changes, from, to uint64)
}

// Undoer takes changes of a [Workspace] back.
type Undoer interface {
	// NoUndo says why changes cannot be taken back, and names the flag; "" if they can.
	NoUndo() string
	// Restore returns the tree to a state, and Revert takes back the changes from one state to another. The answer names
	// the states around it. The error is an *api.Error if the caller is wrong, and [context.Canceled] at the end of the
	// process. No Step is made meanwhile.
	Restore(to uint64, o api.RestoreOptions) (*api.Restored, error)
	Revert(from, to uint64, o api.RestoreOptions) (*api.Restored, error)
	// Capture waits until the contents of the present state are kept. The error is the cause of the end of ctx.
	Capture(ctx context.Context) error
	// Missing returns how many files of a state cannot be restored, because their contents are not kept (yet), with some
	// of their paths.
	Missing(n uint64) (missing int, paths []api.FilePath, err error)
	// Pin keeps a state by a name until Unpin, also for the next process. It takes the place of a pin of the same name.
	Pin(p api.Pin) error
	Unpin(name string) error
	// Pins are all of them, by time.
	Pins() []api.Pin
}

const (
	// sureTime is how long no action may have run before an action, so that processes that were started since belong to
	// that action.
	sureTime = 20 * time.Millisecond
	// settleTime is how long requests wait for the first state, and all changes together for that and its contents.
	settleTime = 10 * time.Second
	// maxWith bounds the actions that are named as having run during another one.
	maxWith = 1000
)

// effects attributes changes of the workspace to actions. Its methods may be called concurrently.
type effects struct {
	workspace Workspace // nil where no directory is followed
	journal   *journal.Journal

	mu     sync.Mutex
	first  uint64            // the first state that was known
	listed bool              // it is known, or will never be
	kept   bool              // and its contents are kept, or nothing waits for them any longer
	asked  time.Time         // when the first work that may change files waited for it
	quiet  []*journal.Action // the first ones, if they changed nothing and ended before it: it is theirs, too
	early  bool              // other work began before it

	last uint64    // the state of the last step
	open []*effect // those that began and did not end
	idle time.Time // when the last effect ended

	freed chan struct{} // closed at the end of a restore, which keeps actions from beginning; nil without one

	moved   chan struct{} // closed at the next state; nil without a watcher
	looked  time.Time     // when the last step for watchers ended
	looking time.Duration // and how long it took
}

// effect is the change of the workspace by one action, or by one request that is not an action, such as an upload. The
// lock of effects guards it while it is open.
type effect struct {
	n       uint64 // the number of the action; 0 for such a request
	begun   time.Time
	before  uint64   // the state at the beginning
	sure    bool     // no action ran just before
	left    bool     // processes of earlier actions lived at the beginning
	overlap bool     // another effect was open meanwhile
	reads   bool     // it changes nothing, and waits for no state
	early   bool     // it began before the first state was known, and may have changed something
	with    []uint64 // the numbers of the actions of those others
}

func newEffects(workspace Workspace, j *journal.Journal) *effects {
	if workspace != nil {
		workspace.After(j.LastState())
	}
	return &effects{workspace: workspace, journal: j}
}

// begin takes the state before an action that has its turn. It waits for a restore, and unless it only reads for
// the first state and its contents; the error is the cause of the end of ctx.
func (e *effects) begin(ctx context.Context, f *effect) error {
	if e.workspace == nil {
		return nil
	}
	if !f.reads && ctx.Err() == nil {
		if f.early = !e.settle(ctx, true); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.mu.Unlock()
	f.begun = time.Now()
	if len(e.open) == 0 && e.freed == nil {
		e.workspace.Rest()
	}
	f.before = e.step()
	f.early = f.early && f.before == 0
	e.early = e.early || f.early
	f.left = e.workspace.Living()
	f.sure = len(e.open) == 0 && f.begun.Sub(e.idle) > sureTime
	for _, other := range e.open {
		other.meets(f)
		f.meets(other)
	}
	e.open = append(e.open, f)
	return nil
}

// meets notes that another effect was open at the same time.
func (f *effect) meets(other *effect) {
	f.overlap = true
	if other.n > 0 && len(f.with) < maxWith {
		f.with = append(f.with, other.n)
	}
}

// step returns the present state, or during a restore the state before it. While no effect is open, changes since the
// last step belong to no action and are recorded as such. The caller holds mu.
func (e *effects) step() uint64 {
	if e.freed != nil {
		return e.last
	}
	now, _ := e.workspace.Step()
	return e.stepped(now)
}

// stepped notes a state that a step came to. The caller holds mu.
func (e *effects) stepped(now uint64) uint64 {
	if now != e.last && now != 0 && e.last != 0 && len(e.open) == 0 {
		c := e.workspace.Compare(e.last, now, "")
		cause := api.CauseOutside
		if e.workspace.Left(time.Now(), false) {
			cause = api.CauseBackground
		}
		if !c.None() {
			e.note(cause, now, c)
		}
	}
	e.reached(now)
	return now
}

// reached notes the present state. Changes before the first one were made while no server ran. The caller holds mu.
func (e *effects) reached(now uint64) {
	if now != e.last && e.moved != nil {
		close(e.moved)
		e.moved = nil
	}
	if e.last = now; e.first != 0 || now == 0 {
		return
	}
	e.first = now
	for _, a := range e.quiet {
		if !e.early {
			a.SetEffect(journal.EffectNone, now)
		}
	}
	e.quiet = nil
	if earlier := e.workspace.Earlier(); earlier != 0 {
		if c := e.workspace.Compare(earlier, now, ""); !c.None() {
			e.note(api.CauseOffline, now, c)
		}
	}
}

// note records changes that belong to no action.
func (e *effects) note(cause string, state uint64, c *api.Changes) {
	if data, err := api.EncodeChangeRecord(api.ChangeRecord{Cause: cause, Changes: c}); err == nil {
		e.journal.Note(state, data)
	}
}

// end returns the changes since begin, nil unless there are some or they are asked for, whether there are some, and the number of the
// present state, 0 where it is not known.
func (e *effects) end(f *effect, asked bool) (c *api.Changes, effect journal.Effect, now uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave(f)
	now, exact := e.workspace.Step()
	e.reached(now)
	known := now != 0 && f.before != 0
	if !asked && !f.early && (!known || now == f.before) {
		return nil, effectOf(true, known && exact || f.reads && !known), now
	}
	c = e.workspace.Compare(f.before, now, "")
	if f.early {
		c.Why = api.WhyEarly
	}
	c.Action = f.n
	effect = effectOf(c.None(), c.Exact)
	none := known && c.None()
	switch {
	case none && !asked:
		return nil, effect, now
	case none && f.n > 0, known && f.n > 0 && !f.overlap && !f.left && !e.workspace.Left(f.begun, f.sure):
		c.By = []uint64{f.n}
		return c, effect, now
	}
	c.During = append([]uint64{}, f.with...)
	if f.n > 0 {
		c.During = append(c.During, f.n)
	}
	slices.Sort(c.During)
	c.During = slices.Compact(c.During)
	return c, effect, now
}

// effectOf is the effect of an action that was seen to change nothing, or something.
func effectOf(none, exact bool) journal.Effect {
	switch {
	case !none:
		return journal.EffectSome
	case exact:
		return journal.EffectNone
	}
	return journal.EffectUnknown
}

// name gives an open effect the number of its action.
func (e *effects) name(f *effect, n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f.n = n
}

// drop removes the effect of an action that was refused and so did nothing. f may be nil.
func (e *effects) drop(f *effect) {
	if f == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave(f)
}

// leave takes an effect out of the open ones. The caller holds mu.
func (e *effects) leave(f *effect) {
	if i := slices.Index(e.open, f); i >= 0 {
		e.open = slices.Delete(e.open, i, i+1)
	}
	e.idle = time.Now()
}

// begin records the beginning of the action, which has its turn, and takes the state before it. The action changes no
// file before this returns, and can be cancelled while it waits for the end of a restore.
func (r *Run) begin(ctx context.Context) error {
	if err := r.takeBefore(ctx); err != nil {
		return err
	}
	r.began.CompareAndSwap(0, time.Now().UnixNano())
	return r.action.Begin() // what ends the action drops its effect
}

// takeBefore takes the state before the action, once.
func (r *Run) takeBefore(ctx context.Context) error {
	e := r.m.effects
	if r.effect != nil {
		return nil
	}
	if r.call.Before != nil {
		r.effect = (*effect)(r.call.Before)
		e.name(r.effect, r.action.N())
		return nil
	}
	r.own.n = r.action.N()
	r.own.reads = r.call.Request.Changes == "" && !api.MayChange(r.call.Request.Action)
	if err := e.begin(ctx, &r.own); err != nil {
		return err
	}
	r.effect = &r.own
	return nil
}

// takeAfter takes the state after the action and records the changes. refused says that the action was refused and did
// nothing.
func (r *Run) takeAfter(ctx context.Context, refused bool) {
	e := r.m.effects
	asked := r.call.Request.Changes
	switch {
	case refused:
		e.drop(r.effect)
		return
	case asked == "" && r.effect == nil:
		if now := r.m.State(); now != 0 {
			r.action.SetEffect(journal.EffectNone, now)
		}
		return
	case e.workspace == nil && asked == "":
		return
	case e.workspace == nil:
		n := r.action.N()
		r.changes = &api.Changes{Action: n, During: []uint64{n}, Why: "offline", Paths: []api.ChangedPath{}}
		return
	}
	if r.effect == nil && r.takeBefore(ctx) != nil { // the action ended without a turn
		r.effect = &r.own // whose states are not known
	}
	c, effect, state := e.end(r.effect, asked != "")
	r.action.SetEffect(effect, state)
	if state == 0 && effect == journal.EffectNone {
		e.wait(r.action)
	}
	if c == nil {
		return
	}
	if r.m.cfg.Changed != nil {
		r.m.cfg.Changed(c)
	}
	recorded := *c
	recorded.Truncated = c.Truncated || asked == api.ChangesDiff && c.Counts.Created+c.Counts.Modified > 0 // lines are too large for it
	if data, err := api.EncodeChangeRecord(api.ChangeRecord{Cause: api.CauseAction, Kind: r.call.Kind, Changes: &recorded}); err == nil {
		r.action.Change(state, data)
	}
	if asked == api.ChangesDiff {
		r.m.AddLines(c, r.effect.before, state)
	}
	r.changes = c
}

// wait has an action that changed nothing get the first state, unless others change files before that is known.
func (e *effects) wait(a *journal.Action) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.first == 0 && len(e.quiet) < maxWith:
		e.quiet = append(e.quiet, a)
	case e.first != 0 && !e.early:
		a.SetEffect(journal.EffectNone, e.first)
	}
}

// AddLines adds the lines of text files to changes between two states.
func (m *Manager) AddLines(c *api.Changes, from, to uint64) {
	switch w := m.effects.workspace; {
	case c.Counts == api.ChangeCounts{}:
	case w == nil, from == 0, to == 0:
		c.Truncated = true
	default:
		w.Diff(c, from, to)
	}
}

// Changes returns the changes by the action, once it ended; nil where they are not known, or where the call did not ask
// and nothing changed.
func (r *Run) Changes() *api.Changes {
	if r.call != nil {
		return r.changes
	}
	record, ok := r.action.Changed()
	if !ok {
		return nil
	}
	decoded, err := api.DecodeChangeRecord(record.Data)
	if err != nil {
		return nil
	}
	return decoded.Changes
}

// Before is the state before work for an action whose turn comes later, see [Manager.BeginBefore].
type Before effect

// BeginBefore takes the state before work for an action that is not known yet, such as the upload of its input. The
// caller passes it on in [Call].Before, and calls [Manager.LeaveBefore] unless the action is carried out. The error is
// the cause of the end of ctx.
func (m *Manager) BeginBefore(ctx context.Context) (*Before, error) {
	f := &effect{}
	if err := m.effects.begin(ctx, f); err != nil {
		return nil, err
	}
	return (*Before)(f), nil
}

// LeaveBefore drops a state that no action will use.
func (m *Manager) LeaveBefore(b *Before) { m.effects.drop((*effect)(b)) }

// Beside does work that is not an action, and records the changes meanwhile under its kind. It returns nil unless
// anything changed or the caller asked. The work waits for a restore, as long as ctx.
func (m *Manager) Beside(ctx context.Context, kind string, asked bool, work func() error) (*api.Changes, error) {
	e := m.effects
	if e.workspace == nil {
		return nil, work()
	}
	f := &effect{}
	if err := e.begin(ctx, f); err != nil {
		return nil, err
	}
	err := work()
	c, _, state := e.end(f, asked)
	if c != nil && (state != 0 && !c.None() || f.early) {
		e.note(kind, state, c)
	}
	return c, err
}

// State returns the number of the present state, 0 where it is not known, and records changes since the last step.
func (m *Manager) State() uint64 {
	e := m.effects
	if e.workspace == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.step()
}

// ChangesBetween returns the net changes between two states, at or below a path unless that is "". The error is an
// *api.Error for a state that is not kept.
func (m *Manager) ChangesBetween(from, to uint64, path string) (*api.Changes, error) {
	for _, n := range []uint64{from, to} {
		if _, err := m.kept(n); err != nil {
			return nil, err
		}
	}
	if from > to {
		return nil, api.BadRequest(fmt.Sprintf("The state %s is before %s", api.StateName(to), api.StateName(from)))
	}
	c := m.effects.workspace.Compare(from, to, path)
	by, all := []uint64{}, true
	for before := uint64(0); ; {
		page := m.cfg.Journal.Changes(before, logPage)
		if len(page) == 0 {
			break
		}
		for _, record := range page {
			r, err := api.DecodeChangeRecord(record.Data)
			if err != nil {
				continue
			}
			begin, _ := api.StateNumber(r.Changes.Before)
			if record.State <= from || begin >= to || r.Changes.None() {
				continue
			}
			if record.N > 0 {
				by = append(by, record.N)
			}
			all = all && record.N > 0 && r.Changes.By != nil && begin >= from && record.State <= to
		}
		if before = page[len(page)-1].Seq; page[len(page)-1].State <= from || len(by) > maxWith {
			break
		}
	}
	slices.Sort(by)
	if by = by[:min(len(by), maxWith)]; all && (len(by) > 0 || c.None()) {
		c.By = by
	} else {
		c.During = by
	}
	return c, nil
}

// logPage is how many records are read from the journal at a time.
const logPage = 100

// StateAfter returns the number of the state at the end of an action; 0 where it is not known.
func (m *Manager) StateAfter(n uint64) uint64 {
	info, _ := m.infoOf(n)
	return info.After
}

// infoOf returns the record of an action; false where none is kept.
func (m *Manager) infoOf(n uint64) (info journal.Info, ok bool) {
	infos := m.cfg.Journal.List(n+1, 1, func(journal.Info) bool { return true })
	if len(infos) == 0 || infos[0].N != n {
		return info, false
	}
	return infos[0], true
}

// ChangeLog returns at most limit entries of the log with smaller numbers than before (0: all), the newest first. next
// is the number of the last entry, 0 at the end of the log.
func (m *Manager) ChangeLog(before uint64, limit int) (entries []api.ChangeEntry, next uint64) {
	entries = []api.ChangeEntry{}
	for len(entries) < limit {
		page := m.cfg.Journal.Changes(before, min(limit-len(entries), logPage))
		if len(page) == 0 {
			return entries, 0
		}
		for _, record := range page {
			before = record.Seq
			if r, err := api.DecodeChangeRecord(record.Data); err == nil && (!r.Changes.None() || r.Changes.Why == api.WhyEarly) {
				e := entry(record, r)
				if record.N > 0 {
					info, _ := m.infoOf(record.N)
					e.Text = info.Text
				}
				entries = append(entries, e)
			}
		}
	}
	return entries, before
}

// entry returns a record of the journal as an entry of the log.
func entry(record journal.Change, r api.ChangeRecord) api.ChangeEntry {
	c := r.Changes
	e := api.ChangeEntry{
		Kind: cmp.Or(r.Kind, r.Cause), Cause: r.Cause, Time: record.Time.UTC(), Before: c.Before, After: c.After, Counts: c.Counts, Exact: c.Exact, Why: c.Why,
	}
	if record.N > 0 {
		e.N = &record.N
	}
	for _, n := range c.Ignored {
		e.Ignored += n
	}
	return e
}
