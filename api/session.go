package api

import (
	"fmt"
	"time"
)

// Session describes one session of a sandbox: a persistent shell, a kernel for
// cells of Python, or both.
type Session struct {
	// Name is "default" for the unnamed one.
	Name string `json:"name"`
	// State is "busy" while a command or a cell runs, else "idle".
	State string `json:"state"`
	// WorkingDir is the shell's directory after the last finished command; without a
	// shell, the initial directory of a cell.
	WorkingDir string `json:"working_dir"`
	// PID is the shell's process id; 0 without a shell.
	PID int `json:"pid"`
	// Shell is the program, such as "/bin/bash"; "" without a shell.
	Shell string `json:"shell"`
	// Started is when the shell was started; without a shell, when its kernel
	// came into its state.
	Started time.Time `json:"started"`
	// Commands counts the commands that were run.
	Commands int64 `json:"commands"`
	// OutputBytes counts the raw bytes that came from the terminal.
	OutputBytes int64 `json:"output_bytes"`
	// Kernel is nil before the first cell.
	Kernel *Kernel `json:"kernel,omitzero"`
	// Waiting describes the command that runs in the shell, or is nil.
	Waiting *Waiting `json:"waiting,omitzero"`
}

// Kernel describes the process that runs the cells of a session.
type Kernel struct {
	// State is "busy" while a cell runs or the kernel starts for one, "ended" if the
	// process is gone, and "idle" otherwise. The next cell reports the end and runs
	// in a new kernel.
	State string `json:"state"`
	// Since is the begin of the state.
	Since time.Time `json:"since"`
	// Python is the interpreter's path, and PID its process id; absent without a
	// process.
	Python string `json:"python,omitzero"`
	PID    int    `json:"pid,omitzero"`
}

// CheckSession refuses, with an *Error of status 400, an invalid name of a session.
func CheckSession(name string) error {
	if err := checkSession(name); err != nil {
		return BadRequest(err.Error())
	}
	return nil
}

// TerminalSize sets the size of a terminal. Clients of a terminal send it as a text
// message, and typed bytes as binary ones.
type TerminalSize struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

var terminalSizeShape = shapeOf(TerminalSize{})

// DecodeTerminalSize reads a size; both numbers must be positive.
func DecodeTerminalSize(data []byte) (TerminalSize, error) {
	s, err := decodeObject[TerminalSize](terminalSizeShape, "size: member", `an object {"rows": 24, "cols": 80}`, data,
		maxValues, true)
	if err != nil {
		return TerminalSize{}, err
	}
	if s.Rows < 1 || s.Cols < 1 {
		return TerminalSize{}, fmt.Errorf("size of %d rows and %d columns: both must be positive", s.Rows, s.Cols)
	}
	return s, nil
}
