package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
)

func (p *program) ports() *cobra.Command {
	c := &cobra.Command{
		Use:     "ports [flags] SANDBOX",
		Aliases: []string{"port"},
		Short:   "List the ports that programs of a sandbox listen on",
		Long: `Ports lists the TCP ports that programs of a sandbox listen on, with their
addresses and processes. 'runtimectl port-forward' makes one of them a port of
this machine, if it listens on 127.0.0.1, ::1, 0.0.0.0 or ::.`,
		Example: `  runtimectl ports build
  runtimectl ports -o json build | jq '.[].port'`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			list, err := c.Ports(cmd.Context())
			if err != nil {
				return err
			}
			return p.Print(format, portList(list))
		})
	}
	return c
}

// portList is the output of ports.
type portList []api.Port

func (l portList) Table() [][]string {
	rows := [][]string{{"PORT", "ADDRESS", "PID", "PROCESS", "COMMAND"}}
	for _, port := range l {
		rows = append(rows, []string{
			strconv.Itoa(port.Port), strings.Join(port.Addresses, ","), strconv.Itoa(port.PID), output.OrDash(port.Process), output.OrDash(port.Command),
		})
	}
	return rows
}
