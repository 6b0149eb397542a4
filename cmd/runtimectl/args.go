package main

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"
)

// usageError is a command line that cannot be understood.
type usageError struct {
	command string // whose help explains it, such as "runtimectl demo"
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// many is no bound on words.
const many = math.MaxInt

// takes refuses fewer words than least and more than most.
func takes(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("an argument is missing: %s", c.UseLine())
		case len(args) > most:
			return fmt.Errorf("unexpected argument %q: %s", args[most], c.UseLine())
		}
		return nil
	}
}

// noArgs refuses words after a command that takes none.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: there are only flags", args[0])
	}
	return nil
}

// unlessOver is the error of something that goes on until ctx is over, which is
// none then.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is how it ends
	}
	return err
}
