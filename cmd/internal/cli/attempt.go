package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) attempt() *cobra.Command {
	var opts execFlags
	a := attempt{p: p}
	c := &cobra.Command{
		Use:   "attempt [flags] SANDBOX [-- COMMAND [ARGUMENT...]]",
		Short: "Run a command, see what it changed, and keep or discard that",
		Long: `Attempt runs a command as 'exec' does, with its exit code, and shows on standard error
which files of the workspace it changed. Then it asks on a terminal whether to keep that
or to discard it, which makes the workspace what it was before. Elsewhere the attempt
stays open, also for other clients, and 'attempt --keep' or 'attempt --discard' ends it;
with --keep-if-succeeds it is kept after exit code 0, and discarded otherwise.

The state before is the checkpoint attempt/ID, also where attempt is killed. A sandbox has
one attempt at a time; without a command and a flag it is listed. Other actions go on
meanwhile: where they changed something, it is not discarded without --force, which takes
that back too. What cannot be restored is named on standard error with the reason. With
-o json or yaml nothing is asked, and one document at the end has the observation, its
changes, and whether they are kept.`,
		Example: `  runtimectl attempt build -- ./migrate.sh
  runtimectl attempt --keep-if-succeeds build -- sh -c 'go fix . && go test .'
  runtimectl attempt --discard build`,
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
		Annotations:       map[string]string{command.RunsCommands: "yes"},
	}
	c.Flags().BoolVar(&a.ifSucceeds, "keep-if-succeeds", false, "keep what changed if the exit code is 0, and discard it otherwise")
	c.Flags().BoolVar(&a.keep, "keep", false, "keep the effects of the open attempt")
	c.Flags().BoolVar(&a.discard, "discard", false, "discard the effects of the open attempt")
	c.Flags().BoolVar(&a.force, "force", false, "discard also what other actions changed, and while they run")
	opts.addTimeout(c)
	opts.addPlace(c)
	a.format = output.AddFormat(c, "text", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ref, words, err := splitDash(cmd, args)
		switch {
		case err != nil:
		case a.keep && a.discard, (a.keep || a.discard) && (len(words) > 0 || a.ifSucceeds):
			err = errors.New("--keep and --discard stand alone, without a command")
		case len(words) == 0 && (a.ifSucceeds || cmd.ArgsLenAtDash() >= 0):
			err = missingCommand(cmd)
		default:
			err = opts.prepare(p.Getenv)
		}
		if err != nil {
			return command.Usage(cmd, err)
		}
		a.sandbox = ref
		return p.On(cmd.Context(), ref, func(_ sandbox.Driver, s *sandbox.Sandbox) error {
			c, err := platform.Client(s)
			if err != nil {
				return err
			}
			defer c.Close()
			a.client = c
			if len(words) > 0 {
				return a.run(cmd.Context(), s, words, opts)
			}
			return a.open(cmd.Context())
		})
	}
	return c
}

// splitDash splits SANDBOX [-- COMMAND...], in which flags may stand before the dashes.
func splitDash(cmd *cobra.Command, args []string) (ref string, words []string, err error) {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args, words = args[:dash], args[dash:]
	}
	if len(args) > 1 {
		return "", nil, fmt.Errorf("the command must come after \"--\": %s", cmd.UseLine())
	}
	if len(args) == 0 {
		return "", nil, fmt.Errorf("an argument is missing: %s", cmd.UseLine())
	}
	return args[0], words, nil
}

// An attempt is an action whose effects are kept or discarded.
type attempt struct {
	p       *program
	client  *client.Client
	format  *output.Format
	sandbox string // its name or id, as it was typed

	ifSucceeds, keep, discard, force bool
}

// Ends of an attempt.
const (
	attemptOpen      = "open"
	attemptKept      = "kept"
	attemptDiscarded = "discarded"
)

// open keeps or discards the open attempt, or shows it.
func (a *attempt) open(ctx context.Context) error {
	list, err := a.client.Attempts(ctx)
	switch {
	case err != nil:
		return err
	case !a.keep && !a.discard:
		return a.p.Print(a.format, append(attemptList{}, list...)) // none is an empty list in JSON
	case len(list) == 0:
		return &command.ExitError{Code: command.ExitNotFound, Why: "no attempt is open"}
	}
	restored, err := a.end(ctx, list[len(list)-1].Attempt, a.keep)
	if err != nil {
		return err
	}
	if a.keep && a.format.Value == "text" {
		return nil
	}
	return a.p.printRestored(a.tableOr(), a.sandbox, &restored)
}

// tableOr returns the format for an answer that is not the output of a command: a table instead of text.
func (a *attempt) tableOr() *output.Format {
	format := *a.format
	if format.Value == "text" {
		format.Value = "table"
	}
	return &format
}

func (a *attempt) end(ctx context.Context, id string, keep bool) (api.Restored, error) {
	if keep {
		kept, err := a.client.KeepAttempt(ctx, id)
		return api.Restored{Changes: kept, Refused: []api.RefusedPath{}}, err
	}
	restored, err := a.client.DiscardAttempt(ctx, id, a.force)
	switch {
	case errors.Is(err, client.ErrForeign) && restored.Before != "":
		err = fmt.Errorf("%w: 'runtimectl restore %s %s' goes back to it", err, word(a.sandbox), word(restored.Before))
	case errors.Is(err, client.ErrForeign):
		err = fmt.Errorf("%w; 'runtimectl attempt --discard --force %s' takes that back too", err, word(a.sandbox))
	}
	return restored, err
}

// attemptList is the output of attempt without a command.
type attemptList []client.Attempt

func (l attemptList) Table() [][]string {
	rows := [][]string{{"ATTEMPT", "BEFORE", "BEGAN"}}
	for _, a := range l {
		rows = append(rows, []string{a.Attempt, a.Before, output.ShortStamp(a.Time, time.Now())})
	}
	return rows
}

// attemptInfo is the output of attempt with a command.
type attemptInfo struct {
	Attempt     string          `json:"attempt"`
	State       string          `json:"state"`
	Observation output.Document `json:"observation"`
	Changes     *api.Changes    `json:"changes,omitempty"`
	Restored    *api.Restored   `json:"restored,omitempty"`
}

// Table is not used.
func (attemptInfo) Table() [][]string { return nil }

// run runs the command, and keeps or discards its changes.
func (a *attempt) run(ctx context.Context, s *sandbox.Sandbox, words []string, opts execFlags) error {
	text := a.format.Value == "text"
	stream := a.p.newStream(a.client, random.UUID7())
	stream.timeout, stream.attempt, stream.silent = opts.timeout, true, !text
	o, err := stream.run(ctx, opts.request(stream.id, words, nil))
	ended := stream.end(ctx, s.Name, opts, o, err)
	if err != nil {
		if stream.open {
			a.sayOpen()
		} else {
			a.p.sayLeft(a.sandbox, err)
		}
		return ended
	}
	info := attemptInfo{Attempt: stream.id, State: attemptOpen}
	if text {
		a.p.printChanges(ctx, a.client, stream.id)
	} else if info.Observation, err = api.EncodeObservation(o); err != nil {
		return err
	}
	keep, decided := a.decide(ctx, ended == nil)
	if !decided {
		a.sayOpen()
	} else if info.Restored, err = a.decided(ctx, &info, keep); err != nil {
		ended = withError(ended, err)
	}
	if !text {
		if record, err := a.client.Action(context.WithoutCancel(ctx), stream.id, 0); err == nil {
			info.Changes = record.Changes
		}
		if err := a.p.Print(a.format, info); err != nil {
			return err
		}
	}
	return ended
}

// endLimit bounds the end of an attempt whose command was interrupted.
const endLimit = time.Minute

// toEnd returns a context for the end of an attempt, which an interrupt of its command does not end.
func toEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	}
	return context.WithCancel(ctx)
}

// decided keeps or discards an attempt, also after an interrupt, and says so.
func (a *attempt) decided(ctx context.Context, info *attemptInfo, keep bool) (*api.Restored, error) {
	ctx, cancel := toEnd(ctx)
	defer cancel()
	restored, err := a.end(ctx, info.Attempt, keep)
	if err != nil {
		a.sayOpen()
		return nil, fmt.Errorf("ending the attempt: %w", err)
	}
	if info.State = attemptDiscarded; keep {
		info.State = attemptKept
	}
	if a.format.Value == "text" {
		_, _ = fmt.Fprintln(a.p.Stderr, info.State)
	}
	if keep {
		return nil, nil //nolint:nilnil // nothing was restored
	}
	return &restored, a.p.refused(&restored)
}

// withError returns the end of a command, after which something else went wrong.
func withError(ended, err error) error {
	failed, ok := errors.AsType[*command.ExitError](ended)
	if !ok {
		return err
	}
	why := err.Error()
	if own, ok := errors.AsType[*command.ExitError](err); ok {
		why = own.Why
	}
	return &command.ExitError{Code: failed.Code, Why: strings.TrimPrefix(failed.Why+"; "+why, "; ")}
}

// sayOpen says how the attempt is ended.
func (a *attempt) sayOpen() {
	if a.format.Value == "text" {
		_, _ = fmt.Fprintf(a.p.Stderr, "the attempt is open: 'runtimectl attempt --keep %[1]s' keeps what changed, 'runtimectl attempt --discard %[1]s' takes it back\n", word(a.sandbox))
	}
}

// decide says whether to keep the changes; decided is false where that stays open.
func (a *attempt) decide(ctx context.Context, succeeded bool) (keep, decided bool) {
	if a.ifSucceeds {
		return succeeded, true
	}
	_, asks := output.Terminal(a.p.Stderr)
	if _, typed := output.Terminal(a.p.Stdin); !typed || !asks || a.format.Value != "text" || ctx.Err() != nil {
		return false, false
	}
	lines := make(chan string)
	go func() { // a read cannot be ended, and this program ends soon
		defer close(lines)
		for in := bufio.NewScanner(a.p.Stdin); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		_, _ = fmt.Fprint(a.p.Stderr, "[k]eep or [d]iscard what it changed? ")
		select {
		case <-ctx.Done():
			_, _ = fmt.Fprintln(a.p.Stderr)
			return false, false
		case line, ok := <-lines:
			switch answer := strings.ToLower(strings.TrimSpace(line)); {
			case !ok:
				_, _ = fmt.Fprintln(a.p.Stderr)
				return false, false
			case answer == "k" || answer == "keep":
				return true, true
			case answer == "d" || answer == "discard":
				return false, true
			}
		}
	}
}
