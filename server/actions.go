package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/shorten"
)

// call is one action as it came in a request, of any protocol.
type call struct {
	id     string // its identity
	given  bool   // the client knows it
	stays  bool   // it goes on without its caller
	digest [sha256.Size]byte
	kind   string
	req    api.Request
	form   form
	answer api.ToolAnswer // of a tool, without the result of its action
	reader *pace          // of a program's stream; nil for none
	run    func(ctx context.Context, w api.Watch) (result, error)
	unused func()                               // called where run is not; nil for nothing
	status func(h http.Header, body []byte) int // of the answer; nil for 200
}

// result is the end of an action: its encoded answer, and what the journal keeps beside that.
type result struct {
	body    []byte
	outcome api.Outcome
}

// executeAction answers an action with its observation, by the rules of the legacy
// protocol.
func (s *Server) executeAction(w http.ResponseWriter, r *http.Request) error {
	return s.serveAction(w, r, formLegacy)
}

// serveAction answers an action in one piece.
func (s *Server) serveAction(w http.ResponseWriter, r *http.Request, want form) error {
	c, leave, err := s.enterWhole(r, func(begun time.Time) (*call, error) { return s.readAction(r, begun, want) })
	if err != nil {
		return err
	}
	return s.perform(w, r, c, leave)
}

// readAction reads the action in a request, with the defaults of /v1/actions or of the
// legacy protocol.
func (s *Server) readAction(r *http.Request, begun time.Time, want form) (*call, error) {
	body, err := readJSON(r, s.cfg.MaxBody)
	if err != nil {
		return nil, err
	}
	decode := api.DecodeRequest
	if want == formAction {
		decode = api.DecodeNative
	}
	req, err := decode(body)
	if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != http.StatusUnprocessableEntity {
		s.last.Store(int64(begun.Sub(s.started))) // an envelope with an action in it is well-formed
	}
	if err != nil {
		return nil, err
	}
	if want == formAction {
		req = req.Native()
	}
	if a, ok := req.Action.(api.BrowseAction); ok && want == formLegacy {
		a.Reference = true
		req.Action = a
	}
	if run, ok := req.Action.(api.RunAction); ok && run.Hidden && want == formLegacy {
		want = formHidden
	}
	c := &call{req: req, kind: req.Action.Kind(), form: want}
	c.run = s.runAction(c)
	return c, c.identify(r, body)
}

// runAction returns what runs the action of a call, but not that of a tool.
func (s *Server) runAction(c *call) func(ctx context.Context, w api.Watch) (result, error) {
	return func(ctx context.Context, w api.Watch) (result, error) {
		o, err := s.cfg.Executor.Watch(ctx, c.req, w)
		if err != nil {
			return result{}, err
		}
		if c.form == formAction {
			o = sayWhere(o, c.id)
		}
		return ended(o, c.form)
	}
}

// ended encodes an observation in a form that is not of a tool.
func ended(o api.Observation, want form) (r result, err error) {
	r.outcome, _ = api.OutcomeOf(o)
	r.body, err = encode(o, want)
	return r, err
}

// perform answers a call: it runs the action, follows it where it runs already, or
// returns what was recorded. leave gives back the place of the request.
func (s *Server) perform(w http.ResponseWriter, r *http.Request, c *call, leave func()) error {
	wait, async := preferAsync(r)
	if async && c.form != formAction && c.form != formTool {
		async = false
	}
	ran, stop := false, func() {}
	var waits *flight
	defer func() {
		stop()
		s.part(waits)
		if !ran && c.unused != nil {
			c.unused()
		}
	}()
	for {
		f, a, mine, err := s.take(c)
		ran, waits = mine, f
		if err != nil {
			leave()
			return s.untaken(w, c, err)
		}
		replayed := f == nil
		switch {
		case mine && async:
			go s.fly(s.base, f, leave) //nolint:contextcheck // it outlasts its caller; Serve waits for it
		case mine && c.stays:
			s.fly(s.base, f, leave) //nolint:contextcheck // it outlasts its caller
		case mine:
			s.fly(r.Context(), f, leave)
		default:
			leave()
			if f != nil && (!async || wait > 0) {
				joined, err := s.joins()
				if err != nil {
					return err
				}
				stop = joined
			}
		}
		if async && f != nil && !await(r.Context(), f.done, wait) {
			a.Queue()
			s.identified(w, r, a)
			w.Header().Set("Preference-Applied", "respond-async")
			return s.writeRecorded(w, http.StatusAccepted, a, f)
		}
		body, again, err := s.outcome(r.Context(), f, a, c.form)
		if again && !mine {
			stop() // this request may carry it out
			s.part(waits)
			continue // it was refused when it ran for another caller
		}
		if err != nil {
			return err
		}
		s.identified(w, r, a)
		if replayed {
			s.metrics.replays.Inc()
			w.Header().Set(api.ReplayedHeader, "true")
		}
		status := http.StatusOK
		if c.status != nil {
			status = c.status(w.Header(), body)
		}
		httpserver.WriteBody(w, status, httpserver.JSON, body)
		return nil
	}
}

// flight is an action that this process carries out.
type flight struct {
	action    *journal.Action
	call      *call
	turn      api.Turn                            // nil where it waits for no other action
	requests  int                                 // that came with an action and wait for this one; the same lock
	cancelled chan struct{}                       // closed once it is cancelled, with the lock of the flights
	giveUp    context.CancelCauseFunc             // ends its wait; nil before it has begun to; the same lock
	started   chan struct{}                       // closed once its program was started
	program   api.Program                         // holds then
	writer    context.CancelCauseFunc             // ends the request that writes its input; the same lock
	look      atomic.Pointer[func() *api.Waiting] // finds out what its command does; nil for none
	done      chan struct{}                       // closed at its end; the fields below hold then
	result
	err error
}

// flights are the actions under way, by number.
type flights struct {
	mu  sync.Mutex
	all map[uint64]*flight
}

// take finds the action of a call, or makes it; it is mine then. The flight is nil where
// it ended.
func (s *Server) take(c *call) (f *flight, a *journal.Action, mine bool, err error) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	a, mine, err = s.cfg.Journal.Reserve(journal.Intent{
		ID: c.id, Digest: c.digest, Kind: c.kind, Session: c.req.Session, Form: string(c.form), Text: textOf(c.req.Action),
	})
	if err != nil {
		return nil, nil, false, err
	}
	if mine {
		s.board(&flight{action: a, call: c})
	}
	if f = s.flights.all[a.N()]; f != nil {
		f.requests++
	}
	return f, a, mine, nil
}

// board adds a flight, which fly then carries out: the actions of a session take their turns in the
// order of their numbers. The caller holds the lock of the flights.
func (s *Server) board(f *flight) {
	f.cancelled, f.started, f.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.turn = s.cfg.Executor.Turn(f.call.req)
	s.flights.all[f.action.N()] = f
	s.work.Add(1)
}

// part says that a request of take no longer waits for a flight, which may be nil.
func (s *Server) part(f *flight) {
	if f == nil {
		return
	}
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	f.requests--
}

// maxText bounds the text of an action that the journal keeps, in bytes.
const maxText = 1000

// textOf says for people what an action does. What is typed into a program may be a
// password.
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

// fly carries out an action and records its end. ctx bounds it.
func (s *Server) fly(ctx context.Context, f *flight, leave func()) {
	c, begun := f.call, time.Now()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer s.work.Done()
	defer leave()
	s.flights.mu.Lock()
	if f.giveUp = giveUp; channel.Closed(f.cancelled) {
		f.cancel()
	}
	s.flights.mu.Unlock()
	w := f.watch(ctx, c.reader)
	if w.Turn = f.turn; f.turn != nil {
		defer f.turn.Leave()
	}
	w.Operator = c.form == formAction
	f.result, f.err = guarded(ctx, c, w)
	if cause := context.Cause(ctx); channel.EndedBy(ctx, f.err) && (errors.Is(cause, errStopping) || errors.Is(cause, journal.ErrCancelled)) {
		f.err = cause
	}
	s.metrics.action(ctx, c.kind, f.err, time.Since(begun))
	s.record(f, c)
	s.flights.mu.Lock()
	delete(s.flights.all, f.action.N())
	s.flights.mu.Unlock()
	close(f.done)
}

// guarded runs a call, and makes a panic an error.
func guarded(ctx context.Context, c *call, w api.Watch) (r result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return c.run(ctx, w)
}

// watch records how an action goes on, and waits for its reader.
func (f *flight) watch(ctx context.Context, reader *pace) api.Watch {
	a := f.action
	return api.Watch{
		Cancelled: f.cancelled,
		Program: func(p api.Program) {
			f.program = p
			close(f.started)
		},
		Queue: a.Queue,
		Begin: a.Begin,
		Looks: func(look func() *api.Waiting) { f.look.Store(&look) },
		Output: func(o api.Output) {
			stream := journal.Stream(max(slices.Index(streamNames[:], o.Stream), 0)) //nolint:gosec // there are three
			if o.Missed > 0 {
				a.Skip(stream, o.Missed)
			}
			if o.PID != 0 {
				a.Started(stream, o.PID)
			}
			a.Output(stream, o.Data)
			reader.add(ctx, len(o.Data))
		},
	}
}

// cancel keeps an action that waits for its turn from running, and asks one that runs
// to end. The caller holds the lock of the flights.
func (f *flight) cancel() {
	if !channel.Closed(f.cancelled) {
		close(f.cancelled)
	}
	if f.action.Cancel() && f.giveUp != nil {
		f.giveUp(journal.ErrCancelled)
	}
}

// cancel is the cancel of a flight, with the lock.
func (s *Server) cancel(f *flight) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	f.cancel()
}

// record records how an action ended.
func (s *Server) record(f *flight, c *call) {
	_, refused := errors.AsType[*api.Error](f.err)
	switch {
	case f.err == nil:
		f.action.Finish(outcomeNumber(f.outcome), f.body)
	case errors.Is(f.err, journal.ErrCancelled):
		f.body, f.err = composed(c.form, api.StateCancelled, "The action was cancelled before it began, and did not run. Send it with a new identity to run it.")
		f.action.End(journal.Cancelled, f.body)
	case refused:
		f.action.Drop()
	case f.action.Info().State == journal.Reserved:
		f.action.End(journal.Refused, nil)
	case errors.Is(f.err, errStopping):
		// It is unknown when the journal is read again.
	default:
		f.action.End(journal.Unknown, nil)
	}
}

// outcome waits for the end of an action and returns its answer. again says that it was
// refused, and left no record.
func (s *Server) outcome(ctx context.Context, f *flight, a *journal.Action, want form) (body []byte, again bool, err error) {
	if f != nil {
		select {
		case <-f.done:
		default:
			select {
			case <-f.done:
			case <-ctx.Done():
				return nil, false, context.Cause(ctx)
			}
		}
		_, refused := errors.AsType[*api.Error](f.err)
		if f.err != nil || f.body != nil {
			if f.err == nil {
				body, err = inForm(f.body, f.call.form, want, f.outcome)
				return body, false, err
			}
			return nil, refused, f.err
		}
	}
	body, err = s.recorded(a, want)
	return body, false, err
}

// identified says in the header of an answer which action it is.
func (s *Server) identified(w http.ResponseWriter, r *http.Request, a *journal.Action) {
	h := w.Header()
	h.Set(api.ActionHeader, a.ID())
	if a.Info().Lost || s.cfg.Journal.Failing() {
		h.Set(api.LastingHeader, "false")
	}
	if prefix, err := forwardedPrefix(r); err == nil {
		h.Set("Location", prefix+"/v1/actions/"+url.PathEscape(a.ID()))
	}
}

// await waits for a channel to be closed, so long at most.
func await(ctx context.Context, done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return channel.Closed(done)
}
