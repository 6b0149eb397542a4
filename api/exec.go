package api

import (
	"fmt"
	"math"
	"strings"
)

// The sources of a program's standard input.
const (
	StdinNone   = "none"   // it is empty
	StdinText   = "text"   // ExecAction.Input
	StdinStream = "stream" // bytes that the client sends while the program runs
)

// UserRoot is the user with the id 0, whatever its name in the sandbox's /etc/passwd.
const UserRoot = "root"

// ExecAction starts a program without a persistent shell. It does not belong to a session.
type ExecAction struct {
	// Command is a line for /bin/sh -c. Either it or Argv is set.
	Command string `json:"command,omitzero"`
	// Argv is a program and its arguments.
	Argv []string `json:"argv,omitzero"`
	// Cwd is the program's directory, absolute or relative to the sandbox's working directory,
	// which is the default.
	Cwd Directory `json:"cwd"`
	// User is the name of a user of the sandbox, or a number in decimal; empty is the sandbox's own.
	// A program of another user has a fixed environment, begins in "/" unless there is a Cwd, and
	// needs [Watch.Operator].
	User string `json:"user,omitzero"`
	// Env are variables over those of the sandbox, or with ClearEnv instead of them. Of the variables
	// that another User has, PATH stays.
	Env      Variables `json:"env,omitzero"`
	ClearEnv bool      `json:"clear_env"`
	// Inherit has the session's shell run Command, in another process: in the directory, and with the exported variables,
	// functions and aliases, in which the last command of the session left it.
	Inherit bool `json:"inherit,omitzero"`
	// Stdin is StdinNone, StdinText or StdinStream; [ExecAction.Source] returns the default.
	Stdin string `json:"stdin,omitzero"`
	// Input, or InputBytes where it is not UTF-8, is the standard input for StdinText.
	Input      string `json:"input,omitzero"`
	InputBytes []byte `json:"input_base64,omitzero"`
	// TTY gives the program a terminal; nil gives it pipes.
	TTY *TTY `json:"tty,omitzero"`
	// KillAfter bounds the life of the program and its children in seconds; 0 sets no bound.
	// The timeout of the request only bounds the wait.
	KillAfter float64 `json:"kill_after,omitzero"`
	Common
}

// Source returns Stdin, or where that is empty its default: StdinText with an input, otherwise
// StdinStream on a terminal, and StdinNone without one.
func (a ExecAction) Source() string {
	switch {
	case a.Stdin != "":
		return a.Stdin
	case a.Input != "" || len(a.InputBytes) > 0:
		return StdinText
	case a.TTY != nil:
		return StdinStream
	}
	return StdinNone
}

// maxTTY bounds the lines and the columns of a terminal.
const maxTTY = 1000

// TTY is the size of a terminal.
type TTY struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

var ttyShape = shapeOf(TTY{Rows: 24, Cols: 80})

// UnmarshalJSON reads a size. The defaults are 24 rows and 80 columns.
func (t *TTY) UnmarshalJSON(data []byte) (err error) {
	*t, err = decodeInner[TTY](ttyShape, "an object", data, true)
	if err == nil && (t.Rows < 1 || t.Rows > maxTTY || t.Cols < 1 || t.Cols > maxTTY) {
		return &ownError{fmt.Sprintf("rows and cols must be from 1 to %d, got %d and %d", maxTTY, t.Rows, t.Cols)}
	}
	return err
}

// ProgramInput is the progress in the input of a program.
type ProgramInput struct {
	// Offset is that of the next byte, from 0 on.
	Offset int64 `json:"offset"`
	// Ended is true if all input of the request was taken and the input has ended.
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

// settle refuses arguments that no program can have.
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
	if a.Inherit && (a.Command == "" || a.User != "" || a.ClearEnv || len(a.Env) > 0 || a.Source() != StdinNone) {
		d.note("inherit", "absent where there is an argv, a user, env, clear_env or an input")
	}
	if strings.ContainsRune(string(a.Cwd), 0) {
		d.refuse("cwd", "without a NUL character")
	}
	if a.KillAfter < 0 || math.IsInf(a.KillAfter, 0) {
		d.refuse("kill_after", "a number of seconds that is not negative")
	}
	a.Stdin = a.Source()
	switch {
	case a.Input != "" && len(a.InputBytes) > 0:
		d.note("input_base64", `absent where there is an "input"`)
	case a.Stdin != StdinNone && a.Stdin != StdinText && a.Stdin != StdinStream:
		d.refuse("stdin", `"none", "text" or "stream"`)
	case a.Stdin != StdinText && a.Input != "":
		d.refuse("stdin", `"text" where there is an "input"`)
	case a.Stdin != StdinText && len(a.InputBytes) > 0:
		d.refuse("stdin", `"text" where there is an "input_base64"`)
	}
	return a, d.check()
}

// ExecObservation is the end of a program, or its state when the timeout passed.
type ExecObservation struct {
	// Content is the output of both streams in the order of arrival. Long output is cut in
	// the middle, in Stdout and Stderr too; each says how much is missing.
	Content string `json:"-"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	// StdoutBytes and StderrBytes are the bytes of Stdout and Stderr if these are not UTF-8,
	// otherwise nil.
	StdoutBytes []byte `json:"stdout_base64"`
	StderrBytes []byte `json:"stderr_base64"`
	// StdoutTotal and StderrTotal count all bytes that the program wrote.
	StdoutTotal int64 `json:"stdout_total"`
	StderrTotal int64 `json:"stderr_total"`
	// Truncated is true if Content, Stdout or Stderr is incomplete.
	Truncated bool `json:"truncated"`
	// PID is the program's process id; nil if it could not be started.
	PID *int `json:"pid"`
	// ExitCode is nil while the program runs and if a signal ended it.
	ExitCode *int `json:"exit_code"`
	// Signal is the name of the signal that ended it, such as "SIGKILL", or nil.
	Signal *string `json:"signal"`
	// EndedBy is "kill_after", "cancel" or "server" if that ended the program, or nil.
	EndedBy *string `json:"ended_by"`
	// CPUSeconds is the processor time of the program and the children that it waited
	// for; nil while it runs.
	CPUSeconds *float64 `json:"cpu_seconds"`
	// MaxRSS is the largest resident set of these in bytes; nil while the program runs, and
	// if it is smaller than the server's own, because the kernel reports that instead.
	MaxRSS *int64 `json:"max_rss"`
	// Waiting describes the running program, otherwise nil.
	Waiting *Waiting `json:"waiting,omitzero"`
	// Network has the denials of the network policy; nil without any.
	Network *Network `json:"-"`
}

func (o ExecObservation) wire() wire { return plainWire(o, o.message(), o.Content) }

// message says how the program ended.
func (o ExecObservation) message() string {
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
	return message
}

// note says for a model how the program ended, unless it succeeded.
func (o ExecObservation) note() string {
	lead, message := "\n", o.message()
	if o.Content == "" || strings.HasSuffix(o.Content, "\n") {
		lead = ""
	}
	switch {
	case o.ExitCode != nil && *o.ExitCode == 0 && o.EndedBy == nil:
		return ""
	case o.ExitCode == nil && o.Signal == nil && o.PID != nil:
		message = fmt.Sprintf("%s Its PID is %d.", message, *o.PID)
	}
	return lead + "[" + message + "]"
}
