package actions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/tail"
)

const (
	// bisectOutput is how much of the end of a test's output an event has, in bytes.
	bisectOutput = 4 << 10
	// Exit codes of a test with a meaning, see api.BisectRequest.
	exitSkip          = 125
	exitNotExecutable = 126
	exitNotFound      = 127
)

// candidate is a state that a bisect may find.
type candidate struct {
	state uint64
	n     uint64 // the action that ended with it; 0 for none
	skip  bool   // it cannot be tested
}

// Bisect is a bisect that has begun. [Bisect.Run] must be called, once.
type Bisect struct {
	m      *Manager
	req    api.BisectRequest
	pin    api.Pin // the present
	free   func()
	states []candidate // in order; the last one is known to be bad
	send   func(api.BisectEvent) error
	tests  int
}

// NewBisect begins a bisect: until the end of Run no action begins. The error is an *api.Error if the caller is wrong.
func (m *Manager) NewBisect(ctx context.Context, req api.BisectRequest) (b *Bisect, err error) {
	if err := m.canUndo(ctx); err != nil {
		return nil, err
	}
	free, err := m.effects.hold(ctx, holdBisect, false)
	if err != nil {
		return nil, err
	}
	b = &Bisect{m: m, req: req, free: free}
	if err := b.begin(ctx); err != nil {
		free()
		return nil, err
	}
	return b, nil
}

// begin finds the states, and keeps the present.
func (b *Bisect) begin(ctx context.Context) error {
	good, err := b.m.resolveMember("good", b.req.Good)
	if err != nil {
		return err
	}
	bad, err := b.m.resolveMember("bad", b.req.Bad)
	if err != nil {
		return err
	}
	if good >= bad {
		return api.Invalid(fmt.Sprintf("body.good: must be before bad, and %s is not before %s", api.StateName(good), api.StateName(bad)))
	}
	b.states = b.m.candidates(good, bad)
	return b.keepPresent(ctx)
}

// keepPresent keeps the present, and waits for its contents.
func (b *Bisect) keepPresent(ctx context.Context) error {
	e := b.m.effects
	e.mu.Lock()
	now, _ := e.workspace.Verify()
	b.pin = api.Pin{Name: api.BisectPin, State: e.stepped(now), Time: time.Now(), Expires: time.Now().AddDate(1, 0, 0)}
	e.mu.Unlock()
	if b.pin.State == 0 {
		return errNoPresent()
	}
	b.m.capture(ctx, captureTime) // nothing that is missing is lost, see test
	return e.workspace.Pin(b.pin)
}

// resolveMember is Resolve for a member of a body.
func (m *Manager) resolveMember(name string, ref api.StateRef) (uint64, error) {
	n, err := m.Resolve(ref)
	if refusal, ok := errors.AsType[*api.Error](err); ok && refusal.Errors != "" {
		err = api.Invalid("body." + name + ": " + refusal.Errors)
	}
	return n, err
}

// candidates returns the states of the log after good until bad. Those that are not kept cannot be tested.
func (m *Manager) candidates(good, bad uint64) []candidate {
	list := []candidate{{state: bad}}
	for before := uint64(0); ; {
		page := m.cfg.Journal.Changes(before, logPage)
		for _, record := range page {
			before = record.Seq
			r, err := api.DecodeChangeRecord(record.Data)
			if err != nil || r.Changes.None() || record.State <= good || record.State > bad {
				continue
			}
			kept, _ := m.effects.workspace.Known(record.State)
			list = append(list, candidate{state: record.State, n: record.N, skip: !kept})
		}
		if len(page) == 0 || page[len(page)-1].State <= good {
			break
		}
	}
	// Of two records of one state the action's comes first.
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(b.n, a.n)) })
	return slices.CompactFunc(list, func(a, b candidate) bool { return a.state == b.state })
}

// Run searches, calls send with each event, one at a time, and restores the present at the end, whatever happens. The
// end of ctx and an error of send end it.
func (b *Bisect) Run(ctx context.Context, send func(api.BisectEvent) error) {
	defer b.free()
	b.send = send
	last := b.search(ctx)
	last.Tests = b.tests
	if problem := b.restorePresent(); problem != "" {
		last.Detail = strings.TrimPrefix(last.Detail+"; "+problem, "; ")
	}
	_ = send(last) // there may be no reader
}

// search returns the last event. A panic becomes one.
func (b *Bisect) search(ctx context.Context) (last api.BisectEvent) {
	defer func() {
		if v := recover(); v != nil {
			last = broken(fmt.Errorf("panic: %v", v))
		}
	}()
	good, bad := -1, len(b.states)-1
	for {
		i, ok := b.next(good, bad)
		if !ok {
			break
		}
		c := &b.states[i]
		testing := api.BisectEvent{Event: api.BisectTesting, State: api.StateName(c.state), N: c.n, Left: bits.Len(uint(bad - good - 1))}
		if err := b.send(testing); err != nil {
			return broken(err)
		}
		tested, err := b.test(ctx, *c)
		if err != nil {
			return broken(err)
		}
		switch tested.Verdict {
		case api.VerdictGood:
			good = i
		case api.VerdictBad:
			bad = i
		default:
			c.skip = true
		}
		tested.Left = bits.Len(uint(bad - good - 1))
		if err := b.send(tested); err != nil {
			return broken(err)
		}
	}
	found := b.states[bad]
	last = api.BisectEvent{Event: api.BisectResult, State: api.StateName(found.state), N: found.n}
	for _, c := range b.states[good+1 : bad] {
		last.Skipped = append(last.Skipped, api.StateName(c.state))
	}
	return last
}

// next returns the state to test between two others: that in the middle, or the nearest one that can be tested.
func (b *Bisect) next(good, bad int) (i int, ok bool) {
	middle := good + (bad-good)/2
	for off := range bad - good {
		for _, i := range []int{middle - off, middle + off} {
			if i > good && i < bad && !b.states[i].skip {
				return i, true
			}
		}
	}
	return 0, false
}

// broken is the last event of a bisect without a result.
func broken(err error) api.BisectEvent {
	return api.BisectEvent{Event: api.BisectError, Detail: err.Error()}
}

// test restores a state and runs the command. The error ends the bisect.
func (b *Bisect) test(ctx context.Context, c candidate) (tested api.BisectEvent, err error) {
	tested = api.BisectEvent{Event: api.BisectTested, State: api.StateName(c.state), N: c.n}
	if ctx.Err() != nil {
		return tested, context.Cause(ctx)
	}
	if err := b.wouldLose(c.state); err != nil {
		return tested, err
	}
	restored, err := b.m.effects.workspace.Restore(c.state, api.RestoreOptions{})
	if err != nil {
		return tested, fmt.Errorf("restoring %s: %w", tested.State, err)
	}
	tested.Detail = notRestored(restored)
	b.tests++
	output := tail.New(bisectOutput)
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { close(cancelled) })
	defer stop()
	o, err := b.m.cfg.Executor.Watch(context.WithoutCancel(ctx), api.Request{ // the next restore waits for its end
		Action: api.ExecAction{Command: b.req.Command, KillAfter: b.req.Timeout},
	}, api.Watch{
		Cancelled: cancelled,
		Output:    func(out api.Output) { _, _ = output.Write(out.Data) },
	})
	if ctx.Err() != nil {
		return tested, context.Cause(ctx)
	}
	if err != nil {
		return tested, fmt.Errorf("running the command: %w", err)
	}
	program, ok := o.(api.ExecObservation)
	if !ok {
		return tested, fmt.Errorf("running the command: %s", api.Content(o))
	}
	text, _ := output.Kept()
	tested.Output, tested.ExitCode = strings.ToValidUTF8(text, "\uFFFD"), program.ExitCode
	tested.Verdict, err = b.verdict(program)
	if err != nil {
		output := "it printed nothing"
		if tested.Output != "" {
			output = "its output ends with: " + tested.Output
		}
		err = fmt.Errorf("%w in %s; %s", err, tested.State, output)
	}
	return tested, err
}

// wouldLose returns an error if a restore would lose a content of the present for good, such as of a large file. A file
// that a test wrote may be lost.
func (b *Bisect) wouldLose(state uint64) error {
	w := b.m.effects.workspace
	r, err := w.Restore(state, api.RestoreOptions{DryRun: true})
	if err != nil {
		return fmt.Errorf("restoring %s: %w", api.StateName(state), err)
	}
	if len(r.Lost) == 0 {
		return nil
	}
	now, _ := api.StateNumber(r.Before)
	written := map[string]bool{}
	for _, change := range w.Compare(b.pin.State, now, "").Paths {
		path, _ := change.Names()
		written[path] = true
	}
	for _, path := range r.Lost {
		if !written[string(path)] {
			return fmt.Errorf("restoring %s would lose %s, whose content is not kept", api.StateName(state), api.Describe(string(path)))
		}
	}
	return nil
}

// verdict judges the state of a test by its end.
func (b *Bisect) verdict(o api.ExecObservation) (string, error) {
	switch {
	case o.EndedBy != nil && *o.EndedBy == "kill_after":
		return "", fmt.Errorf("the command took longer than %s seconds", api.FormatSeconds(b.req.Timeout))
	case o.EndedBy != nil:
		return "", fmt.Errorf("the command was ended by %s", *o.EndedBy)
	case o.ExitCode == nil: // by a signal
		return api.VerdictBad, nil
	}
	switch *o.ExitCode {
	case 0:
		return api.VerdictGood, nil
	case exitSkip:
		return api.VerdictSkip, nil
	case exitNotExecutable, exitNotFound:
		return "", fmt.Errorf("the command cannot be run: exit code %d", *o.ExitCode)
	}
	return api.VerdictBad, nil
}

// restorePresent restores the state before, and returns the paths that it could not bring back.
func (b *Bisect) restorePresent() (problem string) {
	defer func() {
		if v := recover(); v != nil {
			problem = fmt.Sprintf("the present (%s) could not be restored: %v", api.StateName(b.pin.State), v)
		}
	}()
	if err := b.m.backTo(b.pin); err != nil {
		return err.Error()
	}
	return ""
}

// backTo ends a bisect: it restores the present of before, and records the remaining differences. If that fails or
// refuses paths, the present becomes a checkpoint, and the error says so. If the process ends meanwhile, the next one
// recovers. The caller holds the workspace.
func (m *Manager) backTo(present api.Pin) error {
	e := m.effects
	r, err := e.workspace.Restore(present.State, api.RestoreOptions{})
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("the next server restores what there was before the bisect: %w", err)
	}
	if err == nil {
		e.mu.Lock()
		if after, _ := api.StateNumber(r.After); after != 0 {
			c := e.workspace.Compare(present.State, after, "")
			c.During = []uint64{}
			e.record(api.CauseBisect, after, c)
			e.reached(after)
		}
		e.mu.Unlock()
		if problem := notRestored(r); problem != "" {
			err = errors.New(problem)
		}
	}
	if err != nil {
		kept := present
		kept.Name = "before-bisect-" + present.Time.UTC().Format("20060102-150405")
		err = fmt.Errorf("restoring what there was before the bisect, which is the checkpoint %s: %w", kept.Name, errors.Join(err, e.workspace.Pin(kept)))
	}
	return errors.Join(err, e.workspace.Unpin(api.BisectPin))
}

// notRestored describes the refused paths of a restore; "" without any.
func notRestored(r *api.Restored) string {
	if r.RefusedCount == 0 || len(r.Refused) == 0 {
		return ""
	}
	first := r.Refused[0]
	return fmt.Sprintf("%d paths are not what they were, such as %s: %s", r.RefusedCount, api.Describe(cmp.Or(first.Path, string(first.PathBase64))), first.Why)
}

// Recovers reports whether the workspace is not yet in the state before a bisect that the end of a process broke off.
func (m *Manager) Recovers() bool { return m.broken.Load() }

// Recover restores the state before such a bisect. Actions wait for it.
func (m *Manager) Recover(ctx context.Context) error {
	if !m.broken.Load() {
		return nil
	}
	free, err := m.effects.hold(ctx, holdRestore, true)
	if err != nil {
		return err
	}
	defer m.broken.Store(false)
	defer free()
	m.effects.workspace.Await(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p, ok := m.pin(api.BisectPin)
	if !ok {
		return nil
	}
	return m.backTo(p)
}
