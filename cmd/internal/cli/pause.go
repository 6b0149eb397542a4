package cli

import (
	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) pause() *cobra.Command {
	return p.EngineOnly(p.Each(&cobra.Command{
		Use:   "pause SANDBOX...",
		Short: "Freeze sandboxes in memory",
		Long: `Pause freezes all processes of sandboxes. They keep their memory and get no
processor time; actions are refused until 'resume'. Time limits go on. It prints
the ids of those that are paused.`,
		Example: `  runtimectl pause build`,
	}, platform.Running, sandbox.Pause))
}

func (p *program) resume() *cobra.Command {
	return p.EngineOnly(p.Each(&cobra.Command{
		Use:     "resume SANDBOX...",
		Aliases: []string{"unpause"},
		Short:   "Let paused sandboxes go on",
		Long: `Resume lets the processes of paused sandboxes go on where they were frozen. It
prints the ids of those that go on.`,
		Example: `  runtimectl resume build`,
	}, []sandbox.State{sandbox.Paused}, sandbox.Resume))
}
