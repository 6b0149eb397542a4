package cli

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
)

func (p *program) upgrade() *cobra.Command {
	var file string
	var wait time.Duration
	var force bool
	c := &cobra.Command{
		Use:   "upgrade [flags] SANDBOX",
		Short: "Replace the server of a sandbox by another version",
		Long: `Upgrade replaces the server in a sandbox by another version while the sandbox
runs. What runs (actions, commands, programs) has --wait to end; if it has not
ended then, nothing is done, and the error names it. With --force it is ended.
All sessions end, with their shells, background jobs, kernels and programs; files,
recorded actions, the owner, the key and the deadline stay.

It needs a server that runs as another user than the commands of the sandbox. A
sandbox that is stopped and started again begins with the server that it was
created with.`,
		Example: `  runtimectl upgrade build
  runtimectl upgrade --server ./server-v2 --wait 10m build`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	c.Flags().StringVar(&file, "server", "",
		"put this `PROGRAM` in its place (default: server, beside runtimectl or in ../lib/actiond)")
	command.AddDuration(c.Flags(), &wait, "wait", "", 30*time.Second, "wait at most this long for what runs, such as 10m")
	c.Flags().BoolVar(&force, "force", false, "end what still runs then")
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if wait < 0 || wait > time.Hour {
			return command.Usage(cmd, errors.New("--wait must be from 0 to 1h"))
		}
		name, err := platform.FindServer(file)
		if err != nil {
			return err
		}
		server, err := p.OpenFile(name)
		if err != nil {
			return err
		}
		defer func() { _ = server.Close() }()
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			progress := p.Progress()
			progress.Say("upgrading %s, once nothing runs", args[0])
			done, err := c.Upgrade(cmd.Context(), server, wait.Round(time.Second), force)
			progress.End()
			if refused, ok := errors.AsType[*client.StatusError](err); ok && refused.Status == http.StatusUnprocessableEntity {
				return command.Invalid("%s cannot take the place of the server: %s", name, output.Clean(refused.Detail))
			}
			if err != nil {
				return err
			}
			return p.Print(format, upgraded(done))
		})
	}
	return c
}

// upgraded is the output of upgrade.
type upgraded api.Upgraded

func (u upgraded) Table() [][]string {
	return [][]string{
		{"VERSION", "PREVIOUS", "ENDED", "UNKNOWN ACTIONS"},
		{
			u.Version, u.Previous,
			output.OrDash(strings.Join(u.Ended, ", ")), output.OrDash(strings.Join(u.Unknown, ", ")),
		},
	}
}
