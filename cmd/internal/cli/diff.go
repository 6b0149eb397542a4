package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

func (p *program) diff() *cobra.Command {
	var path string
	var stat, noPager, all bool
	c := &cobra.Command{
		Use:   "diff [flags] SANDBOX [N | STATE | FROM..TO]",
		Short: "Show what changed in the workspace, line by line",
		Long: `Diff shows as git does which lines of text files an action changed: by its number in
'changes', or without one the newest that changed something. FROM..TO is from one state
to another, each a state such as s16, a checkpoint, or the number of an action, for the
state after it; without TO until now, as with a state or a checkpoint alone.

There are no lines of context. What git has no text for is named: directories, binary
files, and files whose lines are not kept. On a terminal the text goes through $PAGER,
"less -FRX" by default, in colours unless NO_COLOR is set, and control characters are
written out; otherwise it is as it is in the files, for 'git apply --unidiff-zero'.`,
		Example: `  runtimectl diff build
  runtimectl diff build 17
  runtimectl diff --all build
  runtimectl diff --stat build before-refactoring
  runtimectl diff build 17..20 --path src | git apply --unidiff-zero`,
		Args:              command.ArgRange(1, 2),
		ValidArgsFunction: p.CompleteStates,
	}
	c.Flags().BoolVar(&all, "all", false, "show what changed since the beginning, which is the state start")
	c.Flags().BoolVar(&stat, "stat", false, "show how many lines of which files changed, and not the lines")
	c.Flags().StringVar(&path, "path", "", "show only what is at or below this `PATH` of the workspace")
	c.Flags().BoolVar(&noPager, "no-pager", false, "print at once, also on a terminal")
	color := output.AddColor(c)
	format := output.AddFormat(c, "diff", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		word := ""
		if len(args) > 1 {
			word = args[1]
		}
		if all && word != "" {
			return command.Invalid("--all shows what changed since the beginning: leave %q out", word)
		}
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			var query client.ChangesQuery
			var err error
			if !all {
				query, err = changesOf(cmd.Context(), c, word)
			}
			if errors.Is(err, errNoChanges) {
				_, _ = fmt.Fprintln(p.Stderr, err)
				if format.Value == "diff" {
					return nil
				}
				return p.Print(format, pathList{Exact: true, By: []uint64{}, Paths: []api.ChangedPath{}})
			}
			if err != nil {
				return err
			}
			query.Path, query.Diff = path, true
			found, err := c.Changes(cmd.Context(), query)
			if err != nil {
				return err
			}
			if format.Value != "diff" {
				return p.Print(format, pathList(found))
			}
			page := p.Page
			if noPager {
				page = p.Unpaged
			}
			style, person := p.Colored(color)
			return p.printPatch(&found, page, patch{style: style, person: person}, stat)
		})
	}
	return c
}

// printPatch prints changes as a patch or, for stat, as counts of lines.
func (p *program) printPatch(found *api.Changes, page func(func(io.Writer) error) error, w patch, stat bool) error {
	err := page(func(out io.Writer) error {
		w.to = out
		if stat {
			return w.stat(found)
		}
		return w.changes(found)
	})
	if err == nil {
		printRest(p.Stderr, found)
	}
	return err
}

// errNoChanges reports a log without changes.
var errNoChanges = errors.New("nothing has changed yet")

// changesOf returns the states that a word names: the number of an action, a state or a checkpoint, two of them with
// ".." between, or "" for the newest change that undo takes back.
func changesOf(ctx context.Context, c *client.Client, word string) (q client.ChangesQuery, err error) {
	if from, to, ok := strings.Cut(word, ".."); ok {
		if from == "" {
			return q, command.Invalid("%q has no state before the dots: write FROM..TO or FROM..", word)
		}
		return client.ChangesQuery{Since: from, Until: to}, nil
	}
	n, err := strconv.ParseUint(word, 10, 64)
	if err == nil && n == 0 {
		return q, command.Invalid("%q is not the number of an action: they begin with 1", word)
	}
	if err != nil && word != "" {
		return client.ChangesQuery{Since: word}, nil
	}
	entry, err := changeEntry(ctx, c, n)
	if err == nil && (entry.Before == "" || entry.After == "") {
		err = fmt.Errorf("the states around action %d are not known: see 'runtimectl changes'", n)
	}
	return client.ChangesQuery{Since: entry.Before, Until: entry.After}, err
}

// changeEntry returns the entry of an action in the log of changes; 0 means the newest one that undo takes back.
func changeEntry(ctx context.Context, c *client.Client, n uint64) (api.ChangeEntry, error) {
	for _, limit := range []int{100, 0} { // most are near the end
		list, err := c.ChangeLog(ctx, limit)
		if err != nil {
			return api.ChangeEntry{}, err
		}
		for _, e := range list {
			undone := e.N != nil || e.Cause == api.CauseUpload || e.Cause == api.CauseRestore
			if n > 0 && e.N != nil && *e.N == n || n == 0 && undone {
				return e, nil
			}
		}
		if len(list) < limit {
			break
		}
	}
	if n == 0 {
		return api.ChangeEntry{}, errNoChanges
	}
	return api.ChangeEntry{}, command.Missing("action %d is not in the log of changes: it changed nothing, or is no longer kept", n)
}
