package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) logs() *cobra.Command {
	var o sandbox.LogOptions
	var since time.Duration
	var tail int
	c := &cobra.Command{
		Use:   "logs [flags] SANDBOX",
		Short: "Show the log of a sandbox's server",
		Long: `Logs shows what the server in a sandbox logged: when it started, what broke. What
commands print is not in it; 'exec' and 'sh' show that.`,
		Example: `  runtimectl logs -f build
  runtimectl logs --tail 20 build`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteSandboxes(1),
	}
	flags := c.Flags()
	flags.BoolVarP(&o.Follow, "follow", "f", false, "go on until the sandbox ends")
	flags.IntVarP(&tail, "tail", "n", 0, "show the last `N` lines only, 0 for none (default: all)")
	command.AddDuration(flags, &since, "since", "", 0, "show what is not older than this, such as 10m")
	flags.BoolVarP(&o.Timestamps, "timestamps", "t", false, "begin each line with the engine's time")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if flags.Changed("tail") {
			o.Tail = &tail
		}
		if since > 0 {
			o.Since = time.Now().Add(-since)
		}
		return p.On(cmd.Context(), args[0], func(driver sandbox.Driver, s *sandbox.Sandbox) error {
			logger, err := sandbox.Needs[sandbox.Logger](driver, "show logs")
			if err != nil {
				return err
			}
			out := p.Harmless()
			return command.UnlessOver(cmd.Context(), logger.Logs(cmd.Context(), s, o, out, out))
		})
	}
	return c
}
