package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/docker"
)

func (p *program) start() *cobra.Command {
	c := p.each(&cobra.Command{
		Use:   "start SANDBOX...",
		Short: "Start stopped sandboxes again",
		Long: `Start starts stopped sandboxes, with the files and variables they had, and prints
the id of each as soon as a command ran in its shell. Shells begin anew.`,
		Example: `  runtimectl start build`,
	}, []docker.State{docker.Stopped}, func(ctx context.Context, where place, s *sandbox) error {
		if p.place.local {
			p.warnLocal()
		}
		return where.Start(ctx, s)
	})
	p.addServer(c)
	return c
}
