package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) events() *cobra.Command {
	c := &cobra.Command{
		Use:   "events",
		Short: "Watch what happens to the sandboxes",
		Long: `Events prints what happens to the sandboxes of this controller from now on, in the
engine's words (create, start, kill, die, oom, stop, pause, unpause, rename, destroy
and others), until it is interrupted.`,
		Example: `  runtimectl events
  runtimectl events -o json | jq -c 'select(.what == "die")'`,
		Args: command.NoArgs,
	}
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.In(func(driver sandbox.Driver) error {
			watcher, err := sandbox.Needs[sandbox.Watcher](driver, "report events")
			if err != nil {
				return err
			}
			out := &output.Lines{To: &p.Streams, Format: format}
			err = watcher.Events(cmd.Context(), func(e sandbox.Event) error {
				return out.Print(eventInfo(e))
			})
			return command.UnlessOver(cmd.Context(), err)
		})
	}
	return p.EngineOnly(c)
}

// eventInfo is an event as it is printed.
type eventInfo struct {
	Time time.Time `json:"time"`
	ID   string    `json:"id"`
	Name string    `json:"name"`
	What string    `json:"what"`
	Code string    `json:"exit_code,omitempty"`
}

func (eventInfo) Headings() []string { return []string{"TIME", "SANDBOX", "NAME", "WHAT"} }

func (e eventInfo) Row() []string {
	what := e.What
	if e.Code != "" {
		what += " with status " + e.Code
	}
	return []string{output.Stamp(e.Time), e.ID, e.Name, what}
}
