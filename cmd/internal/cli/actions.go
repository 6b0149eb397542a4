package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// actionStates are the words for --state.
var actionStates = []string{
	api.StateReserved, api.StateRunning, api.StateDone, api.StateCancelled, api.StateRefused, api.StateUnknown,
}

func (p *program) action() *cobra.Command {
	c := &cobra.Command{
		Use:   "action",
		Short: "List, follow, wait for and cancel actions",
		Long: `Action works with the actions of a sandbox, which any client may have sent: commands,
cells, tool calls and others. An ACTION is an id, or the number that
'action ls' shows.`,
	}
	c.AddCommand(p.actionCommands("ls")...)
	return c
}

// actionCommands are the commands for actions. list is the name of the first one.
func (p *program) actionCommands(list string) []*cobra.Command {
	return []*cobra.Command{p.actions(list), p.follow(), p.output(), p.wait(), p.cancel()}
}

func (p *program) actions(name string) *cobra.Command {
	var filter client.ActionFilter
	c := &cobra.Command{
		Use:   name + " [flags] SANDBOX",
		Short: "List the actions of a sandbox",
		Long: `Ls lists the actions that a sandbox keeps, the newest first, with the numbers
and ids that 'follow', 'output', 'wait' and 'cancel' take.

An action is reserved while it waits for its turn, then running, then done; cancelled
or refused if it did not run, and unknown if the server ended while it ran. One with
[network] before its text was denied connections by the sandbox's network policy.`,
		Example: `  runtimectl action ls build
  runtimectl action ls -o json --state running build | jq -r '.[].id'`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	c.Flags().StringVar(&filter.Session, "session", "", "list those of the session `NAME`")
	c.Flags().StringVar(&filter.State, "state", "", "list those in this `STATE`: "+strings.Join(actionStates, ", "))
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(actionStates, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	format := output.AddFormat(c, "table", "json", "yaml")
	c.PreRunE = func(*cobra.Command, []string) error {
		if filter.State != "" && !slices.Contains(actionStates, filter.State) {
			return fmt.Errorf("--state %q: must be one of %s", filter.State, strings.Join(actionStates, ", "))
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			list, err := c.Actions(cmd.Context(), filter)
			if err != nil {
				return err
			}
			return p.Print(format, actionList(list))
		})
	}
	return c
}

func (p *program) wait() *cobra.Command {
	c := &cobra.Command{
		Use:   "wait [flags] SANDBOX ACTION",
		Short: "Wait for the end of an action",
		Long: `Wait waits until an action of a sandbox has ended, also while connections break, and
shows it; with -o json or yaml, with its observation. Ctrl-C ends the wait alone: the
action goes on.

It exits with 0 when the action succeeded, and otherwise as 'act' does.`,
		Example: `  runtimectl action wait build 0197f3a0-5c1e-7a55-9d0e-3c1f5a2b7c44
  runtimectl action wait -o json build "$id" | jq .observation`,
		Args:              command.ArgRange(2, 2),
		ValidArgsFunction: p.CompleteActions(api.StateReserved, api.StateRunning),
	}
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.onAction(cmd.Context(), args, func(c *client.Client, id string) error {
			a, err := c.Wait(cmd.Context(), id)
			if cmd.Context().Err() != nil {
				return &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted; the action goes on"}
			}
			if err != nil {
				return err
			}
			o, err := api.DecodeObservation(a.Observation)
			if err != nil {
				return err
			}
			if err := p.Print(format, oneAction(a)); err != nil {
				return err
			}
			return actionEnd(o)
		})
	}
	return c
}

// cancelTime is how long an action has to end after it was cancelled.
const cancelTime = 30 * time.Second

func (p *program) cancel() *cobra.Command {
	c := &cobra.Command{
		Use:   "cancel [flags] SANDBOX ACTION",
		Short: "Cancel an action",
		Long: `Cancel ends an action of a sandbox, and shows it once it has ended; with -o json or
yaml, with its observation. One that waits for its turn never runs. A command gets
Ctrl-C, two seconds later SIGTERM, and two seconds after that SIGKILL; the shell of its
session survives. A file that is being read or written is not cancelled (exit code
5). An action that ended before stays as it is.`,
		Example:           `  runtimectl action cancel build 0197f3a0-5c1e-7a55-9d0e-3c1f5a2b7c44`,
		Args:              command.ArgRange(2, 2),
		ValidArgsFunction: p.CompleteActions(api.StateReserved, api.StateRunning),
	}
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.onAction(cmd.Context(), args, func(c *client.Client, id string) error {
			a, err := c.Cancel(cmd.Context(), id, cancelTime)
			if err != nil {
				return err
			}
			if err := p.Print(format, oneAction(a)); err != nil || a.State != api.StateRunning {
				return err
			}
			return errors.New("the action has not ended yet; wait for it with 'runtimectl action wait'")
		})
	}
	return c
}

// onAction does work with the client of a sandbox and the id of an action, both named by args.
func (p *program) onAction(ctx context.Context, args []string, work func(c *client.Client, id string) error) error {
	return p.WithClient(ctx, args[0], func(c *client.Client) error {
		id, err := actionID(ctx, c, args[1])
		if err != nil {
			return err
		}
		return work(c, id)
	})
}

// actionID returns the id of the action that a word names: by its id, or where no action has or had that,
// by its number in the list, in which a window shows no whole ids.
func actionID(ctx context.Context, c *client.Client, word string) (string, error) {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil { // it is an id
		return word, nil //nolint:nilerr // see above
	}
	_, err = c.Action(ctx, word, 0)
	if failed, ok := errors.AsType[*client.StatusError](err); !ok || failed.Status != http.StatusNotFound {
		return word, nil
	}
	list, err := c.Actions(ctx, client.ActionFilter{})
	if err != nil {
		return "", err
	}
	for _, a := range list {
		if a.N == n {
			return a.ID, nil
		}
	}
	return word, nil
}

// actionList is the output of actions.
type actionList []api.RecordedAction

func (l actionList) Table() [][]string {
	rows := [][]string{{"N", "ACTION", "STATE", "SESSION", "KIND", "BEGAN", "OUTPUT", "TEXT"}}
	for _, a := range l {
		text := output.OrDash(a.Text)
		if a.Denied {
			text = "[network] " + text
		}
		rows = append(rows, []string{
			strconv.FormatUint(a.N, 10), a.ID, a.State, a.Session, a.Kind, output.ShortStamp(a.Begin, time.Now()), output.Size(a.OutputBytes), text,
		})
	}
	return rows
}

// oneAction is the output of wait and cancel.
type oneAction api.RecordedAction

func (a oneAction) Table() [][]string { return actionList{api.RecordedAction(a)}.Table() }
