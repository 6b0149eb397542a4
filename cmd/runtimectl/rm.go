package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (p *program) rm() *cobra.Command {
	c := &cobra.Command{
		Use:   "rm SANDBOX...",
		Short: "Remove sandboxes and what is in them",
		Long: `Rm ends what runs in sandboxes and removes them with all files in them, whatever
state they are in. Mounted directories stay.

It prints what it removed.`,
		Example: `  runtimectl rm build
  runtimectl rm $(runtimectl ls -q)`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: p.completeSandboxes(-1),
	}
	p.addPlace(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.onEach(cmd.Context(), args, func(where place, s *sandbox) error {
			if err := where.Delete(cmd.Context(), s); err != nil {
				return err
			}
			_, err := fmt.Fprintln(p.stdout, s.ID)
			return err
		})
	}
	return c
}
