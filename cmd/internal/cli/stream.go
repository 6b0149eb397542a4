package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/local"
)

// byCancel is what ended_by says of a program whose action was cancelled.
const byCancel = "cancel"

const (
	// cancelLimit is how long a program that is cancelled has to end: two seconds after SIGINT, two
	// after SIGTERM, and some for the answer.
	cancelLimit = 6 * time.Second
	// cancelPause is how long after a request to cancel without an answer the next one is sent.
	cancelPause = 100 * time.Millisecond
	// cutLimit is longer than the client tries to make a broken connection again.
	cutLimit = time.Minute
)

// errUnreached reports that an interrupted program may go on.
var errUnreached = errors.New("the request to cancel the command was not answered")

// streamProgram sends an action and shows each stream of its program on ours. When ctx
// is over, or the time of the options, which closes late, the program is cancelled, and what it
// says to that is shown too. With the options' feed it reads our standard input, and with tty
// it is on a terminal, to which ours passes what is typed.
func (p *program) streamProgram(ctx context.Context, c *client.Client, request api.Request, opts execFlags, tty *ownTerminal, late chan struct{}) (api.Observation, error) {
	streaming, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	cancel := func() { fail(nil) }
	defer cancel()
	defer tty.restore()
	begun, streamed, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	reached := true // the server by the request to cancel the program
	var timer *time.Timer
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		defer cancel()
		if !channel.Closed(streamed) {
			limited, end := context.WithTimeout(streaming, local.StopTime)
			defer end()
			if tty != nil && channel.Closed(begun) {
				_ = c.Signal(limited, request.Key, "SIGHUP") // a shell ignores SIGINT
			}
			reached = cancelProgram(limited, c, request.Key, streamed)
		}
		channel.ClosedWithin(streamed, cancelLimit) // the end of the program is on its way
	})
	input := p.Stdin
	o, err := c.Stream(streaming, request, func(o api.Output) error {
		if o.PID > 0 && !channel.Closed(begun) {
			close(begun)
			if opts.timeout > 0 {
				timer = time.AfterFunc(opts.timeout, func() {
					close(late)
					cancelProgram(streaming, c, request.Key, streamed)
				})
			}
			if tty != nil {
				typed, err := tty.connect(streaming)
				if err != nil {
					return err
				}
				input = typed
			}
			if opts.feed {
				go func() { // it is not waited for: a read cannot be ended, and this program ends
					defer tty.restoreInPanic()
					if err := c.Feed(streaming, request.Key, input); err != nil && streaming.Err() == nil {
						fail(fmt.Errorf("giving the command standard input: %w", err))
					}
				}()
			}
		}
		return p.showProgram(o)
	})
	close(streamed)
	if timer != nil {
		timer.Stop()
	}
	if cause := context.Cause(streaming); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause // the input failed
	}
	if !stop() {
		<-stopped
	}
	err = errors.Join(err, tty.disconnect(err != nil))
	if errors.Is(err, errLeft) {
		return nil, errLeft
	}
	switch {
	case err != nil && !reached:
		err = fmt.Errorf("%w: %w", errUnreached, err)
	case err != nil && channel.Closed(begun) && ctx.Err() == nil && !errors.Is(err, client.ErrCut): // our own output, or input, failed
		limited, end := context.WithTimeout(context.WithoutCancel(ctx), local.StopTime)
		defer end()
		cancelProgram(limited, c, request.Key, nil)
	}
	return o, err
}

// showProgram writes what a program wrote to the same stream of ours.
func (p *program) showProgram(o api.Output) error {
	p.tellMissed(o)
	out := p.Stdout
	if o.Stream == api.StreamStderr {
		out = p.Stderr
	}
	if _, err := out.Write(o.Data); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// cancelProgram cancels the action of a program and does not wait for its end. Where no answer comes, or the
// action has not reached the server yet, it asks again until over is closed or ctx ends. It returns whether
// the server was reached.
func cancelProgram(ctx context.Context, c *client.Client, id string, over <-chan struct{}) (reached bool) {
	for {
		limited, cancel := context.WithTimeout(ctx, local.StopTime)
		_, err := c.Cancel(limited, id, 0)
		cancel()
		if settled(err) {
			return true
		}
		select {
		case <-time.After(cancelPause):
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// settled reports whether a request to cancel an action, which ended with err, is not to be sent again.
func settled(err error) bool {
	if err == nil || errors.Is(err, client.ErrGone) {
		return true
	}
	failed, answered := errors.AsType[*client.StatusError](err)
	return answered && failed.Status != http.StatusNotFound && failed.Status != http.StatusTooManyRequests && failed.Status < http.StatusInternalServerError
}

// stream sends an action and shows its output as it comes. When ctx is over the
// command is interrupted, and what it says to that is shown too.
func (p *program) stream(ctx context.Context, c *client.Client, request api.Request) (api.Observation, error) {
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	pressed, streamed := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(pressed)
		if !dequeue(ctx, c, request.Key) {
			interrupt(ctx, c, request.Session)
		}
		channel.ClosedWithin(streamed, interruptLimit) // the end of the command is on its way
		cancel()
	})
	out := &terminalOutput{out: p.Stdout}
	o, err := c.Stream(streaming, request, func(o api.Output) error {
		p.tellMissed(o)
		return out.write(o.Data)
	})
	close(streamed)
	if !stop() {
		<-pressed
	}
	return o, errors.Join(err, out.flush())
}

// tellMissed says how much output was lost before this.
func (p *program) tellMissed(o api.Output) {
	if o.Missed > 0 {
		p.Complain(fmt.Sprintf("%d bytes of output are lost: they came faster than they could be shown", o.Missed))
	}
}

// terminalOutput turns what came out of a terminal into what the command wrote:
// the terminal put a carriage return before each end of a line.
type terminalOutput struct {
	out  io.Writer
	held bool // a carriage return, until it is known what follows
}

// write writes the next part.
func (t *terminalOutput) write(part []byte) error {
	if len(part) == 0 {
		return nil
	}
	text := part
	if t.held {
		text = append([]byte{'\r'}, part...)
	}
	if t.held = text[len(text)-1] == '\r'; t.held {
		text = text[:len(text)-1]
	}
	if _, err := t.out.Write(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// flush writes what is held back.
func (t *terminalOutput) flush() error {
	if !t.held {
		return nil
	}
	t.held = false
	_, err := t.out.Write([]byte{'\r'})
	return err
}

// dequeue cancels an action that waits for its turn in its session, even if ctx is over, and
// reports whether it did: a Ctrl-C would reach the command of another action.
func dequeue(ctx context.Context, c *client.Client, id string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), local.StopTime)
	defer cancel()
	a, err := c.Action(ctx, id, 0)
	if err != nil || a.State != api.StateReserved {
		return false
	}
	_, err = c.Cancel(ctx, id, 0)
	return err == nil
}

// interruptLimit is how long an interrupted command has to clean up.
const interruptLimit = 2 * time.Second

// interrupt presses Ctrl-C in a session and waits a moment for what comes of
// it, even if ctx is over.
func interrupt(ctx context.Context, c *client.Client, session string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), local.StopTime)
	defer cancel()
	_, _ = c.Do(ctx, api.Request{ // the command may be over by now
		Action: api.RunAction{Command: "C-c", IsInput: true}, Session: session, Timeout: new(interruptLimit.Seconds()),
	})
}
