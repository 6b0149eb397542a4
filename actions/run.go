package actions

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
)

// Run is one action, which may be under way or recorded. Its methods may be called concurrently.
type Run struct {
	m      *Manager
	action *journal.Action
	call   *Call // nil where the action is not under way, as are the fields below but done
	turn   api.Turn

	// The lock of the manager guards these.
	waiters int                     // callers of Start that did not leave
	readers int                     // callers of Join that did not leave
	working int                     // work of api.Watch.Hold that has not ended
	release func()                  // that of Do, where work goes on; otherwise nil
	giveUp  context.CancelCauseFunc // ends the wait for the executor; nil before it begins
	writer  context.CancelCauseFunc // ends the call that writes its input
	taken   int64                   // bytes of the memory; changed by Do, and once it ended
	ended   bool                    // Do is about to return
	begun   time.Time               // Do was called
	began   atomic.Int64            // Unix nanoseconds of the turn, which begun may be long before

	cancelled chan struct{}                       // closed once it is cancelled
	started   chan struct{}                       // closed once its program was started
	program   api.Program                         // holds then
	look      atomic.Pointer[func() *api.Waiting] // finds out the activity of its command; nil for none
	denied    atomic.Pointer[tally]               // by the network policy; nil without any
	done      chan struct{}                       // closed at its end; the fields below hold then
	answer    Answer
	err       error
	changes   *api.Changes // nil where none are known

	own    effect  // its fields are for effects
	effect *effect // own, or that of Call.Before; nil before it begins
}

// closed is a channel that is closed: of actions that ended.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// ID returns the id of the action.
func (r *Run) ID() string { return r.action.ID() }

// Info returns the record of the action.
func (r *Run) Info() journal.Info { return r.action.Info() }

// UnderWay reports whether this process carries the action out.
func (r *Run) UnderWay() bool { return !channel.Closed(r.done) }

// Leave tells the manager that a caller of [Manager.Start] no longer waits.
func (r *Run) Leave() { r.leave(&r.waiters) }

// Queue records that the action waits for its turn.
func (r *Run) Queue() { r.action.Queue() }

// Wait waits at most limit for the end of the action, and reports whether it ended.
func (r *Run) Wait(ctx context.Context, limit time.Duration) bool {
	select {
	case <-r.done:
	case <-time.After(limit):
	case <-ctx.Done():
	}
	return channel.Closed(r.done)
}

// Waiting returns the present activity of the command; nil where it is not known.
func (r *Run) Waiting() *api.Waiting {
	if look := r.look.Load(); look != nil && r.UnderWay() && r.action.Info().State == journal.Running {
		return (*look)()
	}
	return nil
}

// watch records the progress of the action, and waits for the reader of its output.
func (r *Run) watch(ctx context.Context) api.Watch {
	a := r.action
	return api.Watch{
		Turn:      r.turn,
		Operator:  r.call.Operator,
		Cancelled: r.cancelled,
		Program: func(p api.Program) {
			r.program = p
			close(r.started)
		},
		Queue: a.Queue,
		Begin: func() error { return r.begin(ctx) },
		Take:  func(bytes int64) error { return r.take(ctx, bytes) },
		Hold:  r.hold,
		Looks: func(look func() *api.Waiting) { r.look.Store(&look) },
		Output: func(o api.Output) {
			stream := journal.Stream(max(slices.Index(streamNames[:], o.Stream), 0)) //nolint:gosec // there are three
			if o.Missed > 0 {
				a.Skip(stream, o.Missed)
			}
			if o.PID != 0 {
				a.Started(stream, o.PID)
			}
			a.Output(stream, o.Data)
			r.call.Flow.add(ctx, len(o.Data))
		},
	}
}

// cancel is Manager.Cancel. The caller holds the lock of the manager.
func (r *Run) cancel() {
	if r.call == nil {
		return
	}
	if !channel.Closed(r.cancelled) {
		close(r.cancelled)
	}
	if r.action.Cancel() && r.giveUp != nil {
		r.giveUp(journal.ErrCancelled)
	}
}

// record records the end of the action.
func (r *Run) record() {
	_, refused := errors.AsType[*api.Error](r.err)
	switch {
	case r.err == nil:
		r.action.Finish(outcomeNumber(r.answer.Outcome), r.answer.Body)
	case errors.Is(r.err, journal.ErrCancelled):
		r.answer = Answer{Form: r.call.Form, Outcome: api.OutcomeNotStarted}
		r.answer.Body, r.err = r.call.Encode(unresolved(r.action, journal.Cancelled))
		r.action.End(journal.Cancelled, r.answer.Body)
	case refused:
		r.action.Drop()
	case r.action.Info().State == journal.Reserved:
		r.action.End(journal.Refused, nil)
	case errors.Is(r.err, ErrStopping):
		// The result is unknown when the journal is read again.
	default:
		r.action.End(journal.Unknown, nil)
	}
}

// Answer is the answer of an action that ended.
type Answer struct {
	// Body is the result of [Call.Encode] for the first caller, in Form. Where it is nil,
	// Observation is the answer: it says why there is no result.
	Body        []byte
	Form        string
	Observation api.Observation
	// Outcome is the outcome in Body; "" where the record is older than outcomes.
	Outcome api.Outcome
}

// Answer waits for the end of the action and returns its answer. An *api.Error says that it
// was refused, and left no record. Other errors are [journal.ErrForgotten], [ErrStopping], the
// cause of the end of ctx, and that of an executor that broke.
func (r *Run) Answer(ctx context.Context) (Answer, error) {
	if err := r.Await(ctx); err != nil {
		return Answer{}, err
	}
	if r.err != nil || r.answer.Body != nil {
		return r.answer, r.err
	}
	return r.Recorded()
}

// Await waits for the end of the action. The error is the cause of the end of ctx.
func (r *Run) Await(ctx context.Context) error {
	select {
	case <-r.done: // also where ctx is over
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Size is how many bytes the answer has that is read from the journal; 0 where the action was
// under way, and its answer is at hand.
func (r *Run) Size() int64 {
	if r.call != nil {
		return 0
	}
	return r.action.Info().Result
}

// Recorded returns the recorded answer of an action that ended; the error is [journal.ErrForgotten]. It differs
// from [Run.Answer] for the callers that waited for an action that broke or was refused.
func (r *Run) Recorded() (Answer, error) {
	body, err := r.action.Result()
	info := r.action.Info()
	switch {
	case err != nil:
		return Answer{}, err
	case body == nil:
		return Answer{Observation: unresolved(r.action, info.State)}, nil
	}
	answer := Answer{Body: body, Form: info.Form, Outcome: OutcomeOf(info)}
	if info.State == journal.Done && info.Outcome == 0 {
		answer.Outcome = ""
	}
	return answer, nil
}

// unresolved is the answer of an action that ended without a result.
func unresolved(a *journal.Action, state journal.State) api.Observation {
	o := api.ErrorObservation{Outcome: api.OutcomeUnknown}
	switch state {
	case journal.Unknown:
		o.Content = "the result is unknown: the action began, and the server did not see its end. It does not run again; send it with a new id to run it again. What it printed:\n" + printed(a)
	case journal.Refused:
		o.Content = "The action did not run: the server ended, or its client left, before its turn came. Send it with a new id to run it."
	case journal.Cancelled:
		o.Content = "The action was cancelled before it began, and did not run. Send it with a new id to run it."
	case journal.Reserved, journal.Running, journal.Done:
		o.Content = "The action ended (" + state.String() + "), and its result was not kept. It does not run again."
	}
	if state == journal.Refused || state == journal.Cancelled {
		o.Outcome, o.Code = api.OutcomeNotStarted, state.String()
	}
	return o
}

// maxPrinted bounds the output in the answer of an action whose result is unknown, in bytes.
const maxPrinted = 1 << 20

// printed returns the kept output of an action as text.
func printed(a *journal.Action) string {
	var b strings.Builder
	cursor := a.Follow(0)
	defer cursor.Close()
	buf := make([]byte, journal.ChunkSize)
	for end := int64(0); ; {
		out, more, err := cursor.Next(buf)
		switch {
		case err != nil || more != nil:
			return strings.ToValidUTF8(strings.ReplaceAll(b.String(), "\r\n", "\n"), "\uFFFD")
		case b.Len()+len(out.Data) > maxPrinted:
			fmt.Fprintf(&b, "\n[... more is at /v1/actions/%s/output?offset=%d ...]", url.PathEscape(a.ID()), out.Offset)
			return strings.ToValidUTF8(strings.ReplaceAll(b.String(), "\r\n", "\n"), "\uFFFD")
		case out.Offset > end:
			fmt.Fprintf(&b, "\n[... %d bytes are not kept ...]\n", out.Offset-end)
		}
		end = out.Offset + int64(len(out.Data))
		_, _ = b.Write(out.Data)
	}
}

// OutcomeOf returns the outcome of an action, as far as the journal knows it.
func OutcomeOf(info journal.Info) api.Outcome {
	switch info.State {
	case journal.Reserved, journal.Running:
		return api.OutcomeRunning
	case journal.Cancelled, journal.Refused:
		return api.OutcomeNotStarted
	case journal.Done:
		if n := int(info.Outcome); n > 0 && n <= len(api.Outcomes) {
			return api.Outcomes[n-1]
		}
	case journal.Unknown:
	}
	return api.OutcomeUnknown
}

// outcomeNumber is the number of an outcome in the journal.
func outcomeNumber(outcome api.Outcome) uint8 {
	return uint8(slices.Index(api.Outcomes[:], outcome) + 1) //nolint:gosec // there are six
}
