package platform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/sandbox"
)

// endLimit is how long the platform may take to notice that a server ended.
const endLimit = 2 * time.Second

// Ended returns err, or, where err is that of a broken connection because the sandbox
// ended meanwhile, an error that says how it ended, with advice.
func Ended(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox, err error) error {
	if ctx.Err() != nil || !broken(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	for {
		now, getErr := driver.Get(ctx, s.ID)
		switch {
		case errors.Is(getErr, sandbox.ErrNotFound), getErr == nil && now.Instance != s.Instance:
			return fmt.Errorf("%w: sandbox %s was removed meanwhile", command.ErrEnded, s.ID)
		case getErr != nil:
			return err
		case !Serves(now):
			return fmt.Errorf("%w: sandbox %s is %s: %s; %s", command.ErrEnded, s.ID, now.State, howEnded(ctx, driver, now),
				Advice(now)+", or read 'runtimectl logs "+now.ID+"'")
		}
		if channel.Sleep(ctx, endLimit/20) != nil { // it serves, or the platform has not noticed yet
			return err
		}
	}
}

// broken reports whether an error is that of a connection.
func broken(err error) bool {
	for _, one := range []error{io.EOF, io.ErrUnexpectedEOF, client.ErrNoAnswer} {
		if errors.Is(err, one) {
			return true
		}
	}
	return errors.As(err, new(*net.OpError)) || errors.As(err, new(*url.Error))
}

const (
	killedStatus  = 128 + 9
	stoppedStatus = 128 + 15
)

// howEnded says why a sandbox does not run, as far as its platform knows.
func howEnded(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) string {
	if over := s.Overdue(time.Now()); over != "" {
		return over
	}
	if s.State == sandbox.Gone && s.Detail != "" {
		return s.Detail
	}
	inspector, ok := driver.(sandbox.Inspector)
	if !ok || s.State != sandbox.Stopped {
		return "its server does not answer"
	}
	d, err := inspector.Inspect(ctx, s)
	switch {
	case err != nil || d.Ended.IsZero():
		return "its server ended, and how is not recorded"
	case d.OutOfMemory:
		return fmt.Sprintf("it reached its memory limit of %s", output.Size(d.Memory))
	case d.ExitCode == 0 || d.ExitCode == stoppedStatus:
		return "it was stopped, or reached its limit of time or idleness"
	case d.ExitCode == killedStatus:
		return "its server was killed (exit code 137)"
	}
	return fmt.Sprintf("its server ended with exit code %d", d.ExitCode)
}
