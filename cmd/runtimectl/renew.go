package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

func (p *program) renew() *cobra.Command {
	var ttl time.Duration
	var never bool
	c := p.each(&cobra.Command{
		Use:   "renew (--ttl DURATION | --never) SANDBOX...",
		Short: "Give sandboxes another deadline",
		Long: `Renew lets sandboxes live for a time from now on, or without an end. It prints
the ids of those that have a new deadline.`,
		Example: `  runtimectl renew --ttl 2h build
  runtimectl renew --never build`,
	}, nil, func(ctx context.Context, where place, s *sandbox) error {
		var deadline time.Time
		if !never {
			deadline = time.Now().Add(ttl)
		}
		if slices.Contains(running, s.State) { // its own switch has another deadline too
			if err := tellDeadline(ctx, s, ttl); err != nil {
				return err
			}
		}
		return where.Renew(ctx, s, deadline)
	})
	c.Flags().DurationVar(&ttl, "ttl", 0, "end them this long after now, such as 2h")
	c.Flags().BoolVar(&never, "never", false, "take the deadline away")
	c.PreRunE = func(*cobra.Command, []string) error {
		if never == (ttl != 0) || ttl < 0 {
			return errors.New("give either --ttl with a time to come, or --never")
		}
		return nil
	}
	return c
}

// tellDeadline tells the sandbox's server to end after ttl, or never if that is
// zero.
func tellDeadline(ctx context.Context, s *sandbox, ttl time.Duration) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Renew(ctx, ttl)
	return err
}
