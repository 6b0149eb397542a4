package sandbox

import (
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/actiond/actiond/egress"
)

// Removal is something that Prune removed, or would.
type Removal struct {
	ID     string // of the sandbox; otherwise the name of a container or volume
	Name   string
	Reason string
}

// FileInfo describes a file or directory of a sandbox. Links are not followed.
type FileInfo struct {
	Name string // the last element of its path
	Size int64
	Mode fs.FileMode
	// LinkTarget is the target of a symbolic link, as the agent wrote it.
	LinkTarget string
}

// LogOptions select lines of a server's log.
type LogOptions struct {
	Follow     bool
	Tail       *int      // the last so many lines; nil: all
	Since      time.Time // zero: from the start
	Timestamps bool
}

// Event is something that happened to a sandbox.
type Event struct {
	Time time.Time
	ID   string // of the sandbox
	Name string // as at its creation
	What string // the platform's term, such as create, start, die, oom, pause, unpause, rename, destroy …
	Code string // exit status, where it died
}

// Stats has the resource usage of a sandbox.
type Stats struct {
	Time                time.Time
	CPU                 float64 // processors busy since the last one; 0 in the first
	Memory, MemoryLimit uint64  // bytes, without memory that the kernel can reclaim
	Pids                uint64
	NetIn, NetOut       uint64 // bytes since the start
	DiskIn, DiskOut     uint64 // bytes since the start
}

// Details describes one sandbox in the terms of its platform. Fields that do not apply to a
// platform are zero.
type Details struct {
	Instance         string // the platform's id of its container, Pod or process
	Pod              string // NAMESPACE/NAME, on Kubernetes
	ImageID          string
	Started, Ended   time.Time // zero: not yet
	ExitCode         int       // of the server, where it ended
	OutOfMemory      bool      // the memory limit ended a process in it
	Removing         bool      // the platform is removing it
	Network          string
	Names            string   // as Network.Names; "" without a network policy
	Addresses        []string // in its networks
	WorkDir          string   // of shells
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

// Why a sandbox ended.
const (
	EndDeadline = "deadline" // its time was up
	EndIdle     = "idle"     // it was idle for longer than its limit
	EndMemory   = "memory"   // its memory limit ended its server
	EndKilled   = "killed"   // its server was killed
	EndFailed   = "failed"   // its server failed
	EndRemoved  = "removed"  // a caller removed it
	EndStopped  = "stopped"  // it was stopped, or ended by itself
)

// killed is the exit code of a program that SIGKILL ended.
const killed = 137

// End returns why a sandbox ended that is stopped or gone, as far as its platform knows.
// A server that no caller stopped ends with 0 at a limit alone.
func (d *Details) End(s *Sandbox, now time.Time) string {
	switch {
	case s.Overdue(now) != "":
		return EndDeadline
	case d.Removing:
		return EndRemoved
	case d.ExitCode == killed && d.OutOfMemory:
		return EndMemory
	case d.ExitCode == killed:
		return EndKilled
	case d.ExitCode != 0, s.State == Gone && d.Ended.IsZero():
		return EndFailed
	case s.IdleLimit > 0 && !d.Ended.IsZero():
		return EndIdle
	}
	return EndStopped
}

// Network is the network of a sandbox that has a policy.
type Network struct {
	// Policy has no values of secrets.
	Policy  egress.Policy
	Private []netip.Prefix // private addresses to which rules may lead
	// Names says whether programs that know no proxy can connect to names: "on", "off", "unknown",
	// or why they cannot although they should.
	Names string
	// Generation grows with every change of the policy.
	Generation int64
	// Up reports whether the egress proxy answers and applies this generation. The fields below
	// are zero otherwise, and Problem says why.
	Up             bool
	Problem        string
	Open           int   // connections
	Sent, Received int64 // bytes
	Denied         int64 // the number of the last refused connection
}

// NetworkOf returns the network of a record as callers see it: without the values of secrets.
func NetworkOf(c *egress.Conf) *Network {
	return &Network{Policy: c.Policy.WithoutValues(), Private: c.Private, Generation: c.Generation}
}

// With adds the status of the egress proxy to n, or the error of asking for it unless ctx ended.
func (n *Network) With(ctx context.Context, s egress.Status, err error) (*Network, error) {
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		n.Problem = err.Error()
	default:
		n.Up, n.Open, n.Sent, n.Received, n.Denied = true, s.Open, s.Sent, s.Received, s.Denied
	}
	return n, nil
}

// namesTime is how long a server may take to say whether it resolves names.
const namesTime = 2 * time.Second

// AskNames returns [Network.Names] for a sandbox where names should be on, by the state that its
// server reports within two seconds.
func AskNames(ctx context.Context, ask func(context.Context) (Status, error)) string {
	ctx, cancel := context.WithTimeout(ctx, namesTime)
	defer cancel()
	switch status, err := ask(ctx); {
	case err != nil:
		return "unknown"
	case status.NamesProblem != "":
		return status.NamesProblem
	}
	return "on"
}

// NoPolicy returns the error for a sandbox that was created without a network policy.
func NoPolicy(s *Sandbox) error {
	return fmt.Errorf("%w: sandbox %s was made without a network policy, and cannot get one later", ErrConflict, s.ID)
}

// Finding is a result of an examination.
type Finding struct {
	// Status is "ok", "weaker" (less protection), "stronger" (more protection is
	// possible), "note", or "missing" (sandboxes cannot be created without it).
	Status string `json:"status"`
	About  string `json:"about"`
	Text   string `json:"text"`
	// So is the consequence, and the advice.
	So string `json:"so,omitempty"`
}
