package api

import (
	"fmt"
	"strconv"
)

// RunAction runs a command in a persistent shell, types into the command that
// is running there, or (Command empty) asks for its further output.
type RunAction struct {
	Common
	// Command is the text for the shell, verbatim.
	Command string
	// IsInput makes Command input for the running process; "C-c" and the like
	// are keys.
	IsInput bool
	// Blocking turns the soft timeout off.
	Blocking bool
	// IsStatic runs the command in a fresh shell that is closed afterwards.
	IsStatic bool
	// Cwd is the directory of a static command; empty means the initial one.
	Cwd string
	// Reset ends the session's shell with all that runs in it, and runs Command,
	// unless it is empty, in a new one.
	Reset bool
	// Hidden is echoed; a hidden command's output is not shortened.
	Hidden bool
}

// Kind returns "run".
func (RunAction) Kind() string { return "run" }
func (RunAction) action()      {}

// decodeRun reads a run. A command that is no string makes it an
// InvalidAction.
func decodeRun(f *fields) Action {
	v, sent := f.need("command")
	command, isText := v.(string)
	a := RunAction{
		Common:   decodeCommon(f),
		Command:  command,
		IsInput:  f.flag("is_input", false),
		Blocking: f.flag("blocking", false),
		IsStatic: f.flag("is_static", false),
		Cwd:      f.text("cwd", ""),
		Reset:    f.flag("reset", false),
		Hidden:   f.flag("hidden", false),
	}
	f.take("confirmation_state") // the client's own affair
	switch {
	case !sent || isText:
		return a
	case a.Hidden:
		f.complain("command", v, "a string")
		return a
	}
	return InvalidAction{Of: a, Reason: fmt.Sprintf("%s %q must be a string, got %s", f.of, "command", describe(v))}
}

func (a RunAction) encodeArgs(w *writer) {
	w.text("command", a.Command)
	w.flag("is_input", a.IsInput)
	w.flag("blocking", a.Blocking)
	w.flag("is_static", a.IsStatic)
	if a.Cwd == "" {
		w.null("cwd")
	} else {
		w.text("cwd", a.Cwd)
	}
	w.flag("hidden", a.Hidden)
	if a.Reset { // unknown to the reference server
		w.flag("reset", true)
	}
	a.encodeCommon(w)
}

// RunObservation is the outcome of a RunAction, or of a part of it.
type RunObservation struct {
	// Content is what a person would have seen on the terminal.
	Content string
	// Command is the command as it was sent, without white space around it.
	Command  string
	Metadata RunMetadata
	Hidden   bool
}

// RunMetadata says how a command ended and in what state it left the shell.
// The pointers are nil while the command still runs.
type RunMetadata struct {
	// ExitCode is the shell's $?, or -1 while the command still runs.
	ExitCode int
	// PID is the shell's $!, -1 when there never was a background job.
	PID               int
	Username          *string
	Hostname          *string
	WorkingDir        *string
	PyInterpreterPath *string
	// Prefix and Suffix are notes of the server, put around Content by the client.
	Prefix string
	Suffix string
}

// Kind returns "run".
func (RunObservation) Kind() string { return "run" }
func (RunObservation) observation() {}

func (o RunObservation) encode(w *writer) {
	exit := strconv.Itoa(o.Metadata.ExitCode)
	w.head("Command `"+o.Command+"` executed with exit code "+exit+".", o.Kind(), o.Content)
	w.text("command", o.Command)
	w.open("metadata")
	o.Metadata.encode(w)
	w.close()
	w.flag("hidden", o.Hidden)
	w.close()
	w.flag("success", o.Metadata.ExitCode == 0)
	w.close()
}

func (m RunMetadata) encode(w *writer) {
	w.integer("exit_code", m.ExitCode)
	w.integer("pid", m.PID)
	w.textOrNull("username", m.Username)
	w.textOrNull("hostname", m.Hostname)
	w.textOrNull("working_dir", m.WorkingDir)
	w.textOrNull("py_interpreter_path", m.PyInterpreterPath)
	w.text("prefix", m.Prefix)
	w.text("suffix", m.Suffix)
}

func decodeRunObservation(content string, f *fields) (Observation, error) {
	o := RunObservation{Content: content, Command: f.needText("command"), Hidden: f.flag("hidden", false)}
	meta := fields{of: "observation \"run\": metadata", values: f.object("metadata")}
	o.Metadata = RunMetadata{
		ExitCode:          meta.integer("exit_code", -1),
		PID:               meta.integer("pid", -1),
		Username:          meta.textOrNil("username"),
		Hostname:          meta.textOrNil("hostname"),
		WorkingDir:        meta.textOrNil("working_dir"),
		PyInterpreterPath: meta.textOrNil("py_interpreter_path"),
		Prefix:            meta.text("prefix", ""),
		Suffix:            meta.text("suffix", ""),
	}
	return o, meta.check()
}
