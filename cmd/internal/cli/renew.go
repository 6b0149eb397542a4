package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) renew() *cobra.Command {
	var ttl time.Duration
	var never bool
	c := p.Each(&cobra.Command{
		Use:   "renew (--ttl DURATION | --never) SANDBOX...",
		Short: "Give sandboxes another deadline",
		Long: `Renew lets sandboxes live for a time from now on, or without an end. It prints
the ids of those that have a new deadline.`,
		Example: `  runtimectl renew --ttl 2h build
  runtimectl renew --never build`,
	}, nil, func(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) error {
		var deadline time.Time
		if !never {
			deadline = time.Now().Add(ttl)
		}
		return sandbox.Renew(ctx, driver, s, deadline)
	})
	command.AddDuration(c.Flags(), &ttl, "ttl", "", 0, "end them this long after now, such as 2h")
	c.Flags().BoolVar(&never, "never", false, "take the deadline away")
	c.PreRunE = func(*cobra.Command, []string) error {
		if never == (ttl != 0) || ttl < 0 {
			return errors.New("give either --ttl with a time to come, or --never")
		}
		return nil
	}
	return c
}
