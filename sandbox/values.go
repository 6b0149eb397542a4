package sandbox

import (
	"io/fs"
	"time"
)

// Removal is something that Prune removed, or would.
type Removal struct {
	ID     string // of the sandbox; a container's or volume's name for what is no sandbox
	Name   string
	Reason string
}

// FileInfo is a file or directory of a sandbox, itself and not what it leads to.
type FileInfo struct {
	Name string // the last element of its path
	Size int64
	Mode fs.FileMode
	// LinkTarget is where a symbolic link leads, as the agent wrote it.
	LinkTarget string
}

// LogOptions say which lines of a server's log are wanted.
type LogOptions struct {
	Follow     bool
	Tail       int       // the last so many lines; 0: all
	Since      time.Time // zero: from the start
	Timestamps bool
}

// Event is something that happened to a sandbox.
type Event struct {
	Time time.Time
	ID   string // of the sandbox
	Name string // as at its creation
	What string // the platform's word, such as create, start, die, oom, pause, unpause, rename, destroy …
	Code string // exit status, where it died
}

// Stats is what a sandbox uses.
type Stats struct {
	Time                time.Time
	CPU                 float64 // processors busy since the last one; 0 in the first
	Memory, MemoryLimit uint64  // bytes; what the kernel could give back does not count
	Pids                uint64
	NetIn, NetOut       uint64 // bytes since the start
	DiskIn, DiskOut     uint64 // bytes since the start
}

// Image is what the platform knows of an image.
type Image struct {
	ID      string
	Created time.Time // zero: not known
	Size    int64     // bytes
}

// Details are what a platform knows of one sandbox. Fields that a platform has no
// use for are zero.
type Details struct {
	Instance         string // the platform's id of what runs it
	ImageID          string
	Started, Ended   time.Time // zero: not yet
	ExitCode         int       // of the server, where it ended
	OutOfMemory      bool      // the memory limit ended something in it
	Network          string
	Addresses        []string // in its networks
	WorkDir          string   // where shells start
	Memory, Pids     int64    // limits
	CPUs             float64  // limit
	Runtime          string
	ReadOnly         bool
	Mounts           []Mount // the caller's
	SecurityOpts     []string
	LostProtection   []string // compared with the defaults
	GainedProtection []string
	Server           string // SHA-256 of the server in it
}

// Finding is a result of an examination.
type Finding struct {
	// Status is "ok", "weaker" (less protection), "stronger" (more protection can be
	// had), "note", or "missing" (sandboxes cannot be created without it).
	Status string `json:"status"`
	About  string `json:"about"`
	Text   string `json:"text"`
	// So says what follows, and what to do.
	So string `json:"so,omitempty"`
}
