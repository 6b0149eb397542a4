package api

// The states of a running command, in [Waiting.For].
const (
	WaitsForInput      = "input"      // it waits for input on its terminal, or on the standard input of a program
	WaitsBusy          = "busy"       // it runs and does not wait
	WaitsForDisk       = "disk"       // it waits in the kernel, most often for a disk, and no signal wakes it
	WaitsStopped       = "stopped"    // a signal stopped it
	WaitsForNetwork    = "network"    // it waits for the other side of a connection
	WaitsForTime       = "sleep"      // it sleeps
	WaitsForLock       = "lock"       // it waits for a lock of a file
	WaitsUnknown       = "unknown"    // the kernel does not say
	WaitsForConnection = "connection" // it is a server that waits for a client
	WaitsForOther      = "other"      // it waits for something else, which On says
	WaitsForMutex      = "mutex"      // it waits for another thread or process
	WaitsForPipe       = "pipe"       // it waits for the other side of a pipe
	WaitsForChild      = "child"      // it waits for a child process
)

// Waiting describes a running command or program by the state of its processes in the kernel.
// It guesses nothing from missing output.
type Waiting struct {
	// For is the state of the most relevant process: one of the constants above.
	For string `json:"for"`
	// On is the object of For: a file, a peer ("tcp 192.0.2.1:443"), or another one.
	On string `json:"on,omitzero"`
	// Or are the other events that wake the process, such as "network" for a program that
	// waits for the terminal and a connection.
	Or []string `json:"or,omitzero"`
	// PID and Command are the process and the start of its command line; absent without a
	// process.
	PID     int    `json:"pid,omitzero"`
	Command string `json:"command,omitzero"`
	// Holder is the process that holds the lock of a file, if the kernel reports it.
	Holder int `json:"holder,omitzero"`
	// Prompt is the last line of the output if the process waits for input.
	Prompt string `json:"prompt,omitzero"`
	// Silent is the time since the last output in seconds.
	Silent Float `json:"silent"`
	// Processes are the others of the command, and those that the shell has in the
	// background, at most 16; More counts the rest.
	Processes []WaitingProcess `json:"processes,omitzero"`
	More      int              `json:"more,omitzero"`
	// Ports are the TCP ports that the process listens on.
	Ports []int `json:"ports,omitzero"`
	// Text is the same as a sentence.
	Text string `json:"text"`
}

// WaitingProcess is one of the other processes of a command.
type WaitingProcess struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	// Background says that it is in the background of the shell.
	Background bool `json:"background,omitzero"`
	// Ports are the TCP ports that it listens on.
	Ports []int `json:"ports,omitzero"`
}
