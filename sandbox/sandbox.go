// Package sandbox is the model of sandboxes that all drivers share: their
// specification, their state, and the operations of drivers.
//
// A driver creates and manages sandboxes on one kind of platform. It implements
// [Driver], and the small interfaces beside it that its platform supports;
// [Needs] refuses the rest. Warm pools and the removal of expired sandboxes are
// implemented here, once, on top of drivers. Package drivertest is the suite that
// every driver passes.
package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"
)

// State is the state of a sandbox.
type State string

// The states in their order. A caller sees Ready, Busy and Idle only after the
// first command ran.
const (
	Pending  State = "pending"  // waits for its turn, its image or the server
	Creating State = "creating" // the container is being created
	Starting State = "starting" // the container runs, the first command has not run yet
	Ready    State = "ready"    // takes actions; whether it runs one was not asked
	Busy     State = "busy"     // runs an action
	Idle     State = "idle"     // waits for an action
	Paused   State = "paused"   // frozen in memory; Resume continues it
	Stopped  State = "stopped"  // no processes, the files are kept; Start starts it again
	Unknown  State = "unknown"  // the platform has lost the machine of the sandbox, which may still run
	Gone     State = "gone"     // removed, or being removed
)

var states = []State{Pending, Creating, Starting, Ready, Busy, Idle, Paused, Stopped, Unknown, Gone}

// Sandbox is a snapshot of the data of a sandbox.
type Sandbox struct {
	ID        string    // 12 hexadecimal digits
	Name      string    // for people; the id if none was given
	Owner     string    // a word for people and filters
	Image     string    // as in the request
	State     State     //
	Detail    string    // from the platform, such as "Up 3 minutes"
	Created   time.Time //
	Deadline  time.Time // zero: none
	IdleLimit time.Duration
	Spec      string            // hash of the specification
	Pool      string            // the warm pool it waits in, empty once it is claimed
	Outdated  bool              // it is in a pool, with another server than new sandboxes
	User      string            // NAME:UID of the commands
	AllowRoot bool              // an operator may run programs as root
	GPUs      GPUs              // that it has
	Labels    map[string]string // the caller's own
	Instance  string            // the platform's id of its container, Pod or process

	Access
}

// Access reaches the server in a sandbox. Its methods may be called concurrently.
type Access interface {
	// Dial opens a connection to the server. ctx bounds the opening.
	Dial(ctx context.Context) (net.Conn, error)
	// Key returns the key of requests to the server. It must not be printed. It fails
	// with fs.ErrNotExist for a sandbox that is not claimed yet.
	Key() (string, error)
}

// Dial opens a connection to the server. ctx bounds the opening; its values do not
// reach the driver.
func (s *Sandbox) Dial(ctx context.Context) (net.Conn, error) {
	return DialFunc(s.Access.Dial).Open(ctx)
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{12}$`)

// IsID reports whether text can be the id of a sandbox.
func IsID(text string) bool { return idPattern.MatchString(text) }

// Compare orders sandboxes by their age, the eldest first.
func (s *Sandbox) Compare(other *Sandbox) int {
	return cmp.Or(s.Created.Compare(other.Created), strings.Compare(s.ID, other.ID))
}

// WholeSeconds rounds a limit up, so that it never becomes 0, which means no limit.
func WholeSeconds(limit time.Duration) int { return int((limit + time.Second - 1) / time.Second) }

// Overdue returns why a sandbox whose deadline has passed must be removed, or "".
func (s *Sandbox) Overdue(now time.Time) string {
	if s.Deadline.IsZero() || now.Before(s.Deadline) {
		return ""
	}
	return "its time was up at " + s.Deadline.UTC().Format(time.RFC3339)
}

// minPrefix is the fewest digits of an id that name a sandbox: with fewer, a mistyped name of hexadecimal
// digits would name another's.
const minPrefix = 6

// Find returns the sandbox that ref names: by its id, its name, or the first digits
// of its id, six at least, in this order. It fails with ErrNotFound or ErrAmbiguous.
func Find(all []*Sandbox, ref string) (*Sandbox, error) {
	var found []*Sandbox
	for _, match := range []func(s *Sandbox) bool{
		func(s *Sandbox) bool { return s.ID == ref },
		func(s *Sandbox) bool { return s.Name == ref },
		func(s *Sandbox) bool { return len(ref) >= minPrefix && strings.HasPrefix(s.ID, ref) },
	} {
		for _, s := range all {
			if ref != "" && match(s) {
				found = append(found, s)
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		return nil, fmt.Errorf("%q is %w: %d sandboxes answer to it", ref, ErrAmbiguous, len(found))
	}
	if ref != "" && slices.ContainsFunc(all, func(s *Sandbox) bool { return strings.HasPrefix(s.ID, ref) }) {
		return nil, fmt.Errorf("%q: %w; of an id write at least %d digits", ref, ErrNotFound, minPrefix)
	}
	return nil, fmt.Errorf("%q: %w", ref, ErrNotFound)
}
