package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/runtimectl/internal/command"
	"github.com/actiond/actiond/cmd/runtimectl/internal/output"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/local"
)

// byCancel is what ended_by says of a program whose action was cancelled.
const byCancel = "cancel"

// cancelLimit is how long a program that is cancelled has to end: two seconds after SIGINT, two
// after SIGTERM, and some for the answer.
const cancelLimit = 6 * time.Second

// performProgram runs a command as a program without a persistent shell, and returns
// its exit code as a *exitError unless that is 0.
func (p *program) performProgram(ctx context.Context, c *client.Client, name string, words []string, opts execFlags) error {
	a := api.ExecAction{Argv: words, Cwd: api.Directory(opts.workDir), Env: opts.variables, User: opts.user}
	if opts.feed {
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
		request.Timeout = new((opts.timeout + cancelLimit).Seconds()) // where the request to cancel it is lost
	}
	request.Action = a
	o, err := p.streamProgram(ctx, c, request, opts, tty, late)
	if errors.Is(err, errLeft) {
		_, _ = fmt.Fprintf(p.Stderr, "left; the command goes on: 'runtimectl follow %s %s'\n", name, request.Key)
		return nil
	}
	if err != nil {
		if ctx.Err() != nil {
			return &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted"}
		}
		if errors.Is(err, client.ErrCut) {
			return fmt.Errorf("%w\nThe command may go on: 'runtimectl follow %s %s' shows what it prints, 'runtimectl cancel %[2]s %[3]s' ends it", err, name, request.Key)
		}
		return err
	}
	ended, ok := o.(api.ExecObservation)
	if !ok {
		return fmt.Errorf("the command was not run: %s", output.Clean(output.Content(o)))
	}
	why := fmt.Sprintf("the command was not done after %v", opts.timeout)
	if channel.Closed(late) && ended.EndedBy != nil && *ended.EndedBy == byCancel {
		return &command.ExitError{Code: command.ExitTimeout, Why: why}
	}
	return programEnd(ended, why)
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
	var timer *time.Timer
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		defer cancel()
		if !channel.Closed(streamed) {
			if tty != nil && channel.Closed(begun) {
				_ = c.Signal(streaming, request.Key, "SIGHUP") // a shell ignores SIGINT
			}
			cancelProgram(ctx, c, request.Key)
		}
		select { // the end of the program is on its way
		case <-streamed:
		case <-time.After(cancelLimit):
		}
	})
	input := p.Stdin
	o, err := c.Stream(streaming, request, func(o api.Output) error {
		if o.PID > 0 && !channel.Closed(begun) {
			close(begun)
			if opts.timeout > 0 {
				timer = time.AfterFunc(opts.timeout, func() {
					close(late)
					cancelProgram(ctx, c, request.Key)
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
	if err != nil && channel.Closed(begun) && ctx.Err() == nil && !errors.Is(err, client.ErrCut) {
		cancelProgram(ctx, c, request.Key) // our own output, or input, failed
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

// cancelProgram cancels the action of a program, even if ctx is over, and does not wait for its end.
func cancelProgram(ctx context.Context, c *client.Client, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), local.StopTime)
	defer cancel()
	for {
		_, err := c.Cancel(ctx, id, 0)
		if _, answered := errors.AsType[*client.StatusError](err); err == nil || answered || errors.Is(err, client.ErrGone) {
			return
		}
		select {
		case <-time.After(cancelPause):
		case <-ctx.Done():
			return
		}
	}
}

// cancelPause is how long after a broken connection the next one is tried.
const cancelPause = 100 * time.Millisecond

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
