package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/process"
)

// exec starts a program, reports its output unless w.Output is nil, and waits for its end
// as long as the request says.
func (e *Executor) exec(ctx context.Context, a api.ExecAction, req api.Request, w api.Watch) (api.Observation, error) {
	until := proc.Never
	if l, ok := limit(req); ok {
		until = proc.Deadline(proc.Uptime(), l)
	}
	// A file system may hold up this and the start.
	p, err := onFiles(ctx, e.files, func() (*process.Process, error) {
		command, engine := e.programOf(a), e.programs
		if a.Inherit {
			e.inherit(ctx, &command, a, req.Session)
		}
		command.Output = programOutput(w)
		u, err := e.programUser(a, w)
		if err != nil {
			return nil, err
		}
		if u != nil {
			command, engine = asUser(command, u, a, *e.network.Load()), e.others
		}
		return engine.Prepare(command), nil
	})
	if err != nil {
		return nil, err
	}
	defer p.Leave()
	_, err = onFiles(ctx, e.files, func() (struct{}, error) { return struct{}{}, p.Start() })
	if failed, ok := errors.AsType[*process.StartError](err); ok {
		return api.ExecObservation{Content: failed.Reason, Stderr: failed.Reason, ExitCode: &failed.Code}, nil
	}
	if errors.Is(err, process.ErrMany) {
		return nil, api.TooMany(err.Error() + ": end one of them first")
	}
	if err != nil {
		return nil, err
	}
	return e.awaitProgram(ctx, p, until, w)
}

// programOutput returns the receiver of a program's output; nil without one.
func programOutput(w api.Watch) func(process.Chunk) {
	if w.Output == nil {
		return nil
	}
	return func(c process.Chunk) {
		w.Output(api.Output{PID: c.PID, Stream: streamNames[c.Stream], Offset: c.Offset, Data: c.Data})
	}
}

// awaitProgram waits until a program has ended, or until a time as [proc.Uptime] returns it.
func (e *Executor) awaitProgram(
	ctx context.Context, p *process.Process, until time.Duration, w api.Watch,
) (api.Observation, error) {
	if w.Program != nil {
		w.Program(program{p})
	}
	wait := time.Duration(-1)
	if until != proc.Never {
		wait = max(0, until-proc.Uptime())
	}
	defer onCancel(w, p.Cancel)()
	w.CanLook(func() *api.Waiting { return e.look(programPlace(p)) })
	r, err := p.Wait(ctx, wait)
	if err != nil {
		return nil, err
	}
	p.Forget() // the action ends
	o := observeProgram(r)
	if r.Running {
		e.followed.leaves(0)
		o.Waiting = e.look(programPlace(p))
	}
	return o, nil
}

var streamNames = map[process.Stream]string{process.Stdout: api.StreamStdout, process.Stderr: api.StreamStderr}

// program is a program whose errors are refusals.
type program struct{ p *process.Process }

func (p program) Write(ctx context.Context, offset int64, data []byte, end bool) (next int64, err error) {
	next, err = p.p.Write(ctx, offset, data, end)
	return next, refusal(err)
}

func (p program) PID() int { return p.p.PID() }

func (p program) Signal(name string) error {
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	number := unix.SignalNum(name)
	if number == 0 {
		return api.BadRequest(fmt.Sprintf("%s is not the name of a signal, such as SIGINT", api.Describe(name)))
	}
	return refusal(p.p.Signal(number))
}

func (p program) Resize(size api.TTY) error {
	return refusal(p.p.Resize(process.Size{Rows: uint16(size.Rows), Cols: uint16(size.Cols)})) //nolint:gosec // at most 1000
}

// refusal returns the refusal for an error of a program.
func refusal(err error) error {
	_, gap := errors.AsType[*process.GapError](err)
	known := []error{process.ErrNoInput, process.ErrInputEnded, process.ErrUnread, process.ErrEnded, process.ErrNoTerminal}
	if gap || slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) }) {
		text := err.Error()
		return api.Conflict(strings.ToUpper(text[:1]) + text[1:])
	}
	return err
}

// programOf returns the program that an action asks for.
func (e *Executor) programOf(a api.ExecAction) process.Command {
	c := process.Command{
		Argv: a.Argv, Dir: string(a.Cwd), Env: a.Env, ClearEnv: a.ClearEnv, KillAfter: seconds(a.KillAfter),
	}
	if a.Command != "" {
		c.Argv = []string{"/bin/sh", "-c", a.Command}
	}
	if !filepath.IsAbs(c.Dir) {
		c.Dir = filepath.Join(e.cfg.WorkingDir, c.Dir)
	}
	switch a.Source() {
	case api.StdinText:
		c.Input = append([]byte(a.Input), a.InputBytes...) // not nil, also where it is empty
	case api.StdinStream:
		c.Stream = true
	}
	if a.TTY != nil {
		c.Terminal = &process.Size{Rows: uint16(a.TTY.Rows), Cols: uint16(a.TTY.Cols)} //nolint:gosec // at most 1000
	}
	return c
}

// inheriting is a script that restores what a shell left, from the standard input, and evaluates its first argument in
// the directory of the second one. The program keeps its own mark, and gets none of the shell's. What it needs is in
// arguments, not in variables, which the shell's could replace.
const inheriting = `set -- "$1" "$2" "$ACTIOND_TREE"; eval "$(cat)" 2>/dev/null; ACTIOND_TREE=$3; unset ` + sessionsName + `; ` +
	`command cd -- "$2" 2>/dev/null; exec </dev/null; eval "set --; $1"`

// inherit has the program of a session's shell run a command as the shell would.
func (e *Executor) inherit(ctx context.Context, c *process.Command, a api.ExecAction, session string) {
	dir, state, program := e.cfg.WorkingDir, "", e.sessions.program()
	if shell := e.sessions.existing(session); shell != nil {
		dir, state = shell.Left(ctx)
		program = shell.Info().Program
	}
	if c.Dir = string(a.Cwd); !filepath.IsAbs(c.Dir) {
		c.Dir = filepath.Join(dir, c.Dir)
	}
	script := inheriting
	if strings.HasSuffix(program, "bash") {
		script = "shopt -s expand_aliases; " + script
	}
	c.Argv, c.Input = []string{program, "-c", script, program, a.Command, c.Dir}, []byte(state)
}

// observeProgram makes an observation of the state of a program.
func observeProgram(r process.Result) api.ExecObservation {
	content, cut := clip(r.Both, maxContent/2)
	stdout, cutOut := clip(r.Stdout, 0)
	stderr, cutErr := clip(r.Stderr, 0)
	o := api.ExecObservation{
		StdoutTotal: r.Stdout.Total, StderrTotal: r.Stderr.Total,
		Truncated: cut || cutOut || cutErr, PID: &r.PID,
	}
	o.Content, _ = asText(content)
	o.Stdout, o.StdoutBytes = asText(stdout)
	o.Stderr, o.StderrBytes = asText(stderr)
	if r.EndedBy != "" {
		o.EndedBy = &r.EndedBy
	}
	if r.Running {
		return o
	}
	o.CPUSeconds = new(r.CPU.Seconds())
	if r.ExitCode >= 0 {
		o.ExitCode = &r.ExitCode
	}
	if r.Signal != "" {
		o.Signal = &r.Signal
	}
	if r.MaxRSS > 0 {
		o.MaxRSS = &r.MaxRSS
	}
	return o
}

// asText returns output as text, and where that cannot say it as bytes too.
func asText(output []byte) (text string, binary []byte) {
	if utf8.Valid(output) {
		return string(output), nil
	}
	return strings.ToValidUTF8(string(output), "\uFFFD"), output
}

// clip returns the output of a stream, with a note in place of the part that is left out of
// its middle: all but the first and the last half characters, or where half is 0 the bytes
// that were not kept. No character is cut in two.
func clip(t process.Text, half int) (output []byte, cut bool) {
	head, tail := t.Head, t.Tail
	if t.Total == int64(len(head)+len(tail)) {
		whole := slices.Concat(head, tail)
		if half == 0 || len(whole) <= 2*half || utf8.RuneCount(whole) <= 2*half {
			return whole, false
		}
		head, tail = whole, whole
	}
	head, tail = trim(head, tail)
	if half > 0 {
		head, tail = firstRunes(head, half), lastRunes(tail, half)
	}
	missing := t.Total - int64(len(head)+len(tail))
	return slices.Concat(head, fmt.Appendf(nil, "\n[... %d bytes are left out ...]\n", missing), tail), true
}

// trim drops a character from the end of head, and one from the beginning of tail, that
// is not whole.
func trim(head, tail []byte) (h, t []byte) {
	for i := len(head) - 1; i >= 0 && i >= len(head)-utf8.UTFMax; i-- {
		if utf8.RuneStart(head[i]) {
			if !utf8.FullRune(head[i:]) {
				head = head[:i]
			}
			break
		}
	}
	for n := 1; n < utf8.UTFMax && len(tail) > 0 && !utf8.RuneStart(tail[0]); n++ {
		tail = tail[1:]
	}
	return head, tail
}

func firstRunes(text []byte, n int) []byte {
	at := 0
	for ; n > 0 && at < len(text); n-- {
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	return text[:at]
}

func lastRunes(text []byte, n int) []byte {
	at := len(text)
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRune(text[:at])
		at -= size
	}
	return text[at:]
}
