package platform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// Each makes c a command that does one thing to each of the sandboxes it is
// given, and prints their ids. Those in one of the states, or in any, complete
// the command line.
func (p *Platform) Each(c *cobra.Command, states []sandbox.State, do func(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) error) *cobra.Command {
	c.Args = command.ArgRange(1, command.Many)
	c.ValidArgsFunction = p.CompleteSandboxes(-1, states...)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.OnEach(cmd.Context(), args, func(driver sandbox.Driver, s *sandbox.Sandbox) error {
			if err := do(cmd.Context(), driver, s); err != nil {
				return err
			}
			_, err := fmt.Fprintln(p.Stdout, s.ID)
			return err
		})
	}
	return c
}

// EngineOnly makes c refuse local sandboxes.
func (p *Platform) EngineOnly(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if p.Local {
			return command.ErrEngineOnly
		}
		return run(cmd, args)
	}
	return c
}

// In opens the driver that the flags name, with the options that change sets, and does
// work with it.
func (p *Platform) In(work func(driver sandbox.Driver) error, change ...func(*Options)) (err error) {
	var o Options
	for _, c := range change {
		c(&o)
	}
	driver, err := p.Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	return work(driver)
}

// On does work on the sandbox that ref names. If the sandbox ends meanwhile, its error
// says how.
func (p *Platform) On(
	ctx context.Context, ref string, work func(driver sandbox.Driver, s *sandbox.Sandbox) error,
) error {
	return p.In(func(driver sandbox.Driver) error {
		s, err := p.Find(ctx, driver, ref)
		if err != nil {
			return err
		}
		return Ended(ctx, driver, s, work(driver, s))
	})
}

// OnFiles is On for work on the files of the sandbox.
func (p *Platform) OnFiles(
	ctx context.Context, ref string, work func(files sandbox.Files, s *sandbox.Sandbox) error,
) error {
	return p.On(ctx, ref, func(driver sandbox.Driver, s *sandbox.Sandbox) error {
		return sandbox.With(driver, "reach files", func(files sandbox.Files) error { return work(files, s) })
	})
}

// OnEach does work on each of the sandboxes that refs name. One that fails does
// not keep it from the others.
func (p *Platform) OnEach(
	ctx context.Context, refs []string, work func(driver sandbox.Driver, s *sandbox.Sandbox) error,
) error {
	return p.In(func(driver sandbox.Driver) error {
		var failures []error
		for _, ref := range refs {
			s, err := p.Find(ctx, driver, ref)
			if err == nil {
				err = work(driver, s)
			}
			failures = append(failures, err)
			if ctx.Err() != nil {
				break
			}
		}
		return errors.Join(failures...)
	})
}

// WithClient does work with a client of the sandbox that ref names.
func (p *Platform) WithClient(ctx context.Context, ref string, work func(c *client.Client) error) error {
	return p.On(ctx, ref, func(_ sandbox.Driver, s *sandbox.Sandbox) error {
		c, err := Client(s)
		if err != nil {
			return err
		}
		defer c.Close()
		return work(c)
	})
}

// Client speaks to the sandbox's server. The caller must close it.
func Client(s *sandbox.Sandbox) (*client.Client, error) {
	if !Serves(s) {
		return nil, NotRunning(s)
	}
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	return agent.Client((&patientDial{dial: s.Dial}).to, key)
}

// Serves reports whether the sandbox's server runs, and its files may change.
func Serves(s *sandbox.Sandbox) bool {
	switch s.State {
	case sandbox.Ready, sandbox.Busy, sandbox.Idle, sandbox.Starting, sandbox.Unknown:
		return true
	}
	return false
}

// NotRunning is the refusal of work that needs a running sandbox.
func NotRunning(s *sandbox.Sandbox) error {
	return command.Conflict("sandbox %s is %s; %s", s.ID, s.State, Advice(s))
}

// Advice says how to bring a sandbox to where it takes actions.
func Advice(s *sandbox.Sandbox) string {
	switch s.State {
	case sandbox.Stopped:
		return "start it with 'runtimectl start " + s.ID + "'"
	case sandbox.Paused:
		return "resume it with 'runtimectl resume " + s.ID + "'"
	case sandbox.Unknown:
		return "wait for its node, or give it up with 'runtimectl rm " + s.ID + "'"
	case sandbox.Gone:
		return "remove it with 'runtimectl rm " + s.ID + "'"
	}
	return "'runtimectl prune' removes what was left half done"
}

const (
	// askLimit is how long a server may take to say whether it is busy.
	askLimit = time.Second
	// askMost is how many servers are asked at a time.
	askMost = 16
)

// AskHow turns the state of those that are ready into busy or idle, and the id of their user
// into the one that commands have, where their servers tell.
func AskHow(ctx context.Context, driver sandbox.Driver, all []*sandbox.Sandbox) {
	if reader, ok := driver.(sandbox.KeyReader); ok && len(all) > askMost {
		_ = reader.ReadKeys(ctx, all) // each then reads its own
	}
	slots := make(chan struct{}, askMost)
	var group sync.WaitGroup
	for _, s := range all {
		if s.State != sandbox.Ready || s.Pool != "" {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			key, err := s.Key()
			if err != nil {
				return
			}
			status, err := agent.Agent{}.Status(ctx, s.Dial, key)
			if err != nil {
				return
			}
			s.State = sandbox.Idle
			if status.Busy {
				s.State = sandbox.Busy
			}
			// An account of the image may have another id than the one that was chosen.
			if name, _, named := strings.Cut(s.User, ":"); named && status.UserID != nil {
				s.User = name + ":" + strconv.Itoa(*status.UserID)
			}
		})
	}
	group.Wait()
}

// Problems returns what the server of a sandbox reports that is not as it was asked for, without its terminal's
// control characters; nothing where it does not tell.
func Problems(ctx context.Context, s *sandbox.Sandbox) (trust, dir string) {
	if !slices.Contains([]sandbox.State{sandbox.Ready, sandbox.Idle, sandbox.Busy}, s.State) || s.Pool != "" {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	key, err := s.Key()
	if err != nil {
		return "", ""
	}
	status, err := agent.Agent{}.Status(ctx, s.Dial, key)
	if err != nil {
		return "", ""
	}
	return output.Clean(status.TrustProblem), output.Clean(status.DirProblem)
}
