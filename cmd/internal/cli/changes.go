package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
)

func (p *program) changes() *cobra.Command {
	var since, until, path string
	var limit int
	var watch bool
	c := &cobra.Command{
		Use:   "changes [flags] SANDBOX",
		Short: "Show what changed in the workspace of a sandbox",
		Long: `Changes lists the actions that changed files in the workspace of a sandbox, uploads,
and what changed between actions, the newest first. With --since it lists the paths
that changed since a state, such as s16 or start, or since the end of the action with a
number, until now or another state. States are those of the list. With --watch it prints what
changes as it happens, until it is interrupted or the sandbox ends.

Counts are of paths that were created (+), modified or given other attributes (~),
deleted (-) and renamed (>), and of ignored ones (!). A "?" behind them says that
some may be missing.`,
		Example: `  runtimectl changes build
  runtimectl changes build --since s16
  runtimectl changes build --since 17 --until 20 --path src
  runtimectl changes build --since s16 -o json | jq -r .paths[].path
  runtimectl changes build --watch --path src`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	c.Flags().StringVar(&since, "since", "", "list the paths that changed since this `STATE`, or action")
	c.Flags().StringVar(&until, "until", "", "up to this `STATE`, or action (default: now)")
	c.Flags().StringVar(&path, "path", "", "list only what is at or below this `PATH` of the workspace")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "list at most this many entries; 0 for all")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on with what changes from now on, or since the state of --since")
	format := output.AddFormat(c, "table", "json", "yaml")
	c.PreRunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case watch && (until != "" || cmd.Flags().Changed("limit")):
			return errors.New("--watch has no end: leave --until and --limit out")
		case since == "" && !watch && (until != "" || path != ""):
			return errors.New("--until and --path need --since")
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			query := client.ChangesQuery{Since: since, Until: until, Path: path}
			if watch {
				return command.UnlessOver(cmd.Context(), p.watchChanges(cmd.Context(), c, query, format))
			}
			if since == "" {
				list, err := c.ChangeLog(cmd.Context(), limit)
				if err != nil {
					return err
				}
				return p.Print(format, changeList(list))
			}
			found, err := c.Changes(cmd.Context(), query)
			if err != nil {
				return err
			}
			if err := p.Print(format, pathList(found)); err != nil {
				return err
			}
			if format.Value == "table" {
				printRest(p.Stderr, &found)
			}
			return nil
		})
	}
	return c
}

// watchChanges prints changes until ctx ends.
func (p *program) watchChanges(ctx context.Context, c *client.Client, query client.ChangesQuery, format *output.Format) error {
	out := &output.Lines{To: &p.Streams, Format: format}
	return c.WatchChanges(ctx, query, func(found api.Changes) error {
		if format.Value != "table" {
			return out.Print(watchedChanges{found})
		}
		for _, path := range found.Paths {
			if err := out.Print(watchedPath{path, &found}); err != nil {
				return err
			}
		}
		printRest(p.Stderr, &found)
		return nil
	})
}

// watchedChanges are changes on one line.
type watchedChanges struct{ api.Changes }

func (watchedChanges) Headings() []string { return nil }
func (watchedChanges) Row() []string      { return nil }

// watchedPath is a change of a path, and those that it is one of.
type watchedPath struct {
	api.ChangedPath

	all *api.Changes
}

func (watchedPath) Headings() []string { return []string{"STATE", "BY", "CHANGE", "PATH"} }

func (w watchedPath) Row() []string {
	by := make([]string, len(w.all.By))
	for i, n := range w.all.By {
		by[i] = strconv.FormatUint(n, 10)
	}
	return []string{w.all.After, output.OrDash(strings.Join(by, ",")), w.Op, pathText(w.ChangedPath)}
}

// changeList is the log of changes.
type changeList []api.ChangeEntry

func (l changeList) Table() [][]string {
	rows := [][]string{{"N", "KIND", "SEEN", "STATE", "CHANGES", "TEXT"}}
	for _, e := range l {
		n := "-"
		if e.N != nil {
			n = strconv.FormatUint(*e.N, 10)
		}
		c := api.Changes{Counts: e.Counts, Exact: e.Exact}
		if e.Ignored > 0 {
			c.Ignored = map[string]int{"": e.Ignored}
		}
		rows = append(rows, []string{n, e.Kind, output.ShortStamp(e.Time, time.Now()), e.After, summary(&c), output.OrDash(e.Text)})
	}
	return rows
}

// summary is the counts of changes in a few characters.
func summary(c *api.Changes) string {
	n := c.Counts
	text := fmt.Sprintf("+%d ~%d -%d >%d", n.Created, n.Modified+n.Meta, n.Deleted, n.Renamed)
	ignored := 0
	for _, more := range c.Ignored {
		ignored += more
	}
	if ignored > 0 {
		text += fmt.Sprintf(" !%d", ignored)
	}
	if !c.Exact {
		text += " ?"
	}
	return text
}

// pathList are the paths of changes.
type pathList api.Changes

func (l pathList) Table() [][]string {
	rows := [][]string{{"CHANGE", "PATH"}}
	for _, p := range l.Paths {
		rows = append(rows, []string{p.Op, pathText(p)})
	}
	return rows
}

func pathText(c api.ChangedPath) string {
	path, from := c.Names()
	if from != "" {
		path = from + " -> " + path
	}
	return output.Clean(path)
}

// printRest prints that a list of paths is cut, the numbers of ignored changes, and why the changes are not exact.
func printRest(w io.Writer, c *api.Changes) {
	n := c.Counts
	switch all := n.Created + n.Modified + n.Deleted + n.Renamed + n.Meta; {
	case c.Truncated && len(c.Paths) < all:
		_, _ = fmt.Fprintf(w, "there are more: %s\n", summary(c))
	case c.Truncated:
		_, _ = fmt.Fprintln(w, "the lines of some files are left out")
	}
	for group, n := range c.Ignored {
		_, _ = fmt.Fprintf(w, "ignored in %s: %d\n", output.Clean(group), n)
	}
	if !c.Exact {
		_, _ = fmt.Fprintf(w, "not exact: %s\n", output.Clean(cmp.Or(c.Why, "unknown")))
	}
}

// printChanges prints the changes by an action, or why they are not known, to standard error.
func (p *program) printChanges(ctx context.Context, c *client.Client, id string) {
	ctx, cancel := toEnd(ctx)
	defer cancel()
	a, err := c.Action(ctx, id, 0)
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(p.Stderr, "what changed is not known: %v\n", err)
		return
	case a.Changes == nil && a.Outcome == api.OutcomeNotStarted:
		return
	case a.Changes == nil:
		_, _ = fmt.Fprintln(p.Stderr, "what changed is not known: the server is too old, or follows no changes")
		return
	}
	by := ""
	if a.Changes.By == nil {
		by = ", others ran meanwhile"
	}
	_, _ = fmt.Fprintf(p.Stderr, "changes of action %d: %s%s\n", a.N, summary(a.Changes), by)
	for _, path := range a.Changes.Paths {
		_, _ = fmt.Fprintf(p.Stderr, "  %-8s %s\n", path.Op, pathText(path))
	}
	printRest(p.Stderr, a.Changes)
}

// withChanges returns an observation as JSON, with the changes by its action unless they are nil.
func withChanges(o api.Observation, changes *api.Changes) ([]byte, error) {
	data, err := api.EncodeObservation(o)
	if err != nil || changes == nil {
		return data, err
	}
	parts, err := api.AddChanges(data, changes)
	return bytes.Join(parts, nil), err
}
