package platform

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/runtimectl/internal/output"
	"github.com/actiond/actiond/sandbox"
)

// CompleteSandboxes completes the first most arguments, or all of them where
// most is negative, with names of sandboxes that are in one of the states, or in
// any. Where the engine does not answer there is nothing to complete.
func (p *Platform) CompleteSandboxes(most int, states ...sandbox.State) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.SandboxNames(cmd, args, begun, states), cobra.ShellCompDirectiveNoFileComp
	}
}

// SandboxNames are the completions for the beginning of a name or an id: names
// where they begin so, else ids.
func (p *Platform) SandboxNames(cmd *cobra.Command, args []string, begun string, states []sandbox.State) (found []cobra.Completion) {
	if p.Choose() != nil {
		return found
	}
	_ = p.In(func(driver sandbox.Driver) error { // nothing to complete is all that can be said
		all, err := driver.List(cmd.Context())
		for _, s := range all {
			if len(states) > 0 && !slices.Contains(states, s.State) || slices.Contains(args, s.Name) || slices.Contains(args, s.ID) {
				continue
			}
			for _, word := range []string{s.Name, s.ID} {
				if strings.HasPrefix(word, begun) {
					found = append(found, cobra.CompletionWithDesc(word, output.Clean(s.Image)+", "+string(s.State)))
					break
				}
			}
		}
		return err
	})
	return found
}

// completePools completes a flag with the names of pools in which sandboxes wait.
func (p *Platform) completePools(cmd *cobra.Command, _ []string, begun string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	_ = p.In(func(driver sandbox.Driver) error { // nothing to complete is all that can be said
		all, err := driver.List(cmd.Context())
		for _, s := range all {
			if s.Pool != "" && strings.HasPrefix(s.Pool, begun) && !slices.Contains(names, s.Pool) {
				names = append(names, s.Pool)
			}
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Running are the states in which a sandbox takes actions.
var Running = []sandbox.State{sandbox.Ready, sandbox.Busy, sandbox.Idle}
