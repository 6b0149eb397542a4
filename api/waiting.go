package api

// What a command that runs does, as [Waiting.For] says it.
const (
	WaitsForInput      = "input"      // it waits for input on its terminal, or on the standard input of a program
	WaitsBusy          = "busy"       // it waits for nothing: it runs
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

// Waiting is what the kernel knows of a command or a program that has not ended. It says
// nothing that is guessed from a silence.
type Waiting struct {
	// For is what the process does that says most: one of the words above.
	For string `json:"for"`
	// On is the file, the peer ("tcp 192.0.2.1:443") or the thing that For is about.
	On string `json:"on,omitzero"`
	// Or are other words for what wakes the process too, such as "network" for a program
	// that waits for the terminal and a connection.
	Or []string `json:"or,omitzero"`
	// PID and Command are the process and the start of its command line; absent where there
	// is no process.
	PID     int    `json:"pid,omitzero"`
	Command string `json:"command,omitzero"`
	// Holder is the process that holds the lock of a file, where the kernel says it.
	Holder int `json:"holder,omitzero"`
	// Prompt is the last line of the output where input is waited for.
	Prompt string `json:"prompt,omitzero"`
	// Silent is for how many seconds there was no output.
	Silent Float `json:"silent"`
	// Processes are the others of the command, and those that the shell has in the
	// background, at most 16; More counts the rest.
	Processes []WaitingProcess `json:"processes,omitzero"`
	More      int              `json:"more,omitzero"`
	// Ports are the TCP ports that the process listens on.
	Ports []int `json:"ports,omitzero"`
	// Text says it in a sentence.
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
