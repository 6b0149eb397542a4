package api

import "time"

// Session describes one persistent shell of a sandbox.
type Session struct {
	// Name is "default" for the unnamed one.
	Name string `json:"name"`
	// State is "idle" or "busy".
	State string `json:"state"`
	// WorkingDir is where the last finished command left the shell.
	WorkingDir string `json:"working_dir"`
	// PID is the shell's process id.
	PID int `json:"pid"`
	// Shell is the program, such as "/bin/bash".
	Shell string `json:"shell"`
	// Started is when the shell was started.
	Started time.Time `json:"started"`
	// Commands counts the commands that were run.
	Commands int64 `json:"commands"`
	// OutputBytes counts the raw bytes that came from the terminal.
	OutputBytes int64 `json:"output_bytes"`
}
