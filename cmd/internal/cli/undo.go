package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
)

func (p *program) undo() *cobra.Command {
	var request api.RestoreRequest
	var only bool
	var paths []string
	c := &cobra.Command{
		Use:   "undo [flags] SANDBOX [N]",
		Short: "Take back what actions changed in the workspace",
		Long: `Undo makes the workspace of a sandbox what it was before the last action, upload or
restore that changed something, or before the action with the number N in 'changes',
whatever changed it since. With --only it takes back the action N alone, and refuses
paths that changed since. An undo can be undone: 'undo' again, or the command that it
prints.

It prints the paths that it changed as 'changes' does: a deleted file that is back is
"created". While an action runs it is refused (exit code 5) unless --force is given.
What cannot be taken back is named on standard error with the reason, the rest is taken
back, and the exit code is 1.`,
		Example: `  runtimectl undo build
  runtimectl undo --dry-run build 17
  runtimectl undo --only build 17
  runtimectl undo build 17 --path src --path go.mod`,
		Args:              command.ArgRange(1, 2),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	c.Flags().BoolVar(&only, "only", false, "take back the action N alone")
	format := p.addRestore(c, &request, &paths)
	c.PreRunE = func(_ *cobra.Command, args []string) error {
		switch {
		case only && len(args) < 2:
			return errors.New("--only needs the number of an action, which 'runtimectl changes' shows")
		case only && len(paths) > 0:
			return errors.New("--only takes back all paths of an action: leave --path out")
		case len(args) < 2:
			request.Last = true
			return nil
		}
		n, err := strconv.ParseUint(args[1], 10, 63)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is not the number of an action; 'runtimectl restore' goes to states and checkpoints", args[1])
		}
		if request.Before = n; only {
			request.Before, request.Only = 0, n
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		request.Paths = filePaths(paths)
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			restored, err := c.Restore(cmd.Context(), request)
			if err != nil {
				return err
			}
			return p.printRestored(format, args[0], &restored)
		})
	}
	return c
}
