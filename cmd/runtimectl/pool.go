package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/docker"
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
		Long: `Pool keeps sandboxes warm until it is interrupted: created, ready, and nobody's.
'create' and 'run' with --pool and the same flags take one in a moment, and one
that is taken is replaced at once. Name, owner and variables are those of whoever
takes it. Sandboxes that were made with other flags, or wait for an hour, are
replaced.

At its end it removes those that still wait, unless --keep is given.`,
		Example: `  runtimectl pool --warm 4 --memory 1g debian:bookworm
  runtimectl create --pool default --memory 1g debian:bookworm`,
		Args:              takes(1, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := addSpec(c)
	flags.leaveOut("name", "key", "owner", "env", "env-file")
	c.Flags().StringVar(&name, "pool", "default", "call the pool `NAME`")
	c.Flags().IntVar(&warm, "warm", 1, "keep `N` sandboxes")
	c.Flags().BoolVar(&keep, "keep", false, "leave those that wait where they are at the end")
	p.addPlace(c)
	p.addServer(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		spec, err := flags.spec(p, args[0])
		if err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		if warm < 1 {
			return &usageError{cmd.CommandPath(), fmt.Errorf("--warm %d: at least one", warm)}
		}
		servers, err := p.withServers()
		if err != nil {
			return err
		}
		logger := slog.New(slog.NewTextHandler(p.stderr, nil))
		return p.in(func(where place) error {
			engine, err := ofContainers(where)
			if err != nil {
				return err
			}
			return p.keepWarm(cmd.Context(), engine, name, spec, warm, keep)
		}, servers, func(c *docker.Config) { c.Logger = logger })
	}
	return p.engineOnly(c)
}

// keepWarm keeps a pool until ctx is over.
func (p *program) keepWarm(ctx context.Context, engine *docker.Host, name string, spec docker.Spec, warm int, keep bool) error {
	pool, err := engine.Pool(name, spec, warm)
	if err != nil {
		return err
	}
	// What no sandbox can be made of is told now, and not again and again.
	if err := engine.Prepare(ctx, spec); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(p.stderr, "note: pool %s is kept warm until it is interrupted: sandboxes of %s, %d at a time\n", name, clean(spec.Image), warm)
	pool.Run(ctx, refillEvery)
	if keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	defer cancel()
	return pool.Drain(ctx)
}

// take makes a sandbox, or takes it from the warm pool where one is named.
func (p *program) take(ctx context.Context, where place, spec docker.Spec, pool string) (*sandbox, error) {
	if err := nameIsFree(ctx, where, spec); err != nil {
		return nil, err
	}
	if pool == "" {
		return where.Create(ctx, spec)
	}
	engine, err := ofContainers(where)
	if err != nil {
		return nil, err
	}
	from, err := engine.Pool(pool, spec, 0)
	if err != nil {
		return nil, err
	}
	s, warm, err := from.Claim(ctx, spec)
	if err != nil {
		return nil, err
	}
	if !warm && spec.Key == "" { // with a key it may have been there
		_, _ = fmt.Fprintf(p.stderr, "note: none of these flags waits in pool %s: this one was made\n", pool)
	}
	return ofEngine(s), nil
}

// nameIsFree refuses a second sandbox of a name: neither could be called by it
// any more. With a key the sandbox may be there already, and is the one meant.
func nameIsFree(ctx context.Context, where place, spec docker.Spec) error {
	if spec.Name == "" || spec.Key != "" {
		return nil
	}
	all, err := where.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Name == spec.Name {
			return fmt.Errorf("%w: sandbox %s has the name %s; remove it, or take another name", errConflict, s.ID, spec.Name)
		}
	}
	return nil
}
