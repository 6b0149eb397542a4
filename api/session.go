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
	// WorkingDir is where the last finished command left the shell; where there is
	// none, where a cell would begin.
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
	// Kernel is nil where no cell was run.
	Kernel *Kernel `json:"kernel,omitzero"`
	// Waiting is what the command in the shell does; nil where none runs.
	Waiting *Waiting `json:"waiting,omitzero"`
}

// Kernel describes what runs the cells of a session.
type Kernel struct {
	// State is "busy" while a cell runs or the kernel starts to run one, "idle"
	// otherwise, and "ended" where the process is gone, which the next cell reports
	// before it runs in a new one.
	State string `json:"state"`
	// Since is when it came into its state.
	Since time.Time `json:"since"`
	// Python is the interpreter's path, and PID its process id; absent where none
	// runs.
	Python string `json:"python,omitzero"`
	PID    int    `json:"pid,omitzero"`
}

// CheckSession refuses, with an *Error of status 400, what cannot be the name of
// a session.
func CheckSession(name string) error {
	if err := checkSession(name); err != nil {
		return BadRequest(err.Error())
	}
	return nil
}

// TerminalSize asks for the size of a terminal: what a client of one sends as
// text, where what it types goes as bytes.
type TerminalSize struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

var terminalSizeShape = shapeOf(TerminalSize{})

// DecodeTerminalSize reads a size; both numbers must be positive.
func DecodeTerminalSize(data []byte) (TerminalSize, error) {
	s, err := decodeObject[TerminalSize](terminalSizeShape, "size: member", `an object {"rows": 24, "cols": 80}`, data, maxValues, true)
	if err != nil {
		return TerminalSize{}, err
	}
	if s.Rows < 1 || s.Cols < 1 {
		return TerminalSize{}, fmt.Errorf("size of %d rows and %d columns: both must be positive", s.Rows, s.Cols)
	}
	return s, nil
}
