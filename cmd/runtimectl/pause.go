package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/docker"
)

func (p *program) pause() *cobra.Command {
	return p.each(&cobra.Command{
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
	})
}

func (p *program) resume() *cobra.Command {
	return p.each(&cobra.Command{
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
	})
}

// ofContainers is a place as an engine, for what only containers can do.
func ofContainers(where place) (*docker.Host, error) {
	engine, ok := where.(enginePlace)
	if !ok {
		return nil, fmt.Errorf("%w: only containers can do that: not with --local", docker.ErrInvalid)
	}
	return engine.Host, nil
}
