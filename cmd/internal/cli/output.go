package cli

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
)

func (p *program) output() *cobra.Command {
	var part client.OutputPart
	c := &cobra.Command{
		Use:   "output [flags] SANDBOX ACTION",
		Short: "Write the output of an action as bytes",
		Long: `Output writes what an action of a sandbox has printed so far to standard output, byte
for byte, also while connections break. It does not wait for more: 'runtimectl action follow'
does. With --tail it is the last lines, and with --grep those of them that match, with
lines around them as grep writes them. How many bytes of a long output the sandbox does not keep is said on standard
error.`,
		Example: `  runtimectl action output build "$id" | grep -i error
  runtimectl action output --stream stderr --tail 20 build "$id"
  runtimectl action output --grep 'error|FAIL' -C 3 build "$id"`,
		Args:              command.ArgRange(2, 2),
		ValidArgsFunction: p.CompleteActions(),
	}
	streams := []string{api.StreamStdout, api.StreamStderr}
	c.Flags().StringVar(&part.Stream, "stream", "", "write this `STREAM` of a program: stdout or stderr (default: both)")
	_ = c.RegisterFlagCompletionFunc("stream", cobra.FixedCompletions(streams, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	c.Flags().Int64Var(&part.Tail, "tail", 0, "write the last `N` lines (default: all)")
	c.Flags().StringVar(&part.Grep, "grep", "", "write the lines that match this `EXPRESSION` of RE2")
	c.Flags().IntVarP(&part.Context, "context", "C", 0, "with --grep, `N` lines around each match, too")
	c.Flags().Int64Var(&part.Offset, "offset", 0, "begin behind so many bytes")
	c.PreRunE = func(*cobra.Command, []string) error {
		if part.Stream != "" && !slices.Contains(streams, part.Stream) {
			return fmt.Errorf("--stream %q: must be stdout or stderr", part.Stream)
		}
		if _, err := syntax.Parse(part.Grep, syntax.Perl); err != nil {
			wrong, _ := errors.AsType[*syntax.Error](err) // it returns no others
			return fmt.Errorf("--grep %q: %s", part.Grep, wrong.Code)
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.onAction(cmd.Context(), args, func(c *client.Client, id string) error {
			missed, err := c.Output(cmd.Context(), id, part, p.Stdout)
			if err == nil && missed > 0 {
				p.Complain(fmt.Sprintf("%d bytes of the output are not kept", missed))
			}
			return err
		})
	}
	return c
}
