package cli

import (
	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) url() *cobra.Command {
	c := &cobra.Command{
		Use:   "url [flags] SANDBOX",
		Short: "Print the address of a sandbox's server",
		Long: `Url prints the address of a sandbox's server on this machine, for programs that speak
its HTTP: unix:///PATH or http://HOST:PORT. It is another one after the sandbox was
started again.

With --show-key it prints the key of the requests too. That key gives all rights
that the sandbox has: keep it out of logs.`,
		Example: `  runtimectl url build
  runtimectl url --show-key -o json build | jq -r .key`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	showKey := c.Flags().Bool("show-key", false, "print the key too")
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.On(cmd.Context(), args[0], func(driver sandbox.Driver, s *sandbox.Sandbox) error {
			if !platform.Serves(s) {
				return platform.NotRunning(s)
			}
			addresser, err := sandbox.Needs[sandbox.Addresser](driver,
				"reach a sandbox at an address; 'runtimectl port-forward' and the gateway can")
			if err != nil {
				return err
			}
			var info addressInfo
			if info.URL, err = addresser.Address(s); err != nil {
				return err
			}
			if *showKey {
				if info.Key, err = s.Key(); err != nil {
					return err
				}
			}
			return p.Print(format, info)
		})
	}
	return c
}

// addressInfo is the output of url.
type addressInfo struct {
	URL string `json:"url"`
	Key string `json:"key,omitempty"`
}

// Table has the address and the key, for 'read' of a shell.
func (i addressInfo) Table() [][]string {
	if i.Key == "" {
		return [][]string{{i.URL}}
	}
	return [][]string{{i.URL, i.Key}}
}
