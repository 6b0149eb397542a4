package main

import (
	"time"

	"github.com/spf13/cobra"

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
		Args: noArgs,
	}
	output := addFormat(c, "table", "json", "yaml")
	p.addPlace(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.in(func(driver sandbox.Driver) error {
			watcher, err := sandbox.Needs[sandbox.Watcher](driver, "report events")
			if err != nil {
				return err
			}
			out := &lines{p: p, format: output}
			err = watcher.Events(cmd.Context(), func(e sandbox.Event) error {
				return out.print(eventInfo(e))
			})
			return unlessOver(cmd.Context(), err)
		})
	}
	return p.engineOnly(c)
}

// eventInfo is an event as it is printed.
type eventInfo struct {
	Time time.Time `json:"time"`
	ID   string    `json:"id"`
	Name string    `json:"name"`
	What string    `json:"what"`
	Code string    `json:"exit_code,omitempty"`
}

func (eventInfo) headings() []string { return []string{"TIME", "SANDBOX", "NAME", "WHAT"} }

func (e eventInfo) row() []string {
	what := e.What
	if e.Code != "" {
		what += " with status " + e.Code
	}
	return []string{stamp(e.Time), e.ID, e.Name, what}
}
