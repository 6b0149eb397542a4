package api

import (
	"fmt"
	"math"
	"strings"
)

// What a program finds on its standard input.
const (
	StdinNone   = "none"   // nothing
	StdinText   = "text"   // ExecAction.Input
	StdinStream = "stream" // what is sent while it runs
)

// UserRoot is the user that an operator may run programs as besides the sandbox's own.
const UserRoot = "root"

// ExecAction starts a program without a shell that persists. It does not wait for a
// session and knows nothing of one.
type ExecAction struct {
	// Command is a line for /bin/sh -c. One of it and Argv is set.
	Command string `json:"command,omitzero"`
	// Argv is a program and its arguments.
	Argv []string `json:"argv,omitzero"`
	// Cwd is where it begins; empty means the sandbox's working directory, below which a
	// relative one is.
	Cwd Directory `json:"cwd"`
	// User is UserRoot, or empty for the sandbox's user. Root begins in "/" with a fixed
	// environment, and needs [Watch.Operator].
	User string `json:"user,omitzero"`
	// Env are variables over those of the sandbox, or with ClearEnv instead of them.
	Env      Variables `json:"env,omitzero"`
	ClearEnv bool      `json:"clear_env"`
	// Stdin is StdinNone, StdinText or StdinStream; empty is StdinText where there is an
	// Input.
	Stdin string `json:"stdin,omitzero"`
	// Input is what the program reads.
	Input string `json:"input,omitzero"`
	// TTY gives the program a terminal; nil gives it pipes.
	TTY *TTY `json:"tty,omitzero"`
	// KillAfter is how many seconds the program and what it started may run; 0 is for
	// ever. The timeout of the request bounds the wait alone.
	KillAfter float64 `json:"kill_after,omitzero"`
	Common
}

// Kind returns "exec".
func (ExecAction) Kind() string { return "exec" }
func (ExecAction) action()      {}

// maxTTY bounds the lines and the columns of a terminal.
const maxTTY = 1000

// TTY is the size of a terminal.
type TTY struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

var ttyShape = shapeOf(TTY{Rows: 24, Cols: 80})

// UnmarshalJSON has 24 lines of 80 columns for what is absent.
func (t *TTY) UnmarshalJSON(data []byte) (err error) {
	*t, err = decodeInner[TTY](ttyShape, "an object", data, true)
	if err == nil && (t.Rows < 1 || t.Rows > maxTTY || t.Cols < 1 || t.Cols > maxTTY) {
		return &ownError{fmt.Sprintf("rows and cols must be from 1 to %d, got %d and %d", maxTTY, t.Rows, t.Cols)}
	}
	return err
}

// ProgramInput is how much input of a program was taken.
type ProgramInput struct {
	// Offset is that of the next byte, which counts from 0.
	Offset int64 `json:"offset"`
	// Ended says that all of the request was taken, and that it ended the input.
	Ended bool `json:"ended"`
}

// ProgramSignal is the body of a request that sends a signal to a program.
type ProgramSignal struct {
	Signal string `json:"signal"`
}

var signalShape = shapeOf(ProgramSignal{})

// DecodeProgramSignal reads the body of a signal. An error is an *[Error] with status 400.
func DecodeProgramSignal(body []byte) (ProgramSignal, error) {
	return decodeBody[ProgramSignal](signalShape, body, nil)
}

// DecodeTTY reads the body of a size. An error is an *[Error] with status 400.
func DecodeTTY(body []byte) (t TTY, err error) {
	if _, err := readBody(body); err != nil {
		return t, err
	}
	if err := t.UnmarshalJSON(body); err != nil {
		return t, badBody(err)
	}
	return t, nil
}

// settle refuses what no program can be given.
func (a ExecAction) settle(d *decoding) (Action, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if (a.Command == "") == (len(a.Argv) == 0) {
		return nil, fmt.Errorf(`%s "command" or %[1]s "argv": one of both must come, and hold something`, d.label)
	}
	for _, word := range append(a.Argv, a.Command) {
		if strings.ContainsRune(word, 0) {
			return nil, fmt.Errorf("%s: no word of a command can hold a NUL character", d.label)
		}
	}
	if strings.ContainsRune(string(a.Cwd), 0) {
		d.refuse("cwd", "without a NUL character")
	}
	switch {
	case a.User == "":
	case a.User != UserRoot:
		d.refuse("user", `"root", or absent for the sandbox's user`)
	case a.Cwd != "" || a.ClearEnv:
		return nil, fmt.Errorf(`%s "user": a program of root begins in "/" with a fixed environment: leave out "cwd" and "clear_env"`, d.label)
	}
	if a.KillAfter < 0 || math.IsInf(a.KillAfter, 0) {
		d.refuse("kill_after", "a number of seconds that is not negative")
	}
	switch {
	case a.Stdin == "" && a.Input != "":
		a.Stdin = StdinText
	case a.Stdin == "":
		a.Stdin = StdinNone
	case a.Stdin != StdinNone && a.Stdin != StdinText && a.Stdin != StdinStream:
		d.refuse("stdin", `"none", "text" or "stream"`)
	case a.Stdin != StdinText && a.Input != "":
		d.refuse("stdin", `"text" where there is an "input"`)
	}
	return a, d.check()
}

// ExecObservation is how a program ended, or how it is when the answer was due.
type ExecObservation struct {
	// Content is what it wrote to both streams, in the order of arrival, cut in the
	// middle where it is long, as Stdout and Stderr are; each says how much is missing.
	Content string `json:"-"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	// StdoutBytes and StderrBytes are the same as Stdout and Stderr where these are not
	// UTF-8, and otherwise nil.
	StdoutBytes []byte `json:"stdout_base64"`
	StderrBytes []byte `json:"stderr_base64"`
	// StdoutTotal and StderrTotal count all bytes that the program wrote.
	StdoutTotal int64 `json:"stdout_total"`
	StderrTotal int64 `json:"stderr_total"`
	// Truncated says that Content, Stdout or Stderr is not all.
	Truncated bool `json:"truncated"`
	// PID is the program's; nil where it could not be started.
	PID *int `json:"pid"`
	// ExitCode is nil while the program runs and where a signal ended it.
	ExitCode *int `json:"exit_code"`
	// Signal is the name of the signal that ended it, such as "SIGKILL", or nil.
	Signal *string `json:"signal"`
	// EndedBy is "kill_after", "cancel" or "server" where it was told to end by that, or nil.
	EndedBy *string `json:"ended_by"`
	// CPUSeconds is the processor time of the program and the children that it waited
	// for; nil while it runs.
	CPUSeconds *float64 `json:"cpu_seconds"`
	// MaxRSS is the largest resident set of these in bytes; nil while the program runs,
	// and where it was smaller than the server's own, so that the kernel does not say.
	MaxRSS *int64 `json:"max_rss"`
	// Waiting is what the program does while it runs, otherwise nil.
	Waiting *Waiting `json:"waiting,omitzero"`
}

// Kind returns "exec".
func (ExecObservation) Kind() string { return "exec" }

func (o ExecObservation) wire() wire {
	message := "The program goes on."
	switch {
	case o.ExitCode != nil:
		message = fmt.Sprintf("The program ended with exit code %d.", *o.ExitCode)
	case o.Signal != nil:
		message = fmt.Sprintf("The program was ended by %s.", *o.Signal)
	}
	if o.EndedBy != nil {
		message += " It was told to by " + *o.EndedBy + "."
	}
	return wire{Message: message, Content: o.Content, Extras: extrasOf(o)}
}
