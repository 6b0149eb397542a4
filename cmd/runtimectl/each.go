package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/sandbox"
)

// each makes c a command that does one thing to each of the sandboxes it is
// given, and prints their ids. Those in one of the states, or in any, complete
// the command line.
func (p *program) each(c *cobra.Command, states []sandbox.State, do func(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) error) *cobra.Command {
	c.Args = takes(1, many)
	c.ValidArgsFunction = p.completeSandboxes(-1, states...)
	p.addPlace(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.onEach(cmd.Context(), args, func(driver sandbox.Driver, s *sandbox.Sandbox) error {
			if err := do(cmd.Context(), driver, s); err != nil {
				return err
			}
			_, err := fmt.Fprintln(p.stdout, s.ID)
			return err
		})
	}
	return c
}

// engineOnly makes c refuse local sandboxes.
func (p *program) engineOnly(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if p.place.local {
			return errEngineOnly
		}
		return run(cmd, args)
	}
	return c
}

// in opens the driver that the flags name and does work with it. change says what
// else the command asks of it.
func (p *program) in(work func(driver sandbox.Driver) error, change ...func(*options)) (err error) {
	var o options
	for _, c := range change {
		c(&o)
	}
	driver, err := p.open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	return work(driver)
}

// on does work on the sandbox that ref names.
func (p *program) on(ctx context.Context, ref string, work func(driver sandbox.Driver, s *sandbox.Sandbox) error) error {
	return p.in(func(driver sandbox.Driver) error {
		s, err := driver.Get(ctx, ref)
		if err != nil {
			return err
		}
		return work(driver, s)
	})
}

// onFiles is on for work on the files of the sandbox.
func (p *program) onFiles(ctx context.Context, ref string, work func(files sandbox.Files, s *sandbox.Sandbox) error) error {
	return p.on(ctx, ref, func(driver sandbox.Driver, s *sandbox.Sandbox) error {
		files, err := sandbox.Needs[sandbox.Files](driver, "reach files")
		if err != nil {
			return err
		}
		return work(files, s)
	})
}

// onEach does work on each of the sandboxes that refs name. One that fails does
// not keep it from the others.
func (p *program) onEach(ctx context.Context, refs []string, work func(driver sandbox.Driver, s *sandbox.Sandbox) error) error {
	return p.in(func(driver sandbox.Driver) error {
		var failures []error
		for _, ref := range refs {
			s, err := driver.Get(ctx, ref)
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

// asked lets ask use a client of a sandbox.
func (p *program) asked(cmd *cobra.Command, ref string, ask func(c *client.Client) error) error {
	return p.on(cmd.Context(), ref, func(_ sandbox.Driver, s *sandbox.Sandbox) error {
		c, err := clientOf(s)
		if err != nil {
			return err
		}
		defer c.Close()
		return ask(c)
	})
}

// clientOf speaks to the sandbox's server. The caller must close it.
func clientOf(s *sandbox.Sandbox) (*client.Client, error) {
	if !serves(s) {
		return nil, notRunning(s)
	}
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	return clientOver(s.Dial, key)
}

// serves tells whether the sandbox's server runs, and its files may change.
func serves(s *sandbox.Sandbox) bool {
	switch s.State {
	case sandbox.Ready, sandbox.Busy, sandbox.Idle, sandbox.Starting:
		return true
	}
	return false
}

// notRunning is why something that needs a running sandbox cannot be done.
func notRunning(s *sandbox.Sandbox) error {
	return fmt.Errorf("%w: sandbox %s is %s; %s", errConflict, s.ID, s.State, advice(s))
}

// advice says how to bring a sandbox to where it takes actions.
func advice(s *sandbox.Sandbox) string {
	switch s.State {
	case sandbox.Stopped:
		return "start it with 'runtimectl start " + s.ID + "'"
	case sandbox.Paused:
		return "resume it with 'runtimectl resume " + s.ID + "'"
	}
	return "'runtimectl prune' removes what was left half done"
}

const (
	// askLimit is how long a server may take to say whether it is busy.
	askLimit = time.Second
	// askMost is how many servers are asked at a time.
	askMost = 16
)

// askHow turns the state of those that are ready into busy or idle, where their
// servers tell.
func askHow(ctx context.Context, all []*sandbox.Sandbox) {
	places := make(chan struct{}, askMost)
	var group sync.WaitGroup
	for _, s := range all {
		if s.State != sandbox.Ready || s.Pool != "" {
			continue
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			key, err := s.Key()
			if err != nil {
				return
			}
			switch status, err := (agent{}).Status(ctx, s.Dial, key); {
			case err != nil:
			case status.Busy:
				s.State = sandbox.Busy
			default:
				s.State = sandbox.Idle
			}
		})
	}
	group.Wait()
}
