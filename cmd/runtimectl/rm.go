package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/sandbox"
)

func (p *program) rm() *cobra.Command {
	return p.each(&cobra.Command{
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
