package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

func (p *program) stop() *cobra.Command {
	var grace time.Duration
	c := p.each(&cobra.Command{
		Use:   "stop [flags] SANDBOX...",
		Short: "Stop sandboxes and keep their files",
		Long: `Stop ends what runs in sandboxes, and keeps their files. 'start' starts them
again. It prints the ids of those that are stopped.`,
		Example: `  runtimectl stop build
  runtimectl stop --time 1s build`,
	}, running, func(ctx context.Context, where place, s *sandbox) error { return where.Stop(ctx, s, grace) })
	c.Flags().DurationVarP(&grace, "time", "t", stopLimit, "kill what has not ended by itself after this long")
	return c
}
