package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/sandbox"
)

func (p *program) start() *cobra.Command {
	c := p.Each(&cobra.Command{
		Use:   "start SANDBOX...",
		Short: "Start stopped sandboxes again",
		Long: `Start starts stopped sandboxes, with the files and variables they had, and prints
the id of each as soon as a command ran in its shell. Shells begin anew.`,
		Example: `  runtimectl start build`,
	}, []sandbox.State{sandbox.Stopped}, func(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) error {
		if p.Local {
			p.WarnLocal()
		}
		return sandbox.Start(ctx, driver, s)
	})
	p.AddServer(c)
	return c
}
