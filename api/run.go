package api

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// RunAction runs a command in a persistent shell, types into the command that is
// running there, or (with an empty Command) waits for more of its output.
type RunAction struct {
	// Command is the text for the shell, verbatim.
	Command string `json:"command"`
	// IsInput makes Command input for the running process; "C-c" and the like
	// are keys.
	IsInput bool `json:"is_input"`
	// Blocking turns the soft timeout off.
	Blocking bool `json:"blocking"`
	// IsStatic runs the command in a fresh shell that is closed afterwards.
	IsStatic bool `json:"is_static"`
	// Cwd is the directory of a static command; empty means the initial one.
	Cwd Directory `json:"cwd"`
	// Hidden is repeated in the observation; a hidden command's output is not shortened.
	Hidden bool `json:"hidden"`
	// Reset ends the session's shell with all its processes, and runs Command,
	// unless it is empty, in a new one. The reference server does not know it.
	Reset bool `json:"reset,omitzero"`
	// ReturnOnInput answers as soon as the command waits for input. The reference server
	// does not know it.
	ReturnOnInput bool `json:"return_on_input,omitzero"`
	// Dialect is "" for one command, and text and control keys as input. "openhands-v1"
	// has names for keys, the others take commands of several lines, and "actiond" both.
	Dialect Dialect `json:"dialect,omitzero"`
	// Reference reads Command as the reference does: without white space around it, also as
	// input, and with carriage returns as they are.
	Reference bool `json:"-"`
	// Advice is the [RunAdvice] in the note on a command that goes on; "" is the legacy
	// protocol's. It is not sent.
	Advice string `json:"-"`
	// Silence is how long the command may be silent before it is answered; 0 is the server's
	// default. It is not sent.
	Silence time.Duration `json:"-"`
	Common
}

// ReadyCheck is the command by which drivers find out that a sandbox carries out commands.
var ReadyCheck = RunAction{Command: "true", Blocking: true, Hidden: true}

// RunAdvice tells a model what it can do while a command goes on, in the words of the reference
// (docs/reference/openhands-protocol.md, section 3.2): by a tool of that name, which may take
// input for the command and a timeout.
func RunAdvice(tool string, input, timeout bool) string {
	text := "You may wait longer to see additional output by sending empty command ''"
	if input {
		text += `, send other commands to interact with the current process, send keys ("C-c", "C-z", "C-d") to interrupt/kill the previous command before sending your new command`
	}
	if timeout {
		text += ", or use the timeout parameter in " + tool + " for future commands"
	}
	return text + "."
}

// Directory is the path of a directory. The empty one is encoded as null.
type Directory string

// MarshalJSON writes null for an empty path.
func (d Directory) MarshalJSON() ([]byte, error) {
	if d == "" {
		return []byte("null"), nil
	}
	return jsontext.AppendQuote(nil, string(d))
}

// settle answers a command that is not a string with an observation.
func (a RunAction) settle(d *decoding) (Action, error) {
	if a.Hidden {
		return a, d.check()
	}
	wrong, invalid := d.take("command")
	if err := d.check(); err != nil || !invalid {
		return a, err
	}
	return InvalidAction{Of: a, Reason: wrong.text}, nil
}

// RunObservation is the result of a RunAction, or a part of it.
type RunObservation struct {
	// Content is the output as a person would have seen it on the terminal.
	Content string `json:"-"`
	// Command is the command as it was sent, without white space around it.
	Command  string      `json:"command"`
	Metadata RunMetadata `json:"metadata"`
	Hidden   bool        `json:"hidden"`
	// Outcome and Code are the outcome of the command; "" is derived from the exit code and
	// the suffix.
	Outcome Outcome `json:"-"`
	Code    string  `json:"-"`
	// Shortened is true if Content is not the whole output. It is not sent.
	Shortened bool `json:"-"`
	// Network has the denials of the network policy; nil without any.
	Network *Network `json:"-"`
}

// RunMetadata describes the end of a command and the state of the shell after it.
// The pointers are nil while the command runs.
type RunMetadata struct {
	// ExitCode is the shell's $?, or -1 while the command runs.
	ExitCode int `json:"exit_code"`
	// PID is the shell's $!, -1 before the first background job.
	PID               int     `json:"pid"`
	Username          *string `json:"username"`
	Hostname          *string `json:"hostname"`
	WorkingDir        *string `json:"working_dir"`
	PyInterpreterPath *string `json:"py_interpreter_path"`
	// Prefix and Suffix are notes of the server, put around Content by the client.
	Prefix string `json:"prefix"`
	Suffix string `json:"suffix"`
	// Waiting describes the running command, otherwise nil. The reference server does not send
	// it, and its client ignores it.
	Waiting *Waiting `json:"waiting,omitzero"`
	// ShellReplaced reports how the shell ended and was replaced; nil if it still runs. Suffix
	// has it in words. The reference server does not send it, and its
	// client ignores it.
	ShellReplaced *ShellReplaced `json:"shell_replaced,omitzero"`
}

// ShellReplaced is how a shell ended.
type ShellReplaced struct {
	// Reason is "exited", "killed" (by Signal), or why the server ended the shell:
	// "no_report", it no longer reported the end of a command, "no_begin", it could not begin
	// one, "terminal_lost", "no_exec", it was told to run no commands, or "cancelled", its command
	// was cancelled and did not end.
	Reason string `json:"reason"`
	// Signal is the name of the signal that killed it, such as "SIGKILL", or nil.
	Signal *string `json:"signal"`
}

var (
	unknownMetadata = RunMetadata{ExitCode: -1, PID: -1}
	metadataShape   = openShapeOf(unknownMetadata)
)

// UnmarshalJSON reads metadata as the protocol has them: absent numbers are -1.
func (m *RunMetadata) UnmarshalJSON(data []byte) (err error) {
	*m, err = decodeInner[RunMetadata](metadataShape, "an object", data, false)
	return err
}

func (o RunObservation) wire() wire {
	extras := struct {
		plainRun
		Metadata metadata `json:"metadata"`
	}{plainRun(o), metadata{plainMetadata: plainMetadata(o.Metadata)}}
	if o.Metadata.PID >= 0 {
		extras.Metadata.PID = &o.Metadata.PID
	}
	w := wire{Message: o.ended(), Content: o.Content, Extras: extras}
	switch outcome, _ := o.outcome(); outcome {
	case OutcomeRunning:
		w.Message = fmt.Sprintf("Command `%s` goes on.", o.Command)
	case OutcomeNotStarted:
		w.Message = fmt.Sprintf("Command `%s` was not executed.", o.Command)
	case OutcomeSucceeded, OutcomeFailed, OutcomeCancelled, OutcomeUnknown:
	}
	return w
}

// ended says of every command that it ended, as the legacy protocol does.
func (o RunObservation) ended() string {
	return fmt.Sprintf("Command `%s` executed with exit code %d.", o.Command, o.Metadata.ExitCode)
}

// The types without methods, whose extras are encoded by their tags.
type (
	plainRun      RunObservation
	plainMetadata RunMetadata
)

// metadata has no pid before the first background job.
type metadata struct {
	plainMetadata
	PID *int `json:"pid,omitzero"`
}
