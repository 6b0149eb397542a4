package tools

import (
	"time"

	"github.com/actiond/actiond/api"
)

// NeedsBackground is the ability to tell of programs that go on after their answer.
const NeedsBackground = "background"

// Background is a call about programs that go on after their answer. With an Action it starts one; without, it reads
// the output of one, or lists them.
type Background struct {
	// Delay is how long to wait before the answer.
	Delay time.Duration
	// PID is the program to read, 0 for a list, and Lines how many of its last lines.
	PID, Lines int
}

const (
	backgroundDelay = 200 // milliseconds, as Gemini CLI has it
	backgroundLines = 100
	maxDelay        = int(10 * time.Minute / time.Millisecond)
)

// delay returns the argument delay_ms.
func (v values) delay(def int) time.Duration {
	return time.Duration(min(v.integer("delay_ms", def), maxDelay)) * time.Millisecond
}

// inBackground starts a command as the session's shell would, in a directory, "" for the shell's.
func (v values) inBackground(command, dir string) (Call, error) {
	call, err := program(api.ExecAction{
		Common: v.common(), Command: command, Cwd: api.Directory(dir), Inherit: true, Stdin: api.StdinNone,
	})
	if err == nil {
		call.Background = &Background{Delay: v.delay(backgroundDelay)}
	}
	return call, err
}

// backgroundTools are Gemini CLI's tools for what run_shell_command started.
var backgroundTools = []tool{
	{
		name: "list_background_processes", needs: NeedsBackground,
		about:   "List the programs that run_shell_command started with is_background, the newest first: their PIDs, whether they run, and how they ended.",
		example: `{}`,
		params:  []param{silentRisk, thought},
		build:   func(values) (Call, error) { return Call{Background: &Background{}}, nil },
	},
	{
		name: "read_background_output", needs: NeedsBackground,
		about: "Read the last lines that a program printed which run_shell_command started with is_background, and whether it runs. What was printed stays there to be read, also after the program ended. " +
			"To end it use run_shell_command with kill -- -PID.",
		example: `{"pid": 4711, "lines": 50}`,
		params: []param{
			{name: "pid", kind: integer, min: new(1), required: true, about: "The PID of the program, as the answer to its start or the list has it."},
			{name: "lines", kind: integer, min: new(1), about: "How many of the last lines; 100 when left out."},
			{name: "delay_ms", kind: integer, min: new(0), about: "Milliseconds to wait first, so that there is something to read."},
			silentRisk, thought,
		},
		build: func(v values) (Call, error) {
			return Call{Background: &Background{PID: v.integer("pid", 0), Lines: v.integer("lines", backgroundLines), Delay: v.delay(0)}}, nil
		},
	},
}
