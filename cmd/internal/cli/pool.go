package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

// refillEvery is how often a pool is looked at: another process takes from it, and
// does not say so.
const refillEvery = time.Second

func (p *program) pool() *cobra.Command {
	var name string
	var warm int
	var keep bool
	c := &cobra.Command{
		Use:   "pool [flags] IMAGE",
		Short: "Keep sandboxes warm",
		Long: `Pool keeps sandboxes warm, created and ready, until it is interrupted.
'create' and 'run' with --pool and the same flags take one in a moment, and one
that is taken is replaced at once. Name, owner and variables come from the command
that takes it. Sandboxes that were made with other flags, or wait for an hour, are
replaced.

At its end it removes those that still wait, unless --keep is given.`,
		Example: `  runtimectl pool --warm 4 --memory 1g debian:bookworm
  runtimectl create --pool default --memory 1g debian:bookworm`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteImage,
	}
	flags := platform.AddSpec(c)
	flags.LeaveOut("name", "key", "owner", "env", "env-file")
	c.Flags().StringVar(&name, "pool", "default", "call the pool `NAME`")
	_ = c.RegisterFlagCompletionFunc("pool", p.CompletePools) // the flag is there
	c.Flags().IntVar(&warm, "warm", 1, "keep `N` sandboxes")
	c.Flags().BoolVar(&keep, "keep", false, "leave those that wait where they are at the end")
	p.AddServer(c)
	p.AddCreation(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		spec, err := flags.Spec(&p.Platform, args[0])
		if err != nil {
			return command.Usage(cmd, err)
		}
		if warm < 1 {
			return command.Usage(cmd, fmt.Errorf("--warm %d: at least one", warm))
		}
		servers, err := p.WithServers()
		if err != nil {
			return err
		}
		logger := slog.New(slog.NewTextHandler(p.Stderr, nil))
		return p.In(func(driver sandbox.Driver) error {
			return p.keepWarm(cmd.Context(), driver, name, spec, warm, keep, logger)
		}, servers, func(o *platform.Options) { o.Logger = logger })
	}
	return p.EngineOnly(c)
}

// keepWarm keeps a pool until ctx is over.
func (p *program) keepWarm(
	ctx context.Context, driver sandbox.Driver, name string, spec sandbox.Spec, warm int, keep bool, logger *slog.Logger,
) error {
	pool, err := sandbox.NewPool(ctx, driver, name, spec, warm, logger)
	if err != nil {
		return err
	}
	// A specification that no sandbox can be made of is reported now, and not again
	// and again.
	if err := pool.Prepare(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(p.Stderr, "note: pool %s is kept warm until it is interrupted: sandboxes of %s, %d at a time\n",
		name, output.Clean(spec.Image), warm)
	pool.Run(ctx, refillEvery)
	if keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), platform.RemoveLimit)
	defer cancel()
	return pool.Drain(ctx)
}
