package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/internal/keeper"
	"github.com/actiond/actiond/internal/shorten"
)

// The words of the run observation are the reference's: clients and their
// tests match on them (docs/reference/openhands-protocol.md, sections 3.2 and 4).
const (
	refusedSuffix = "\" is NOT executed. The previous command is still running - You CANNOT send new commands until the previous command is completed. " +
		"By setting `is_input` to `true`, you can interact with the current process: "
	belowPrefix   = "[Below is the output of the previous command.]\n"
	omittedPrefix = "[Previous command outputs are truncated. Showing the last %d lines of the output below.]\n"
	shortened     = "\n[... Observation truncated due to length ...]\n"
)

// maxContent is how many code points of output an observation holds
// (docs/reference/openhands-protocol.md, section 4.8).
const maxContent = 30000

// run runs a command in its session.
func (e *Executor) run(
	ctx context.Context, a api.RunAction, req api.Request, w api.Watch, t *turn,
) (api.Observation, error) {
	if a.Reference || !a.IsInput {
		a.Command = strings.TrimSpace(a.Command) // docs/reference/openhands-protocol.md, section 4.3
	}
	ends := strings.Count(a.Command, "\r\n")
	converted := !a.Reference && !a.IsInput && ends > 0 && ends == strings.Count(a.Command, "\n")
	if converted {
		a.Command = strings.ReplaceAll(a.Command, "\r\n", "\n")
	}
	if a.Reset {
		if t.check() != nil { // the session that it should reset is gone, and a new one is not its own
			return runFailed(a, "ERROR: "+keeper.ErrClosed.Error()), nil
		}
		e.turns.close(shellLine(req.Session), t)
		e.sessions.close(req.Session)
	}
	command := e.command(a, req, w, t)
	shell, release, err := e.shell(ctx, a, req, &command, t)
	if err != nil {
		return notRun(ctx, a, err)
	}
	defer release()
	if a.Reset && a.Command == "" {
		return e.restarted(a, shell), nil
	}
	result, err := shell.Run(ctx, e.withActivity(shell, a, w, command))
	if err != nil {
		return notRun(ctx, a, err)
	}
	if a.IsStatic {
		result.Restarted, result.SlowStart = "", 0 // no shell comes after this one
	}
	now := e.waitingIn(shell, result.Outcome)
	switch {
	case result.Outcome != bash.Completed:
		e.followed.leaves(0)
	case result.Background > 0:
		e.followed.leaves(result.Background)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	o := e.observe(a, command, req, result)
	if run, ok := o.(api.RunObservation); ok {
		if run.Metadata.Waiting = now; converted {
			run.Metadata.Suffix += "\n[The line ends of the command were CRLF, and were taken for LF.]"
		}
		o = run
	}
	return o, nil
}

// notRun returns the answer for a command that did not run, or whose result the shell cannot report.
func notRun(ctx context.Context, a api.RunAction, err error) (api.Observation, error) {
	var refused *api.Error
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, keeper.ErrClosed):
		err = keeper.ErrClosed
	case errors.As(err, &refused), errors.Is(err, bash.ErrNotBegun):
		return nil, err
	}
	// Never an error observation: clients cannot decode it for a hidden command.
	return runFailed(a, "ERROR: "+err.Error()), nil
}

// withActivity lets clients, and the command if it returns on input, ask what the shell waits for.
func (e *Executor) withActivity(shell *bash.Session, a api.RunAction, w api.Watch, c bash.Command) bash.Command {
	if a.ReturnOnInput {
		c.AwaitsInput = func() bool { return e.awaitsInput(shell) }
	}
	w.CanLook(func() *api.Waiting { return e.look(shellPlace(shell)) })
	return c
}

// awaitsInput reports whether the command in a shell waits for input alone.
func (e *Executor) awaitsInput(shell *bash.Session) bool {
	at, ok := shellPlace(shell)
	return ok && e.activity.Inspect(at.target)[0].AwaitsInput()
}

// runs are the outcomes after which a command runs.
var runs = []bash.Outcome{bash.Silent, bash.TimedOut, bash.Refused, bash.Abandoned, bash.AtInput}

// waitingIn returns the activity of the command that an outcome leaves running, otherwise nil.
func (e *Executor) waitingIn(shell *bash.Session, outcome bash.Outcome) *api.Waiting {
	if !slices.Contains(runs, outcome) {
		return nil
	}
	return e.look(shellPlace(shell))
}

// command returns an action as a command of a session, which reports its progress to w.
func (e *Executor) command(a api.RunAction, req api.Request, w api.Watch, t *turn) bash.Command {
	c := bash.Command{
		Text: a.Command, Input: a.IsInput, Verbatim: a.IsInput && !a.Reference,
		KeyNames: a.IsInput && (a.Dialect == api.DialectOpenHandsV1 || a.Dialect == api.DialectActiond), Several: a.Dialect != "" && a.Dialect != api.DialectOpenHandsV1, Hidden: a.Hidden, Hard: -1, Queue: w.Queue, Waits: t.give, Cancelled: w.Cancelled,
		Begin: func() error {
			if err := t.check(); err != nil {
				return err
			}
			return w.Begins()
		},
	}
	if w.Output != nil {
		c.Output = func(c bash.Chunk) { w.Output(api.Output{Offset: c.Offset, Missed: c.Missed, Data: c.Data}) }
	}
	if !a.Blocking {
		c.Soft = cmp.Or(a.Silence, e.cfg.SoftTimeout)
	}
	if hard, ok := limit(req); ok {
		c.Hard = hard
	}
	return c
}

// shell returns the shell of an action once that may ask for the turn in it, started within the
// action's limit, and takes the time that it took off the command's. A static command has a shell
// of its own, which release ends.
func (e *Executor) shell(
	ctx context.Context, a api.RunAction, req api.Request, c *bash.Command, t *turn,
) (shell *bash.Session, release func(), err error) {
	if c.Hard >= 0 {
		begun := time.Now()
		defer func() { c.Hard = max(0, c.Hard-time.Since(begun)) }()
	}
	if c.Hard >= 0 && (a.IsStatic || e.sessions.existing(req.Session) == nil) { // only ctx bounds the wait for the turn
		late := fmt.Errorf("the shell did not start within %s seconds, and the command did not run; the start goes on",
			api.FormatSeconds(*req.Timeout))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Hard, late)
		defer cancel()
	}
	if err := t.wait(ctx, c.Queue); err != nil {
		return nil, nil, err
	}
	if !a.IsStatic {
		if shell = e.sessions.existing(req.Session); shell == nil {
			shell, err = e.sessions.get(ctx, req.Session)
		}
		return shell, func() {}, err
	}
	dir, err := e.staticDir(ctx, string(a.Cwd))
	if err != nil {
		return nil, nil, err
	}
	return e.sessions.single(ctx, dir)
}

// staticDir is where a static command runs: a relative directory is below the
// initial one, which also takes the place of one that does not exist.
func (e *Executor) staticDir(ctx context.Context, dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(e.cfg.WorkingDir, dir)
	}
	return onFiles(ctx, e.files, func() (string, error) {
		if info, err := e.stat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
		return e.cfg.WorkingDir, nil
	})
}

func (e *Executor) stat(path string) (info fs.FileInfo, err error) {
	err = e.cfg.User.Do(func() error {
		info, err = os.Stat(path)
		return err
	})
	return info, err
}

// observe puts a result into words.
func (e *Executor) observe(a api.RunAction, c bash.Command, req api.Request, r bash.Result) api.Observation {
	switch r.Outcome {
	case bash.NothingToPoll, bash.NothingToType:
		what := "retrieve logs from"
		if r.Outcome == bash.NothingToType {
			what = "interact with"
		}
		a.Command = ""
		return runFailed(a, "ERROR: No previous running command to "+what+".")
	case bash.Multiple:
		if a.Hidden {
			return runFailed(a, multiple(r.Commands))
		}
		return api.ErrorObservation{Content: multiple(r.Commands), Outcome: api.OutcomeNotStarted}
	case bash.Completed, bash.Silent, bash.TimedOut, bash.Refused, bash.Abandoned, bash.AtInput:
	}
	advice := cmp.Or(a.Advice, api.RunAdvice("execute_bash", true, true))
	o := api.RunObservation{Content: r.Output, Command: a.Command}
	o.Metadata = api.RunMetadata{ExitCode: -1, PID: -1}
	if r.Omitted > 0 {
		o.Metadata.Prefix = fmt.Sprintf(omittedPrefix, countLines(r.Output))
	}
	switch r.Outcome {
	case bash.Completed:
		o.Hidden = a.Hidden
		e.completed(&o, r)
	case bash.Silent:
		o.Metadata.Suffix = fmt.Sprintf("\n[The command has no new output after %s seconds. %s]", wholeSeconds(c.Soft),
			advice)
	case bash.TimedOut:
		o.Metadata.Suffix = fmt.Sprintf("\n[The command timed out after %s seconds. %s]", api.FormatSeconds(*req.Timeout),
			advice)
	case bash.AtInput:
		o.Outcome = api.OutcomeRunning
		o.Metadata.Suffix = "\n[The command waits for input. " + advice + "]"
	case bash.Abandoned:
		o.Outcome = api.OutcomeRunning
		o.Metadata.Suffix = "\n[The wait was cancelled by a request, and the command goes on. " + advice + "]"
	case bash.Refused:
		o.Hidden = a.Hidden
		o.Metadata.Suffix = "\n[Your command \"" + a.Command + refusedSuffix + advice + "]"
	}
	if r.Outcome != bash.Completed && (r.Continued || r.Outcome == bash.Refused) {
		o.Metadata.Prefix = belowPrefix + o.Metadata.Prefix
	}
	o.Outcome, o.Code = api.OutcomeOf(o)
	if !o.Hidden {
		o.Shortened = r.Omitted > 0 || utf8.RuneCountInString(o.Content) > maxContent
		o.Content = shorten.Middle(o.Content, maxContent/2, maxContent/2, shortened)
	}
	return o
}

// completed adds the end of the command and the state in which it left the shell.
func (e *Executor) completed(o *api.RunObservation, r bash.Result) {
	key := ""
	if r.Key != "" {
		key = " CTRL+" + r.Key + " was sent."
	}
	o.Metadata.ExitCode, o.Metadata.PID = r.Status, r.Background
	o.Metadata.Suffix = fmt.Sprintf("\n[The command completed with exit code %d.%s]", r.Status, key)
	if r.Status < 0 {
		o.Metadata.Suffix = "\n[The command ended, and its exit code is unknown." + key + "]"
	}
	if r.Cancelled != "" {
		o.Outcome = api.OutcomeCancelled
		o.Metadata.Suffix += "\n[It was cancelled by a request, with " + r.Cancelled + ".]"
	}
	if r.Restarted != "" {
		o.Metadata.ShellReplaced = &api.ShellReplaced{Reason: r.RestartReason}
		if r.RestartSignal != 0 {
			o.Metadata.ShellReplaced.Signal = new(unix.SignalName(r.RestartSignal))
		}
		o.Metadata.Suffix += fmt.Sprintf("\n[The shell %s. A new one takes its place in %s, with the exported variables, functions and aliases that were saved.]",
			r.Restarted, r.Dir)
	}
	if r.SlowStart > 0 {
		o.Metadata.Suffix += fmt.Sprintf("\n[The start files of the shell, such as ~/.bashrc, did not end within %v. The shell goes on without them.]", r.SlowStart)
	}
	name := e.cfg.User.Username()
	python := e.python.Find(r.Path, r.Dir)
	o.Metadata.Username, o.Metadata.Hostname = &name, &e.hostname
	o.Metadata.WorkingDir, o.Metadata.PyInterpreterPath = &r.Dir, &python
}

// countLines counts the lines of an output, which has no line end at its end.
func countLines(output string) int {
	if output == "" {
		return 0
	}
	return 1 + strings.Count(output, "\n")
}

// runFailed is the observation of a command that did not run.
func runFailed(a api.RunAction, text string) api.RunObservation {
	return api.RunObservation{
		Content: text, Command: a.Command, Hidden: a.Hidden, Outcome: api.OutcomeNotStarted,
		Metadata: api.RunMetadata{ExitCode: -1, PID: -1},
	}
}

// restarted answers a reset that runs nothing.
func (e *Executor) restarted(a api.RunAction, session *bash.Session) api.RunObservation {
	dir, name := session.Info().Dir, e.cfg.User.Username()
	return api.RunObservation{
		Content: "A new shell was started in " + dir + ".", Hidden: a.Hidden, Outcome: api.OutcomeSucceeded,
		Metadata: api.RunMetadata{PID: -1, Username: &name, Hostname: &e.hostname, WorkingDir: &dir},
	}
}

func multiple(commands []string) string {
	var b strings.Builder
	b.WriteString("ERROR: Cannot execute multiple commands at once.\nPlease run each command separately OR chain them into a single command via && or ;\nProvided commands:")
	for i, c := range commands {
		fmt.Fprintf(&b, "\n(%d) %s", i+1, c)
	}
	return b.String()
}

// wholeSeconds prints the soft limit as the reference prints its integer, and
// a fraction as a float.
func wholeSeconds(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprint(int64(d / time.Second))
	}
	return api.FormatSeconds(d.Seconds())
}
