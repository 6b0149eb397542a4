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
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/local"
)

// byCancel is the value of ended_by for a program whose action was cancelled.
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

// An actionStream shows the output of one action on standard output and standard error, as it comes. It is
// used once. run also sends the action, and connects its command with standard input, with the size of our
// terminal, and with the signals that end this program.
type actionStream struct {
	p       *program
	c       *client.Client
	id      string        // of the action
	feed    bool          // standard input is a program's
	timeout time.Duration // after which a program is cancelled; 0: never
	tty     *ownTerminal  // of a program; nil: it is not on one
	attempt bool          // the action is one, whose effects may be discarded
	open    bool          // and that may be open after it
	silent  bool          // its output is not shown

	session string         // of the action; "" for a program
	text    terminalOutput // of the session
	timer   *time.Timer    // cancels the program; nil: there is none
	begun   chan struct{}  // closed when the program began,
	late    chan struct{}  // after timeout,
	over    chan struct{}  // and when the stream ended
}

func (p *program) newStream(c *client.Client, id string) *actionStream {
	return &actionStream{
		p: p, c: c, id: id, text: terminalOutput{out: p.Stdout},
		begun: make(chan struct{}), late: make(chan struct{}), over: make(chan struct{}),
	}
}

// run sends the action and shows its output. When ctx is over, or timeout has passed, the command is
// interrupted, and its output until its end is shown too. It fails with errLeft where the keys that leave
// were typed, and with errUnreached where the interrupt was not answered.
func (s *actionStream) run(ctx context.Context, request api.Request) (api.Observation, error) {
	s.session = request.Session
	streaming, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)
	defer s.tty.restore()
	reached, interrupted := true, make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		defer fail(nil)
		if !channel.Closed(s.over) {
			reached = s.interrupt(streaming, s.over)
		}
		limit := cancelLimit
		if s.session != "" {
			limit = interruptLimit
		}
		channel.ClosedWithin(s.over, limit) // the end of the command is on its way
	})
	send := s.c.Stream
	if s.attempt {
		send = func(ctx context.Context, r api.Request, output func(api.Output) error) (api.Observation, error) {
			_, o, err := s.c.Attempt(ctx, r, output)
			left, ok := errors.AsType[*client.LeftError](err)
			s.open = err == nil || ok && left.Checkpoint == "attempt/"+s.id // not another one
			return o, err
		}
	}
	o, err := send(streaming, request, func(o api.Output) error {
		if o.PID > 0 && !channel.Closed(s.begun) {
			close(s.begun)
			if err := s.connect(streaming, fail); err != nil {
				return err
			}
		}
		return s.show(o)
	})
	close(s.over)
	if s.timer != nil {
		s.timer.Stop()
	}
	if cause := context.Cause(streaming); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause // the input failed
	}
	if !stop() {
		<-interrupted
	}
	err = errors.Join(err, s.text.flush(), s.tty.disconnect(err != nil))
	switch {
	case errors.Is(err, errLeft):
		return nil, errLeft
	case err != nil && !reached:
		err = fmt.Errorf("%w: %w", errUnreached, err)
	case err != nil && ctx.Err() == nil && s.brokeHere(err):
		s.interrupt(context.WithoutCancel(ctx), nil)
	}
	return o, err
}

// brokeHere reports whether err is that of our own output or input, without which the command must not go on.
func (s *actionStream) brokeHere(err error) bool {
	if s.session != "" {
		return command.ReaderLeft(err)
	}
	return channel.Closed(s.begun) && !errors.Is(err, client.ErrCut)
}

// connect starts the timeout of a program that has begun, and connects it with our terminal and standard
// input, until ctx is over. Where the input breaks, it calls fail.
func (s *actionStream) connect(ctx context.Context, fail context.CancelCauseFunc) error {
	if s.timeout > 0 {
		s.timer = time.AfterFunc(s.timeout, func() {
			close(s.late)
			cancelAction(ctx, s.c, s.id, s.over)
		})
	}
	input := s.p.Stdin
	if s.tty != nil {
		typed, err := s.tty.connect(ctx)
		if err != nil {
			return err
		}
		input = typed
	}
	if s.feed {
		go func() { // it is not waited for: a read cannot be ended, and this program ends
			defer s.tty.restoreInPanic()
			if err := s.c.Feed(ctx, s.id, input); err != nil && ctx.Err() == nil {
				fail(fmt.Errorf("giving the command standard input: %w", err))
			}
		}()
	}
	return nil
}

// hangUpTime is how long a program on a terminal has to end after SIGHUP, before it is cancelled.
const hangUpTime = time.Second

// interrupt ends the command, also one that waits for its turn: in a session by Ctrl-C, and a program by
// cancelling its action. It returns whether the server was reached, which it tries until over is closed.
func (s *actionStream) interrupt(ctx context.Context, over <-chan struct{}) (reached bool) {
	if s.session != "" {
		if !dequeue(ctx, s.c, s.id) {
			pressCtrlC(ctx, s.c, s.session)
		}
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, local.StopTime)
	defer cancel()
	if s.tty != nil && channel.Closed(s.begun) {
		_ = s.c.Signal(ctx, s.id, "SIGHUP") // a shell ignores SIGINT
		// A bash that is interrupted before it has acted on the hang-up may forget it.
		if channel.ClosedWithin(over, hangUpTime) {
			return true
		}
	}
	return cancelAction(ctx, s.c, s.id, over)
}

// follow shows the output of an action that was sent before, from its beginning until its end or that of ctx.
func (s *actionStream) follow(ctx context.Context) (api.Observation, error) {
	o, err := s.c.Follow(ctx, s.id, s.show)
	return o, errors.Join(err, s.text.flush())
}

// show writes output of a session to standard output, and that of a program to the same stream of ours.
func (s *actionStream) show(o api.Output) error {
	if s.silent {
		return nil
	}
	if o.Missed > 0 {
		s.p.Complain(fmt.Sprintf("%d bytes of output are lost: they came faster than they could be shown", o.Missed))
	}
	out := s.p.Stdout
	switch o.Stream {
	case "":
		return s.text.write(o.Data)
	case api.StreamStderr:
		out = s.p.Stderr
	}
	if _, err := out.Write(o.Data); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// cancelAction cancels an action and does not wait for its end. Where no answer comes, or the
// action has not reached the server yet, it asks again until over is closed or ctx ends. It returns whether
// the server was reached.
func cancelAction(ctx context.Context, c *client.Client, id string, over <-chan struct{}) (reached bool) {
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
	return answered && failed.Status != http.StatusNotFound && failed.Status != http.StatusTooManyRequests &&
		failed.Status < http.StatusInternalServerError
}

// terminalOutput turns the output of a terminal into that of the command:
// the terminal put a carriage return before each end of a line.
type terminalOutput struct {
	out  io.Writer
	held bool // a carriage return, until the next character is known
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

// flush writes the bytes that are held back.
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

// pressCtrlC interrupts the command of a session and gives it a moment to end, even if ctx is over.
func pressCtrlC(ctx context.Context, c *client.Client, session string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), local.StopTime)
	defer cancel()
	_, _ = c.Do(ctx, api.Request{ // the command may be over by now
		Action: api.RunAction{Command: "C-c", IsInput: true}, Session: session, Timeout: new(interruptLimit.Seconds()),
	})
}
