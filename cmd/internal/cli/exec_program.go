package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
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

// performProgram runs a command as a program without a persistent shell, and returns
// its exit code as a *exitError unless that is 0.
func (p *program) performProgram(ctx context.Context, c *client.Client, name string, words []string, opts execFlags) error {
	a := api.ExecAction{Argv: words, Cwd: api.Directory(opts.workDir), Env: opts.variables, User: opts.user}
	if opts.feed || opts.tty { // a terminal is its input too, also where nothing is typed
		a.Stdin = api.StdinStream
	}
	request := api.Request{Key: random.UUID7()}
	var tty *ownTerminal
	if opts.tty {
		tty = p.newTerminal(ctx, c, request.Key, opts.feed)
		a.TTY, a.Env = new(tty.size.tty()), withTERM(a.Env)
	}
	if opts.detach {
		a.KillAfter = opts.timeout.Seconds()
		request.Action = a
		return p.startAction(ctx, c, request)
	}
	late := make(chan struct{})
	if opts.timeout > 0 {
		request.Timeout = new((opts.timeout + cancelLimit + cutLimit).Seconds()) // where it cannot be killed
	}
	request.Action = a
	o, err := p.streamProgram(ctx, c, request, opts, tty, late)
	switch {
	case errors.Is(err, errLeft) && opts.ephemeral:
		_, _ = fmt.Fprintln(p.Stderr, "left; the command ends with its sandbox")
		return nil
	case errors.Is(err, errLeft):
		_, _ = fmt.Fprintf(p.Stderr, "left; the command goes on: 'runtimectl action follow %s %s'\n", name, request.Key)
		return nil
	}
	ended, ok := o.(api.ExecObservation)
	switch {
	case errors.Is(err, errUnreached) && !opts.ephemeral:
		return &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted; the command may go on: " + followHint(name, request.Key)}
	case !ok && ctx.Err() != nil: // it may have been cancelled before its start
		return &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted"}
	case errors.Is(err, client.ErrCut) && !opts.ephemeral:
		return fmt.Errorf("%w\nThe command may go on: %s", err, followHint(name, request.Key))
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("the command was not run: %s", output.Clean(output.Content(o)))
	}
	why := fmt.Sprintf("the command was not done after %v", opts.timeout)
	if channel.Closed(late) && ended.EndedBy != nil && *ended.EndedBy == byCancel {
		return &command.ExitError{Code: command.ExitTimeout, Why: why}
	}
	return programEnd(ended, why)
}

// followHint says how to go on with an action whose connection is lost.
func followHint(name, id string) string {
	return fmt.Sprintf("'runtimectl action follow %[1]s %[2]s' shows what it prints, 'runtimectl action cancel %[1]s %[2]s' ends it", name, id)
}

// programEnd returns how a program ended, as the end of exec; late is said of one that did not.
func programEnd(ended api.ExecObservation, late string) error {
	switch {
	case ended.PID == nil && ended.ExitCode != nil:
		return &command.ExitError{Code: *ended.ExitCode, Why: output.Clean(ended.Content)}
	case ended.ExitCode != nil && *ended.ExitCode == 0:
		return nil
	case ended.ExitCode != nil:
		return &command.ExitError{Code: *ended.ExitCode, Said: ended.Content}
	case ended.Signal != nil:
		return &command.ExitError{Code: signalBase + signalNumbers[*ended.Signal]}
	}
	return &command.ExitError{Code: command.ExitTimeout, Why: late}
}

// signalBase is added to the number of the signal that ended a command, as in a shell.
const signalBase = 128

// signalNumbers are Linux's, by their names: this program may run on another system.
var signalNumbers = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9,
	"SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15, "SIGSTKFLT": 16,
	"SIGXCPU": 24, "SIGXFSZ": 25, "SIGVTALRM": 26, "SIGPROF": 27, "SIGIO": 29, "SIGPWR": 30, "SIGSYS": 31,
}

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

// helper runs a program of ours that is done at once.
func helper(ctx context.Context, c *client.Client, words ...string) error {
	ctx, cancel := context.WithTimeout(ctx, local.StopTime)
	defer cancel()
	o, err := c.Do(ctx, api.Request{Action: api.ExecAction{Argv: words}})
	if err != nil {
		return err
	}
	if ended, ok := o.(api.ExecObservation); !ok || ended.ExitCode == nil || *ended.ExitCode != 0 {
		return errors.New(output.Clean(output.Content(o)))
	}
	return nil
}
