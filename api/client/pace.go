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

// ErrTooSlow reports an answer that began and then fell below the minimum rate, so that
// waiting for its end could last forever.
var ErrTooSlow = errors.New("the answer comes too slowly")

// ErrNoAnswer reports that a request which every server answers at once got no answer
// for a minute.
var ErrNoAnswer = errors.New("there is no answer")

// errSilent ends a stream in which no event arrives, not even the heartbeat that servers
// send every 15 seconds: a connection may break without either side noticing.
var errSilent = errors.New("nothing more comes")

// limits bound the time of answers.
type limits struct {
	quick time.Duration // a whole request that every server answers at once
	grace time.Duration // from the first byte of an answer to its end, plus its length / rate
	rate  float64       // bytes per second
	pause time.Duration // before an action is sent again for the first time
	quiet time.Duration // between two events of a stream
}

// A server has the whole answer when it sends the first byte, streams aside. A
// tenth of a mobile connection's rate is enough.
var defaultLimits = limits{quick: time.Minute, grace: 15 * time.Second, rate: 32 << 10, pause: 100 * time.Millisecond, quiet: time.Minute}

// pace cancels the context of a request whose answer is too slow. It does not bound the
// time before the first byte: an action may run for days.
type pace struct {
	limits limits
	cancel context.CancelCauseFunc
	timer  *time.Timer // runs while bytes are due
	quiet  *time.Timer // runs while an event is due
	begun  time.Time
	bytes  int64
	hints  int // informational answers
}

// maxHints bounds the informational answers (1xx) before an answer; a server that sends
// one every 15 s for an action of four hours sends fewer.
const maxHints = 1000

// pace returns the context for a request. The caller calls rest after the header and end
// after the body.
func (l limits) pace(ctx context.Context) (context.Context, *pace) {
	ctx, cancel := context.WithCancelCause(ctx)
	p := &pace{limits: l, cancel: cancel}
	p.timer = time.AfterFunc(time.Hour, func() { cancel(ErrTooSlow) })
	p.timer.Stop()
	p.quiet = time.AfterFunc(time.Hour, func() { cancel(errSilent) })
	p.quiet.Stop()
	trace := &httptrace.ClientTrace{
		// The header is due from its first byte on. After an informational answer nothing
		// is due: the server, or a proxy, says that the action is still running.
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

// begin starts the time limit of a body or a line.
func (p *pace) begin() {
	p.begun, p.bytes = time.Now(), 0
	p.timer.Reset(p.limits.grace)
}

// count extends the time limit by the time that n bytes may take.
func (p *pace) count(n int) {
	p.bytes += int64(n)
	due := p.limits.grace + time.Duration(float64(p.bytes)/p.limits.rate*float64(time.Second))
	p.timer.Reset(time.Until(p.begun.Add(due)))
}

// rest stops the time limit: nothing is due.
func (p *pace) rest() { p.timer.Stop() }

func (p *pace) end() {
	p.timer.Stop()
	p.quiet.Stop()
	p.cancel(nil)
}

// causeOf returns the cause of ctx if this package cancelled it, or err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrTooSlow) || errors.Is(cause, ErrNoAnswer) {
		return cause
	}
	return err
}

// answer is the body of an answer. Read and Close are for streams and downloads, whose
// bytes have no time limit.
type answer struct {
	io.ReadCloser

	path   string
	header http.Header
	ctx    context.Context //nolint:containedctx // of the call; it says why the body ended
	pace   *pace
}

// Close ends the call.
func (a *answer) Close() error {
	err := a.ReadCloser.Close()
	a.pace.end()
	return err
}

// cause returns the reason if this package ended the request, or err.
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

// paced counts the bytes that are read.
type paced struct{ *answer }

func (p paced) Read(b []byte) (int, error) {
	n, err := p.answer.Read(b)
	p.pace.count(n)
	return n, err
}
