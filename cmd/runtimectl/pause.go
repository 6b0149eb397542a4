package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/docker"
)

func (p *program) pause() *cobra.Command {
	return p.engineOnly(p.each(&cobra.Command{
		Use:   "pause SANDBOX...",
		Short: "Freeze sandboxes in memory",
		Long: `Pause freezes all processes of sandboxes. They keep their memory and get no
processor time; actions are refused until 'resume'. Time limits go on. It prints
the ids of those that are paused.`,
		Example: `  runtimectl pause build`,
	}, running, func(ctx context.Context, where place, s *sandbox) error {
		engine, err := ofContainers(where)
		if err != nil {
			return err
		}
		return engine.Pause(ctx, s.Sandbox)
	}))
}

func (p *program) resume() *cobra.Command {
	return p.engineOnly(p.each(&cobra.Command{
		Use:     "resume SANDBOX...",
		Aliases: []string{"unpause"},
		Short:   "Let paused sandboxes go on",
		Long: `Resume lets the processes of paused sandboxes go on where they were frozen. It
prints the ids of those that go on.`,
		Example: `  runtimectl resume build`,
	}, []docker.State{docker.Paused}, func(ctx context.Context, where place, s *sandbox) error {
		engine, err := ofContainers(where)
		if err != nil {
			return err
		}
		return engine.Resume(ctx, s.Sandbox)
	}))
}

// engineOnly makes c refuse --local, which its help does not offer.
func (p *program) engineOnly(c *cobra.Command) *cobra.Command {
	_ = c.Flags().MarkHidden("local") // the flag is there
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if p.place.local {
			return errEngineOnly
		}
		return run(cmd, args)
	}
	return c
}

// ofContainers is a place as an engine, for what only containers can do.
func ofContainers(where place) (*docker.Host, error) {
	engine, ok := where.(enginePlace)
	if !ok {
		return nil, errEngineOnly
	}
	return engine.Host, nil
}
