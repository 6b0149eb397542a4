package cli

import (
	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
)

func (p *program) follow() *cobra.Command {
	c := &cobra.Command{
		Use:   "follow [flags] SANDBOX ACTION",
		Short: "Show the output of an action until its end",
		Long: `Follow shows what an action of a sandbox printed and prints, from its beginning to its
end, also while connections break, and exits with the exit code of its command as exec
does. Ctrl-C ends the following alone (exit code 130): the action goes on.`,
		Example: `  runtimectl action follow build 0197f3a0-5c1e-7a55-9d0e-3c1f5a2b7c44
  id=$(runtimectl action ls -o json build | jq -r '.[0].id')
  runtimectl action follow build "$id"`,
		Args:              command.ArgRange(2, 2),
		ValidArgsFunction: p.CompleteActions(),
		Annotations:       map[string]string{command.RunsCommands: "yes"},
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.onAction(cmd.Context(), args, func(c *client.Client, id string) error {
			o, err := p.newStream(c, id).follow(cmd.Context())
			if err != nil && cmd.Context().Err() != nil {
				return &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted; the action goes on"}
			}
			if err != nil {
				return err
			}
			return actionEnd(o)
		})
	}
	return c
}
