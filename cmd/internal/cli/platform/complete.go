package platform

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/output"
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
func (p *Platform) SandboxNames(
	cmd *cobra.Command, args []string, begun string, states []sandbox.State,
) (found []cobra.Completion) {
	if p.Choose(cmd.Name(), cmd.Flags()) != nil {
		return found
	}
	p.Replace()
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	_ = p.In(func(driver sandbox.Driver) error { // nothing to complete is all that can be said
		all, err := driver.List(ctx)
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

// completeTime bounds the wait for the completions of a command line.
const completeTime = 2 * time.Second

// complete returns the names of find that begin with begun, sorted. Text
// that a terminal would act on is left out, and so is everything where find fails:
// nothing to complete is all that can be said.
func (p *Platform) complete(
	cmd *cobra.Command, begun string, find func(ctx context.Context, driver sandbox.Driver) ([]string, error),
) (found []cobra.Completion) {
	if p.Choose(cmd.Name(), cmd.Flags()) != nil {
		return nil
	}
	p.Replace()
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	_ = p.In(func(driver sandbox.Driver) error {
		words, err := find(ctx, driver)
		for _, word := range words {
			if strings.HasPrefix(word, begun) && output.Clean(word) == word {
				found = append(found, word)
			}
		}
		return err
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// CompletePools completes a flag with the names of pools in which sandboxes wait.
func (p *Platform) CompletePools(
	cmd *cobra.Command, _ []string, begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.complete(cmd, begun, func(ctx context.Context, driver sandbox.Driver) (names []string, _ error) {
		all, err := driver.List(ctx)
		for _, s := range all {
			if s.Pool != "" {
				names = append(names, s.Pool)
			}
		}
		return names, err
	}), cobra.ShellCompDirectiveNoFileComp
}

// CompleteImage completes the first argument with the names of images.
func (p *Platform) CompleteImage(
	cmd *cobra.Command, args []string, begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.complete(cmd, begun, func(ctx context.Context, driver sandbox.Driver) ([]string, error) {
		images, err := sandbox.Needs[sandbox.Images](driver, "list images")
		if err != nil {
			return nil, err
		}
		return images.ImageNames(ctx)
	}), cobra.ShellCompDirectiveNoFileComp
}

// CompleteSessions completes a flag with the names of the sessions of the sandbox that
// the first argument names.
func (p *Platform) CompleteSessions(
	cmd *cobra.Command, args []string, begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.completeBy(cmd, args, begun, func(ctx context.Context, c *client.Client) (names []string, _ error) {
		sessions, err := c.Sessions(ctx)
		for _, s := range sessions {
			names = append(names, s.Name)
		}
		return names, err
	}), cobra.ShellCompDirectiveNoFileComp
}

// completedActions is how many actions are completed, the newest.
const completedActions = 100

// CompleteActions completes a sandbox, and then one of its newest actions that are in one of
// the states, or in any.
func (p *Platform) CompleteActions(states ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return p.CompleteSandboxes(1, Running...)(cmd, args, begun)
		}
		return p.completeBy(cmd, args, begun, func(ctx context.Context, c *client.Client) (ids []string, _ error) {
			list, err := c.Actions(ctx, client.ActionFilter{Limit: completedActions})
			for _, a := range list {
				if len(states) == 0 || slices.Contains(states, a.State) {
					ids = append(ids, a.ID)
				}
			}
			return ids, err
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteStates completes a sandbox, and then the name of one of its checkpoints.
func (p *Platform) CompleteStates(
	cmd *cobra.Command, args []string, begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return p.CompleteSandboxes(1, Running...)(cmd, args, begun)
	}
	return p.CompleteCheckpoints(cmd, args, begun)
}

// CompleteCheckpoints completes with the names of the checkpoints of the sandbox that the first argument names.
func (p *Platform) CompleteCheckpoints(
	cmd *cobra.Command, args []string, begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.completeBy(cmd, args, begun, func(ctx context.Context, c *client.Client) (names []string, _ error) {
		list, err := c.Checkpoints(ctx)
		for _, point := range list {
			names = append(names, point.Name)
		}
		return names, err
	}), cobra.ShellCompDirectiveNoFileComp
}

// CompletePaths completes the arguments after a sandbox with paths in it.
func (p *Platform) CompletePaths(
	cmd *cobra.Command, args []string, begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	dir, _ := path.Split(begun)
	found := p.completeBy(cmd, args, begun, func(ctx context.Context, c *client.Client) ([]string, error) {
		names, err := c.ListFiles(ctx, dir)
		for i, name := range names {
			names[i] = dir + name
		}
		return names, err
	})
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeBy is complete for names that the server of a sandbox knows.
func (p *Platform) completeBy(
	cmd *cobra.Command, args []string, begun string, find func(ctx context.Context, c *client.Client) ([]string, error),
) []cobra.Completion {
	if len(args) == 0 {
		return nil
	}
	return p.complete(cmd, begun, func(ctx context.Context, driver sandbox.Driver) ([]string, error) {
		s, err := driver.Get(ctx, args[0])
		if err != nil {
			return nil, err
		}
		c, err := Client(s)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return find(ctx, c)
	})
}

// Running are the states in which a sandbox takes actions.
var Running = []sandbox.State{sandbox.Ready, sandbox.Busy, sandbox.Idle}
