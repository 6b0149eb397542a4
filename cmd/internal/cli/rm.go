package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/sandbox"
)

func (p *program) rm() *cobra.Command {
	return p.Each(&cobra.Command{
		Use:   "rm SANDBOX...",
		Short: "Remove sandboxes and what is in them",
		Long: `Rm ends what runs in sandboxes and removes them with all files in them, whatever
state they are in. Mounted directories stay. It prints the ids of those that it
removed.`,
		Example: `  runtimectl rm build
  runtimectl rm $(runtimectl ls -q)`,
	}, nil, func(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) error {
		return driver.Delete(ctx, s)
	})
}
