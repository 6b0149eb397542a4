package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/local"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) stop() *cobra.Command {
	var grace time.Duration
	c := p.Each(&cobra.Command{
		Use:   "stop [flags] SANDBOX...",
		Short: "Stop sandboxes and keep their files",
		Long: `Stop ends what runs in sandboxes, and keeps their files. 'start' starts them
again. It prints the ids of those that are stopped.`,
		Example: `  runtimectl stop build
  runtimectl stop --time 1s build`,
	}, platform.Running, func(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) error {
		return sandbox.Stop(ctx, driver, s, grace)
	})
	command.AddDuration(c.Flags(), &grace, "time", "t", local.StopTime,
		"kill what has not ended by itself after this long")
	return c
}
