package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/lookpath"
)

// The words of the run observation are the reference's: clients and their
// tests match on them (openhands.md, sections 3.2 and 4).
const (
	stillRunningHint = "You may wait longer to see additional output by sending empty command '', send other commands to interact with the current process, " +
		`send keys ("C-c", "C-z", "C-d") to interrupt/kill the previous command before sending your new command, ` +
		"or use the timeout parameter in execute_bash for future commands."
	refusedSuffix = "\" is NOT executed. The previous command is still running - You CANNOT send new commands until the previous command is completed. " +
		"By setting `is_input` to `true`, you can interact with the current process: "
	belowPrefix   = "[Below is the output of the previous command.]\n"
	omittedPrefix = "[Previous command outputs are truncated. Showing the last %d lines of the output below.]\n"
	shortened     = "\n[... Observation truncated due to length ...]\n"
)

// maxContent is how many code points of output an observation holds (section 4.8).
const maxContent = 30000

// run runs a command in its session and tells its output, unless that is nil.
func (e *Executor) run(ctx context.Context, a api.RunAction, req api.Request, output func(api.Output)) (api.Observation, error) {
	a.Command = strings.TrimSpace(a.Command) // openhands.md, section 4.3
	if a.Reset {
		e.sessions.close(req.Session)
	}
	command := e.command(a, req)
	var result bash.Result
	var err error
	if a.IsStatic {
		result, err = e.runStatic(ctx, a.Cwd, command, output)
	} else {
		var session *bash.Session
		session, err = e.sessions.get(ctx, req.Session)
		switch {
		case err == nil && a.Reset && a.Command == "":
			return e.restarted(a, session), nil
		case err == nil:
			result, err = runIn(ctx, session, command, output)
		}
	}
	var refused *api.Error
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &refused):
		return nil, err
	case err == nil:
		return e.observe(a, command, req, result), nil
	}
	// Never an error observation: clients cannot decode it for a hidden command.
	return runFailed(a, "ERROR: "+err.Error()), nil
}

// restarted answers a reset that runs nothing.
func (e *Executor) restarted(a api.RunAction, session *bash.Session) api.RunObservation {
	dir, name := session.Info().Dir, e.cfg.User.name()
	return api.RunObservation{
		Content: "A new shell was started in " + dir + ".", Hidden: a.Hidden,
		Metadata: api.RunMetadata{PID: -1, Username: &name, Hostname: &e.hostname, WorkingDir: &dir},
	}
}

// command turns the action's limits into the session's.
func (e *Executor) command(a api.RunAction, req api.Request) bash.Command {
	c := bash.Command{Text: a.Command, Input: a.IsInput, Hard: -1}
	if !a.Blocking {
		c.Soft = e.cfg.SoftTimeout
	}
	if hard, ok := limit(req); ok {
		c.Hard = hard
	}
	return c
}

// limit is how long a request may take; false where it does not say, or says 0,
// which is none in the reference too.
func limit(req api.Request) (time.Duration, bool) {
	if req.Timeout == nil || *req.Timeout == 0 {
		return 0, false
	}
	return seconds(*req.Timeout), true
}

// seconds is f as a duration, the longest there is where it would not fit.
func seconds(f float64) time.Duration {
	switch {
	case f <= 0:
		return 0
	case f >= math.MaxInt64/float64(time.Second):
		return math.MaxInt64
	}
	return time.Duration(f * float64(time.Second))
}

// runStatic runs a command in a shell of its own, which ends with it. A relative
// directory is below the initial one, which also stands in for one that is not
// there.
func (e *Executor) runStatic(ctx context.Context, dir string, c bash.Command, output func(api.Output)) (bash.Result, error) {
	cfg := e.sessions.config
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(cfg.Dir, dir)
	}
	if info, err := e.stat(dir); err == nil && info.IsDir() {
		cfg.Dir = dir
	}
	session, err := e.sessions.launch(ctx, cfg)
	if err != nil {
		return bash.Result{}, err
	}
	defer session.Close()
	result, err := runIn(ctx, session, c, output)
	result.Restarted = "" // no shell comes after this one
	return result, err
}

// runIn runs a command in a session and tells its output, unless that is nil.
func runIn(ctx context.Context, session *bash.Session, c bash.Command, output func(api.Output)) (bash.Result, error) {
	if output == nil {
		return session.Run(ctx, c)
	}
	return session.Stream(ctx, c, func(p bash.Chunk) { output(api.Output(p)) })
}

func (e *Executor) stat(path string) (info fs.FileInfo, err error) {
	err = e.cfg.User.As(func() error {
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
		return api.ErrorObservation{Content: multiple(r.Commands)}
	case bash.Completed, bash.Silent, bash.TimedOut, bash.Refused:
	}
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
		o.Metadata.Suffix = fmt.Sprintf("\n[The command has no new output after %s seconds. %s]", wholeSeconds(c.Soft), stillRunningHint)
	case bash.TimedOut:
		o.Metadata.Suffix = fmt.Sprintf("\n[The command timed out after %s seconds. %s]", api.FormatSeconds(*req.Timeout), stillRunningHint)
	case bash.Refused:
		o.Hidden = a.Hidden
		o.Metadata.Suffix = "\n[Your command \"" + a.Command + refusedSuffix + stillRunningHint + "]"
	}
	if r.Outcome != bash.Completed && (r.Continued || r.Outcome == bash.Refused) {
		o.Metadata.Prefix = belowPrefix + o.Metadata.Prefix
	}
	if !o.Hidden {
		o.Content = shorten(o.Content)
	}
	return o
}

// countLines counts the lines of an output, which has no line end at its end.
func countLines(output string) int {
	if output == "" {
		return 0
	}
	return 1 + strings.Count(output, "\n")
}

// completed says how the command ended and in what state it left the shell.
func (e *Executor) completed(o *api.RunObservation, r bash.Result) {
	key := ""
	if r.Key != "" {
		key = " CTRL+" + r.Key + " was sent."
	}
	o.Metadata.ExitCode, o.Metadata.PID = r.Status, r.Background
	o.Metadata.Suffix = fmt.Sprintf("\n[The command completed with exit code %d.%s]", r.Status, key)
	if r.Restarted != "" {
		o.Metadata.Suffix += fmt.Sprintf("\n[The shell %s. A new one takes its place in %s, with the exported variables, functions and aliases that were saved.]",
			r.Restarted, r.Dir)
	}
	name := e.cfg.User.name()
	python := e.lookPath("python", r.Path, r.Dir)
	o.Metadata.Username, o.Metadata.Hostname = &name, &e.hostname
	o.Metadata.WorkingDir, o.Metadata.PyInterpreterPath = &r.Dir, &python
}

// runFailed is the observation of a command that did not run.
func runFailed(a api.RunAction, text string) api.RunObservation {
	return api.RunObservation{
		Content: text, Command: a.Command, Hidden: a.Hidden,
		Metadata: api.RunMetadata{ExitCode: -1, PID: -1},
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

// shorten keeps the first and the last half of a long text, counted in code
// points.
func shorten(text string) string {
	if len(text) <= maxContent || utf8.RuneCountInString(text) <= maxContent {
		return text
	}
	head, tail := 0, len(text)
	for range maxContent / 2 {
		_, size := utf8.DecodeRuneInString(text[head:])
		head += size
		_, size = utf8.DecodeLastRuneInString(text[:tail])
		tail -= size
	}
	return text[:head] + shortened + text[tail:]
}

// wholeSeconds prints the soft limit as the reference prints its integer, and
// a fraction as a float.
func wholeSeconds(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprint(int64(d / time.Second))
	}
	return api.FormatSeconds(d.Seconds())
}

// lookPath finds a program as which would for the user, "" where there is none.
func (e *Executor) lookPath(name, path, dir string) (found string) {
	_ = e.cfg.User.As(func() error {
		found = lookPath(name, path, dir)
		return nil
	})
	return found
}

func lookPath(name, path, dir string) string {
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		file := filepath.Join(d, name)
		if lookpath.Executable(file) {
			return file
		}
	}
	return ""
}
