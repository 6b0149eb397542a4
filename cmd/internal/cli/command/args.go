// Package command checks the arguments of commands, and has their errors and the exit codes of
// these.
package command

import (
	"context"
	"fmt"
	"math"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"
)

// UsageError is a command line that cannot be understood.
type UsageError struct {
	Command string // whose help explains it, such as "runtimectl demo"
	Err     error
}

// Usage returns err as a usage error of cmd.
func Usage(cmd *cobra.Command, err error) error { return &UsageError{cmd.CommandPath(), err} }

// Error returns the text of Err.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Many is the upper bound of ArgRange for any number of arguments.
const Many = math.MaxInt

// ArgRange refuses fewer arguments than least and more than most.
func ArgRange(least, most int) cobra.PositionalArgs {
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

// NoArgs refuses words after a command that takes none.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: there are only flags", args[0])
	}
	return nil
}

// UnlessOver is the error of something that goes on until ctx is over, which is
// none then.
func UnlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is how it ends
	}
	return err
}

// ParseBytes reads a number of bytes as docker run does, such as 512m or 2g.
func ParseBytes(word string) (int64, error) {
	n, err := units.RAMInBytes(word)
	if err != nil || n < 0 || n == math.MaxInt64 { // the last two: the number is too large for 64 bits
		return 0, fmt.Errorf("%q is not a number of bytes: write 512m or 2g", word)
	}
	return n, nil
}
