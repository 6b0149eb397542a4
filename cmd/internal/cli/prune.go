package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) prune() *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "prune [flags]",
		Short: "Remove sandboxes whose time is up, and what crashes left",
		Long: `Prune removes sandboxes whose deadline or idle limit is over, and what creations
and claims left that were interrupted. What other commands work on at the
moment stays, and so do containers of others. It also removes server volumes
of earlier versions that nothing uses. It prints what it removed, and why.`,
		Example: `  runtimectl prune --dry-run
  runtimectl prune`,
		Args: command.NoArgs,
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be removed")
	format := output.AddFormat(c, "table", "json", "yaml")
	p.AddServer(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var change []func(*platform.Options)
		if servers, err := p.WithServers(); err == nil { // without, no volume is known to be of an earlier version
			change = append(change, servers)
		}
		return p.In(func(driver sandbox.Driver) error {
			pruner, err := sandbox.Needs[sandbox.Pruner](driver, "prune sandboxes")
			if err != nil {
				return err
			}
			removed, err := pruner.Prune(cmd.Context(), dryRun)
			list := removalList{}
			for _, r := range removed {
				list = append(list, removalInfo(r))
			}
			if servers, ok := driver.(sandbox.ServerPruner); ok && len(change) > 0 && !dryRun {
				volumes, pruneErr := servers.PruneServers(cmd.Context())
				for _, name := range volumes {
					list = append(list, removalInfo{ID: name, Reason: "no sandbox uses this volume, and its server is another one"})
				}
				err = errors.Join(err, pruneErr)
			}
			if len(list) == 0 && err == nil && format.Value == "table" {
				_, _ = fmt.Fprintln(p.Stderr, "note: there is nothing to remove")
			} else if dryRun && err == nil && format.Value == "table" {
				_, _ = fmt.Fprintln(p.Stderr, "note: nothing was removed; without --dry-run these are:")
			}
			return errors.Join(err, p.Print(format, list))
		}, change...)
	}
	return c
}

// removalInfo is a removed object in the output of prune.
type removalInfo struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	Reason string `json:"reason"`
}

type removalList []removalInfo

func (l removalList) Table() [][]string {
	if len(l) == 0 {
		return nil
	}
	rows := [][]string{{"SANDBOX", "NAME", "REASON"}}
	for _, r := range l {
		rows = append(rows, []string{r.ID, output.OrDash(r.Name), r.Reason})
	}
	return rows
}
