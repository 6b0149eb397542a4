package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/random"
)

// ErrMissed reports that a program wrote faster than its output was read, so that a part is not in
// the writers.
var ErrMissed = errors.New("a part of the output is lost")

// Streams are the standard streams of a program. The zero value has no input and discards the
// output.
type Streams struct {
	// Stdin is copied to the program as it reads; nil is an empty input.
	Stdin io.Reader
	// Stdout and Stderr get the output as it arrives, from one goroutine; nil discards it. On a
	// terminal all output is Stdout's.
	Stdout, Stderr io.Writer
}

// Exec runs a program, whose request has an [api.ExecAction], with streams, and returns its end. It
// runs once, as [Client.Stream] does: a broken connection is made again, and each byte of the input and
// the output is passed on once. ctx bounds the wait only, as the timeout of the request does:
// [Client.Cancel] with the key of the request ends the program, and KillAfter of the action bounds its
// life. An error of the streams ends the wait and is returned; the program keeps running. A
// refusal is a *StatusError. Where output was lost the error is ErrMissed, beside the observation.
//
// Exec does not wait for a read of Stdin that is under way when the program ends: the bytes
// that it reads are lost.
func (c *Client) Exec(ctx context.Context, r api.Request, s Streams) (api.ExecObservation, error) {
	program, ok := r.Action.(api.ExecAction)
	if !ok {
		return api.ExecObservation{}, fmt.Errorf("running a program: the action is %T, and not an api.ExecAction", r.Action)
	}
	if s.Stdin != nil {
		program.Stdin = api.StdinStream
	}
	r.Action, r.Key = program, cmp.Or(r.Key, random.UUID7())
	waiting, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	feeds, missed := false, int64(0)
	o, err := c.Stream(waiting, r, func(out api.Output) error {
		if out.PID > 0 && s.Stdin != nil && !feeds {
			feeds = true
			go func() {
				if err := c.Feed(waiting, r.Key, s.Stdin); err != nil && waiting.Err() == nil {
					fail(fmt.Errorf("giving the program standard input: %w", err))
				}
			}()
		}
		missed += out.Missed
		to := s.Stdout
		if out.Stream == api.StreamStderr {
			to = s.Stderr
		}
		if to == nil || len(out.Data) == 0 {
			return nil
		}
		_, err := to.Write(out.Data)
		return err
	})
	if err != nil {
		if ctx.Err() == nil && waiting.Err() != nil {
			err = context.Cause(waiting)
		}
		return api.ExecObservation{}, err
	}
	ended, ok := o.(api.ExecObservation)
	switch {
	case !ok:
		return api.ExecObservation{}, fmt.Errorf("running a program: %s", api.Content(o))
	case missed > 0:
		return ended, fmt.Errorf("%w: %d bytes", ErrMissed, missed)
	}
	return ended, nil
}
