package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/internal/shellquote"
)

func (p *program) restore() *cobra.Command {
	var request api.RestoreRequest
	var paths []string
	c := &cobra.Command{
		Use:   "restore [flags] SANDBOX STATE",
		Short: "Make the workspace what it was in a state or checkpoint",
		Long: `Restore makes the workspace of a sandbox what it was in a state: a checkpoint, a state
that 'changes' names, such as s16, 'start' for the first one, or that after the action with
a number. Names, types,
contents, modes, owners, links, attributes and times come back; what is in other places,
processes and connections do not. Programs that go on keep the files that they have open.

It prints the paths that it changed as 'changes' does, and on standard error the command
that takes that back. While an action runs it is refused (exit code 5) unless --force is
given. What cannot be restored is named on standard error with the reason, the rest is
restored, and the exit code is 1.`,
		Example: `  runtimectl restore build before-refactoring
  runtimectl restore --dry-run build s16
  runtimectl restore build 17 --path src --path go.mod`,
		Args:              command.ArgRange(2, 2),
		ValidArgsFunction: p.CompleteStates,
	}
	format := p.addRestore(c, &request, &paths)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		request.To, request.Paths = api.StateRef(args[1]), filePaths(paths)
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			restored, err := c.Restore(cmd.Context(), request)
			if err != nil {
				return err
			}
			return p.printRestored(format, args[0], &restored)
		})
	}
	return c
}

// addRestore gives a command the flags of a restore.
func (p *program) addRestore(c *cobra.Command, request *api.RestoreRequest, paths *[]string) *output.Format {
	c.Flags().StringArrayVar(paths, "path", nil, "only what is at or below this `PATH` of the workspace (repeatable)")
	c.Flags().BoolVar(&request.DryRun, "dry-run", false, "only print what would change")
	c.Flags().BoolVar(&request.Force, "force", false, "also while actions run")
	return output.AddFormat(c, "table", "json", "yaml")
}

func filePaths(paths []string) (list []api.FilePath) {
	for _, path := range paths {
		list = append(list, api.FilePath(path))
	}
	return list
}

// restoredInfo is the result of a restore.
type restoredInfo api.Restored

func (r restoredInfo) Table() [][]string { return pathList(r.Changes).Table() }

// printRestored prints the result of a restore in the sandbox name, or of a dry run. The error is the exit code where
// something was refused.
func (p *program) printRestored(format *output.Format, name string, r *api.Restored) error {
	if format.Value != "table" || len(r.Paths) > 0 {
		if err := p.Print(format, restoredInfo(*r)); err != nil {
			return err
		}
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(p.Stderr, format+"\n", args...) }
	if format.Value == "table" {
		printRest(p.Stderr, &r.Changes)
		for _, list := range []struct {
			what  string
			paths []api.FilePath
		}{
			{"previous content was not kept", r.Lost},
			{"too large to be compared, may differ", r.Unread},
			{"now a file apart from its other names", r.Split},
		} {
			for _, path := range list.paths {
				say("%s: %s", list.what, output.Clean(string(path)))
			}
		}
	}
	switch {
	case len(r.Paths) == 0 && !r.DryRun && r.Counts == (api.ChangeCounts{}) && len(r.Ignored) == 0:
		say("nothing had to change")
	case r.DryRun:
		say("nothing was changed: this was a dry run")
	case r.Before != "":
		say("'runtimectl restore %s %s' takes this back, as another undo does", word(name), output.Clean(r.Before))
	}
	if len(r.Living) > 0 && !r.DryRun {
		say("%s of the agent went on, and may have replaced files open: %s", count(len(r.Living), "process", "processes"), strings.Trim(fmt.Sprint(r.Living), "[]"))
	}
	return p.refused(r)
}

// refused prints the paths that a restore left as they are. The error is nil without any.
func (p *program) refused(r *api.Restored) error {
	n := max(r.RefusedCount, len(r.Refused))
	if n == 0 {
		return nil
	}
	for _, path := range r.Refused {
		name := path.Path
		if path.PathBase64 != nil {
			name = string(path.PathBase64)
		}
		_, _ = fmt.Fprintf(p.Stderr, "refused: %s: %s\n", output.Clean(name), output.Clean(path.Why))
	}
	why := count(n, "path", "paths") + " could not be restored"
	if more := n - len(r.Refused); more > 0 {
		why += fmt.Sprintf(", %d of them not named", more)
	}
	if r.DryRun {
		why = strings.Replace(why, "could not be restored", "would be refused", 1)
	}
	return &command.ExitError{Code: command.ExitFailed, Why: why}
}

// word quotes a word for a command line that is shown, where it must be.
func word(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:") == "" {
		return text
	}
	return output.Clean(shellquote.Word(text))
}
