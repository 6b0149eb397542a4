package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"time"
)

// ErrTooSlow reports that an answer had begun and then came so slowly that
// waiting for its end could last forever.
var ErrTooSlow = errors.New("the answer comes too slowly")

// ErrNoAnswer reports that a call which every server answers at once was not
// answered for a minute.
var ErrNoAnswer = errors.New("there is no answer")

// errSilent is the cause that ends a stream without an event, not even the heartbeat that
// servers send every 15 seconds: a connection may break so that no side is told.
var errSilent = errors.New("nothing more comes")

// limits are how long answers may take.
type limits struct {
	quick time.Duration // the whole of a call that every server answers at once
	grace time.Duration // an answer that has begun, and in addition
	rate  float64       // so many bytes a second
	pause time.Duration // before an action is asked for again, at first
	quiet time.Duration // between two events of a stream
}

// A server has the whole answer when it sends the first byte, streams aside. A
// tenth of a mobile connection's rate is enough.
var defaultLimits = limits{quick: time.Minute, grace: 15 * time.Second, rate: 32 << 10, pause: 100 * time.Millisecond, quiet: time.Minute}

// pace cancels the context of a call whose answer comes too slowly. An action
// may run for days before the first byte, and nothing bounds that.
type pace struct {
	limits limits
	cancel context.CancelCauseFunc
	timer  *time.Timer // runs while bytes are due
	quiet  *time.Timer // runs while an event is
	begun  time.Time
	bytes  int64
	hints  int // informational answers
}

// maxHints bounds the informational answers (1xx) before an answer; a server that sends
// one every 15 s for an action of four hours sends fewer.
const maxHints = 1000

// pace returns the context for a call. The caller calls rest when the header is
// there and end at the end.
func (l limits) pace(ctx context.Context) (context.Context, *pace) {
	ctx, cancel := context.WithCancelCause(ctx)
	p := &pace{limits: l, cancel: cancel}
	p.timer = time.AfterFunc(time.Hour, func() { cancel(ErrTooSlow) })
	p.timer.Stop()
	p.quiet = time.AfterFunc(time.Hour, func() { cancel(errSilent) })
	p.quiet.Stop()
	trace := &httptrace.ClientTrace{
		// The header is due from its first byte on, and after an informational one
		// nothing is: its server, or a proxy, says that the action goes on.
		GotFirstResponseByte: func() { p.timer.Reset(l.grace) },
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			p.timer.Stop()
			if p.hints++; p.hints > maxHints {
				cancel(ErrTooSlow)
				return ErrTooSlow
			}
			return nil
		},
	}
	return httptrace.WithClientTrace(ctx, trace), p
}

// begin starts the time of what is due now.
func (p *pace) begin() {
	p.begun, p.bytes = time.Now(), 0
	p.timer.Reset(p.limits.grace)
}

// count gives the bytes that came their time.
func (p *pace) count(n int) {
	p.bytes += int64(n)
	due := p.limits.grace + time.Duration(float64(p.bytes)/p.limits.rate*float64(time.Second))
	p.timer.Reset(time.Until(p.begun.Add(due)))
}

// rest stops the time: nothing is due.
func (p *pace) rest() { p.timer.Stop() }

func (p *pace) end() {
	p.timer.Stop()
	p.quiet.Stop()
	p.cancel(nil)
}

// causeOf is why ctx ended, where this package ended it, or err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrTooSlow) || errors.Is(cause, ErrNoAnswer) {
		return cause
	}
	return err
}

// answer is the body of an answer. Read and Close are for streams and downloads,
// whose bytes are due at no time.
type answer struct {
	body   io.ReadCloser
	path   string
	header http.Header
	ctx    context.Context //nolint:containedctx // of the call; it says why the body ended
	pace   *pace
}

func (a *answer) Read(p []byte) (int, error) { return a.body.Read(p) }

// Close ends the call.
func (a *answer) Close() error {
	err := a.body.Close()
	a.pace.end()
	return err
}

// cause is why the call ended, where this package ended it, or err.
func (a *answer) cause(err error) error { return causeOf(a.ctx, err) }

// whole reads most bytes to the end, and closes the answer.
func (a *answer) whole(most int64) ([]byte, error) {
	defer func() { _ = a.Close() }()
	a.pace.begin()
	data, err := io.ReadAll(io.LimitReader(paced{a}, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", a.path, a.cause(err))
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("reading the answer of %s: %w", a.path, ErrTooLarge)
	}
	return data, nil
}

// paced counts what is read.
type paced struct{ *answer }

func (p paced) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	p.pace.count(n)
	return n, err
}
