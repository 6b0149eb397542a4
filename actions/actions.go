// Package actions is the life of an action between the protocol that decodes it and the
// executor that carries it out. It knows no HTTP.
//
// A protocol makes a [Call] of a request. [Manager.Start] reserves the id of the call in the
// journal, so that an action runs at most once, or finds the action that came with this id
// before. [Manager.Do] carries the action out and records its end. A [Run] is waited for,
// followed, cancelled and given input, from the start of its action until the journal forgets it.
package actions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/shorten"
)

// ErrStopping is the cause that ends the wait for actions when the process shuts down.
var ErrStopping = errors.New("the server is shutting down")

// Executor carries out actions. Its methods may be called concurrently.
type Executor interface {
	// Watch runs one action and reports its progress. An *api.Error refuses it, any
	// other error says that the executor broke. The context bounds the wait and not the
	// action: when it ends, Watch returns its error and the command goes on.
	Watch(ctx context.Context, req api.Request, w api.Watch) (api.Observation, error)
	// Turn queues an action in its session; nil if it need not wait.
	Turn(req api.Request) api.Turn
}

// Config has the parts that a Manager uses. All fields but Workspace and Changed are required.
type Config struct {
	Journal  *journal.Journal
	Executor Executor
	// Workspace is nil where no directory is followed.
	Workspace Workspace
	// Memory bounds the memory of large actions in flight.
	Memory *Memory
	// Changed is called with the changes by an action, also with none if these are inexact; nil does nothing.
	Changed func(c *api.Changes)
	// Ended is called once for each action that ended, with the error of [Call.Do] and the
	// time that it took, before the end is recorded.
	Ended func(ctx context.Context, c *Call, err error, took time.Duration)
	// Collect is called at the end of an action that can use the network, with the time of its
	// beginning, and calls [Manager.Denied] for denials that are not known yet; nil does nothing.
	Collect func(begun time.Time)
}

// Call is an action as a client sent it, in any protocol.
type Call struct {
	// ID identifies the action, and Digest the request: the same id with another
	// digest is refused.
	ID     string
	Digest [sha256.Size]byte
	// Kind is the name of the action in the journal and in metrics.
	Kind string
	// Request has the action, nil where Do needs none, and its session.
	Request api.Request
	// Form names the encoding of the answer. The journal keeps it beside the answer.
	Form string
	// Detached says that the action goes on without its caller.
	Detached bool
	// Operator reports whether an operator sent the request, see [api.Watch].
	Operator bool
	// Held is how many bytes of the Memory the request has, until the release of Do.
	Held int64
	// Before is the state before the action if its work began before its turn; nil for most.
	Before *Before
	// Flow is the back-pressure of the caller that reads the output; nil for none.
	Flow *Flow
	// Do carries out the action; nil means by the executor.
	Do func(ctx context.Context, w api.Watch) (api.Observation, error)
	// Encode encodes an answer in Form.
	Encode func(api.Observation) ([]byte, error)
}

// Manager has the actions of one sandbox. Its methods may be called concurrently. It owns
// no goroutine.
type Manager struct {
	cfg  Config
	base context.Context //nolint:containedctx // of the detached actions
	stop context.CancelCauseFunc
	work sync.WaitGroup // actions under way

	effects *effects
	broken  atomic.Bool // a restore was broken off, see Recover
	pinning sync.Mutex  // held between a look at the pins and a change of them

	mu   sync.Mutex
	runs map[uint64]*Run // under way, by number
}

// New returns a Manager without actions under way.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, runs: map[uint64]*Run{}, effects: newEffects(cfg.Workspace, cfg.Journal)}
	m.broken.Store(cfg.Workspace != nil && cfg.Workspace.Unfinished())
	m.base, m.stop = context.WithCancelCause(context.Background())
	return m
}

// Arrival is when a call arrived in the life of its action.
type Arrival int

const (
	// First is the arrival of the call that must carry the action out.
	First Arrival = iota
	// During is an arrival while the action is under way.
	During
	// After is an arrival after the end.
	After
)

// Start reserves the action of a call, which must be carried out by one call of [Manager.Do]
// then; or it returns the action that came with the same id before. The actions of a
// session take their turns in the order of their numbers. The caller calls [Run.Leave] once
// it no longer waits. The error is [journal.ErrOther] or [journal.ErrForgotten].
func (m *Manager) Start(c *Call) (run *Run, arrival Arrival, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, first, err := m.cfg.Journal.Reserve(journal.Intent{
		ID: c.ID, Digest: c.Digest, Kind: c.Kind, Session: c.Request.Session, Form: c.Form, Text: textOf(c.Request.Action),
	})
	switch {
	case err != nil:
		return nil, After, err
	case first:
		run = &Run{
			m: m, action: a, call: c, turn: m.cfg.Executor.Turn(c.Request),
			cancelled: make(chan struct{}), started: make(chan struct{}), done: make(chan struct{}),
		}
		m.runs[a.N()] = run
		m.work.Add(1)
	default:
		if run, arrival = m.find(a), During; run.call == nil {
			arrival = After
		}
	}
	run.waiters++
	return run, arrival, nil
}

// find returns the run of an action. The caller holds mu.
func (m *Manager) find(a *journal.Action) *Run {
	if run := m.runs[a.N()]; run != nil {
		return run
	}
	return &Run{m: m, action: a, done: closed}
}

// Find returns the action with an id, nil where there never was one. The error is
// [journal.ErrForgotten].
func (m *Manager) Find(id string) (*Run, error) {
	run, leave, err := m.Join(id)
	leave()
	return run, err
}

// Join is Find for a caller that gets the answer of an action under way: it holds the memory of
// that until leave.
func (m *Manager) Join(id string) (run *Run, leave func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, err := m.cfg.Journal.Lookup(id)
	if a == nil || err != nil {
		return nil, func() {}, err
	}
	run = m.find(a)
	run.readers++
	return run, func() { run.leave(&run.readers) }, nil
}

// List returns at most limit actions with smaller numbers than before (0: all), the newest
// first, of a session and in a state; an empty name means any.
func (m *Manager) List(before uint64, limit int, session, state string) []journal.Info {
	return m.cfg.Journal.List(before, limit, func(info journal.Info) bool {
		return (state == "" || info.State.String() == state) && (session == "" || SessionOf(info) == session)
	})
}

// Programs returns the actions that started a program for a session and answer in a form: those that go on first, then
// the ended ones, each the newest first.
func (m *Manager) Programs(session, form string) iter.Seq[*Run] {
	kind := api.ExecAction{}.Kind()
	infos := m.cfg.Journal.List(0, math.MaxInt, func(info journal.Info) bool {
		return info.Kind == kind && info.Form == form && SessionOf(info) == cmp.Or(session, "default")
	})
	return func(yield func(*Run) bool) {
		for _, ended := range []bool{false, true} {
			for _, info := range infos {
				if info.State.Ended() != ended {
					continue
				}
				if run, err := m.Find(info.ID); err == nil && run != nil && !yield(run) { // nil: forgotten meanwhile
					return
				}
			}
		}
	}
}

// SessionOf returns the name of the session of an action.
func SessionOf(info journal.Info) string {
	if info.Session == "" {
		return "default"
	}
	return info.Session
}

// Do carries out the action of a run and returns after its end. ctx bounds the wait for an
// action that is not detached. release is called before waiting callers learn of the end, or once
// the work of [api.Watch.Hold] has ended.
func (m *Manager) Do(ctx context.Context, run *Run, release func()) { //nolint:contextcheck // a detached action outlasts its caller
	c, begun := run.call, time.Now()
	if c.Detached {
		ctx = m.base
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer m.work.Done()
	m.mu.Lock()
	run.begun = begun
	if run.giveUp = giveUp; channel.Closed(run.cancelled) {
		run.cancel()
	}
	m.mu.Unlock()
	run.answer, run.err = run.guarded(ctx)
	if cause := context.Cause(ctx); channel.EndedBy(ctx, run.err) && (errors.Is(cause, ErrStopping) || errors.Is(cause, journal.ErrCancelled)) {
		run.err = cause
	}
	_, refused := errors.AsType[*api.Error](run.err)
	run.takeAfter(ctx, refused || errors.Is(run.err, journal.ErrCancelled))
	m.cfg.Ended(ctx, c, run.err, time.Since(begun))
	run.record()
	m.mu.Lock()
	delete(m.runs, run.action.N())
	if run.ended = true; !run.held() {
		run.keep(0)
	}
	if run.working > 0 {
		run.release, release = release, func() {} // the work has the request, too
	}
	m.mu.Unlock()
	if run.turn != nil {
		run.turn.Leave()
	}
	release()
	close(run.done)
}

// guarded carries out a call, and makes a panic an error.
func (r *Run) guarded(ctx context.Context) (answer Answer, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	var o api.Observation
	if c, w := r.call, r.watch(ctx); c.Do != nil {
		o, err = c.Do(ctx, w)
	} else {
		o, err = r.m.cfg.Executor.Watch(ctx, c.Request, w)
	}
	if err != nil {
		return Answer{}, err
	}
	if r.m.cfg.Collect != nil && slices.Contains(networkKinds, r.call.Kind) {
		r.m.cfg.Collect(r.begun)
	}
	if denied := r.denied.Load(); denied != nil {
		o = api.WithNetwork(o, denied.network())
	}
	if api.NetworkOf(o) != nil {
		r.action.Deny()
	}
	r.takeFree(api.AnswerSize(o))
	answer.Form = r.call.Form
	answer.Outcome, _ = api.OutcomeOf(o)
	answer.Body, err = r.call.Encode(o)
	return answer, err
}

// Cancel keeps an action that waits for its turn from running, and asks one that runs to end.
// It has no effect on one that ended.
func (m *Manager) Cancel(run *Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	run.cancel()
}

// Stop ends the wait of detached actions with [ErrStopping].
func (m *Manager) Stop() { m.stop(ErrStopping) }

// Settle waits at most limit until all actions are recorded.
func (m *Manager) Settle(limit time.Duration) {
	settled := make(chan struct{})
	go func() { // ends with the last action, which may be stuck in the executor
		m.work.Wait()
		close(settled)
	}()
	channel.ClosedWithin(settled, limit)
}

// maxText bounds the text of an action that the journal keeps, in bytes.
const maxText = 1000

// textOf describes an action for people. Input of a program is left out, which may be a password.
func textOf(action api.Action) string {
	text := ""
	switch a := action.(type) {
	case api.RunAction:
		if !a.IsInput {
			text = a.Command
		}
	case api.ExecAction:
		text = cmp.Or(a.Command, strings.Join(a.Argv, " "))
	case api.IPythonAction:
		text = a.Code
	case api.ReadAction:
		text = a.Path
	case api.WriteAction:
		text = a.Path
	case api.EditAction:
		text = a.Path
	case api.GlobAction:
		text = a.Pattern
	case api.GrepAction:
		text = a.Pattern
	case api.ListAction:
		text = a.Path
	case api.BrowseAction:
		text = a.URL
	case api.BrowseInteractiveAction:
		text = a.BrowserActions
	case api.MCPAction:
		text = a.Name
	case api.InvalidAction:
	}
	return shorten.Text(text, maxText)
}
