package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
)

func (p *program) bisect() *cobra.Command {
	var request client.BisectRequest
	c := &cobra.Command{
		Use:   "bisect [flags] SANDBOX -- COMMAND [ARGUMENT...]",
		Short: "Find the action that broke something",
		Long: `Bisect finds the action that broke something: it restores states between a good and a
later bad one, and runs the command in each, which says as for 'git bisect run' how that
is: exit code 0 for good, 125 for a state that cannot be tested, and all others for bad,
but 126, 127 and a test that takes longer than --timeout end the bisect without a result.
States are named as for 'restore'. For 64 actions it takes 6 tests.

It prints the first bad action, its command and its changes, and each test on standard
error. At the end the workspace is what it was before, also after Ctrl-C or an error;
what the tests write is taken back. The tests are actions as any other, and no other
client should use the sandbox meanwhile: where one changes something, bisect stops, and
leaves the workspace as it is. Then, and where it is killed, the state before is kept as
the checkpoint before-bisect-TIME, to which 'restore' goes back.`,
		Example: `  runtimectl bisect --good before-refactoring --bad 41 build -- go test ./...
  runtimectl bisect --good s3 --bad s60 build -- sh -c 'make && ./check.sh'`,
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	c.Flags().StringVar((*string)(&request.Good), "good", "", "a `STATE` in which the command succeeds")
	c.Flags().StringVar((*string)(&request.Bad), "bad", "", "a later `STATE` in which it fails")
	command.AddDuration(c.Flags(), &request.Timeout, "timeout", "", 0, "how long a test may take, such as 90s (default: 10m)")
	for _, name := range []string{"good", "bad"} {
		_ = c.MarkFlagRequired(name)
		_ = c.RegisterFlagCompletionFunc(name, p.CompleteCheckpoints) // the flag is there
	}
	format := output.AddFormat(c, "text", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ref, words, err := splitDash(cmd, args)
		if err == nil && len(words) == 0 {
			err = missingCommand(cmd)
		}
		if err != nil {
			return command.Usage(cmd, err)
		}
		request.Command = (&execFlags{}).line(words)
		return p.WithClient(cmd.Context(), ref, func(c *client.Client) error {
			found, err := p.findCulprit(cmd.Context(), c, ref, request)
			if err != nil {
				return err
			}
			if format.Value != "text" {
				return p.Print(format, found)
			}
			return found.print(p.Stdout)
		})
	}
	return c
}

// findCulprit carries out a bisect, and says on standard error how each test ended.
func (p *program) findCulprit(ctx context.Context, c *client.Client, sandbox string, request client.BisectRequest) (*culprit, error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(p.Stderr, format+"\n", args...) }
	progress := p.Progress()
	defer progress.End()
	last, err := c.Bisect(ctx, request, func(e client.BisectEvent) error {
		switch e.Event {
		case client.BisectTesting:
			progress.Say("testing %s, about %s to come", stateText(e), count(e.Left, "more test", "more tests"))
		case client.BisectTested:
			progress.End()
			code := ""
			if e.ExitCode != nil {
				code = fmt.Sprintf(" (exit code %d)", *e.ExitCode)
			}
			say("%s: %s%s", stateText(e), output.Clean(e.Verdict), code)
		}
		return nil
	})
	progress.End()
	p.sayLeft(sandbox, err)
	switch {
	case ctx.Err() != nil && errors.As(err, new(*client.LeftError)):
		return nil, withError(&command.ExitError{Code: command.ExitInterrupted, Why: "interrupted"}, err)
	case ctx.Err() != nil:
		return nil, &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted; the workspace is what it was before"}
	case errors.Is(err, client.ErrBisect):
		p.printTail(last.Output)
		return nil, err
	case err != nil:
		return nil, err
	}
	if last.Detail != "" {
		say("%s", output.Clean(last.Detail))
	}
	found := &culprit{BisectEvent: last}
	entry, err := entryOf(ctx, c, last)
	if err == nil {
		found.Changes, err = changesIn(ctx, c, entry)
	}
	if err == nil && last.N > 0 {
		found.Action, err = actionOf(ctx, c, last.N)
	}
	if err != nil { // the result is worth more than the facts about it
		say("what is known of it cannot be shown: %v", err)
	}
	return found, nil
}

// sayLeft says how to go back to the state before a loop that did not end.
func (p *program) sayLeft(sandbox string, err error) {
	left, ok := errors.AsType[*client.LeftError](err)
	if !ok {
		return
	}
	if id, ok := strings.CutPrefix(left.Checkpoint, "attempt/"); ok {
		_, _ = fmt.Fprintf(p.Stderr, "'runtimectl attempt --keep %[1]s' keeps what changed since %[2]s, 'runtimectl attempt --discard %[1]s' takes it back\n", word(sandbox), output.Clean(id))
		return
	}
	_, _ = fmt.Fprintf(p.Stderr, "'runtimectl restore %[1]s %[2]s' goes back, and 'runtimectl checkpoint --remove %[2]s %[1]s' forgets it\n", word(sandbox), word(left.Checkpoint))
}

// tailLines is how much of a test's output is shown.
const tailLines = 20

// printTail prints the end of the output of a test that could not be carried out.
func (p *program) printTail(text string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for _, line := range lines[max(0, len(lines)-tailLines):] {
		if line != "" {
			_, _ = fmt.Fprintf(p.Stderr, "  %s\n", output.Clean(line))
		}
	}
}

func stateText(e client.BisectEvent) string {
	text := output.Clean(e.State)
	if e.N > 0 {
		text += fmt.Sprintf(", after action %d", e.N)
	}
	return text
}

// entryOf returns the entry of the log for the first bad state.
func entryOf(ctx context.Context, c *client.Client, e client.BisectEvent) (api.ChangeEntry, error) {
	list, err := c.ChangeLog(ctx, 0)
	for _, entry := range list {
		if entry.After == e.State {
			return entry, nil
		}
	}
	if err == nil {
		err = command.Missing("the state %s is not in the log of changes", e.State)
	}
	return api.ChangeEntry{}, err
}

func changesIn(ctx context.Context, c *client.Client, entry api.ChangeEntry) (*api.Changes, error) {
	changes, err := c.Changes(ctx, client.ChangesQuery{Since: entry.Before, Until: entry.After})
	if err != nil {
		return nil, err
	}
	return &changes, nil
}

// actionOf returns the record of the action with a number.
func actionOf(ctx context.Context, c *client.Client, n uint64) (*api.RecordedAction, error) {
	list, err := c.Actions(ctx, client.ActionFilter{})
	for _, a := range list {
		if a.N == n {
			return &a, nil
		}
	}
	if err == nil {
		err = command.Missing("action %d is no longer kept", n)
	}
	return nil, err
}

// culprit is the result of a bisect, with the record of the first bad action.
type culprit struct {
	client.BisectEvent

	Action  *api.RecordedAction `json:"action,omitempty"`
	Changes *api.Changes        `json:"changes,omitempty"`
}

// Table is not used.
func (c *culprit) Table() [][]string { return nil }

func (c *culprit) print(out io.Writer) error {
	what := "the first bad state is " + c.State
	if c.N > 0 {
		what = fmt.Sprintf("action %d is the first bad one", c.N)
	}
	lines := []string{fmt.Sprintf("%s (%s)", what, count(c.Tests, "test", "tests"))}
	if c.Action != nil {
		lines = append(lines, fmt.Sprintf("  %s: %s", c.Action.Kind, c.Action.Text))
	}
	if len(c.Skipped) > 0 {
		lines = append(lines, "it may be one of these as well, which could not be tested: "+strings.Join(c.Skipped, ", "))
	}
	if c.Changes != nil {
		lines = append(lines, "changes: "+summary(c.Changes))
		for _, path := range c.Changes.Paths {
			lines = append(lines, fmt.Sprintf("  %-8s %s", path.Op, pathText(path)))
		}
	}
	for i := range lines {
		lines[i] = output.Clean(lines[i])
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
