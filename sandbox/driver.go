package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/actiond/actiond/egress"
)

// Driver creates and manages sandboxes on one kind of platform. Its methods may be
// called concurrently, also by several processes that use the same state. Their
// contexts bound the wait; an operation that was cancelled leaves all or nothing.
// They fail with [ErrUnknown] where the platform cannot be reached.
//
// Progress reports and the logger are part of the driver's own configuration, because
// pools and reapers use the driver too.
type Driver interface {
	// Platform names the platform in sentences, such as "the Docker engine".
	Platform() string
	// Check sets the defaults of spec, refuses options that the platform cannot honour
	// with [ErrInvalid], and returns the hash of the completed spec.
	Check(ctx context.Context, spec *Spec) (hash string, err error)
	// Create makes a sandbox and returns when a command ran in its shell. Its id is
	// [ID] of the key. With the key of an existing sandbox it returns that one,
	// started or resumed if need be, or fails with [ErrConflict] if the hash differs.
	Create(ctx context.Context, spec Spec) (*Sandbox, error)
	// List returns all sandboxes of this controller, the eldest first.
	List(ctx context.Context) ([]*Sandbox, error)
	// Get finds a sandbox as [Find] does.
	Get(ctx context.Context, ref string) (*Sandbox, error)
	// Delete removes a sandbox in any state, with all that belongs to it. A sandbox that no
	// longer exists is not an error.
	Delete(ctx context.Context, s *Sandbox) error
	// Close releases the resources of the driver. Sandboxes keep running.
	io.Closer
}

// The optional abilities of drivers. [Needs] finds them.
type (
	// Watcher reports events of sandboxes.
	Watcher interface {
		// Events calls each for every event from now on, until ctx ends or each returns
		// an error, which is passed on.
		Events(ctx context.Context, each func(Event) error) error
	}
	// Renewer changes deadlines.
	Renewer interface {
		// Renew changes the deadline of a sandbox, also in its server; the zero time
		// removes the deadline.
		Renew(ctx context.Context, s *Sandbox, deadline time.Time) error
	}
	// KeyReader reads the keys of many sandboxes at once.
	KeyReader interface {
		// ReadKeys reads the keys of all sandboxes at once, which their Key then returns.
		ReadKeys(ctx context.Context, all []*Sandbox) error
	}
	// Starter stops sandboxes, keeps their files, and starts them again.
	Starter interface {
		// Stop ends the processes; grace is how long they may take to end by themselves.
		Stop(ctx context.Context, s *Sandbox, grace time.Duration) error
		// Start returns when a command ran in the shell.
		Start(ctx context.Context, s *Sandbox) error
	}
	// Pauser freezes sandboxes in memory.
	Pauser interface {
		Pause(ctx context.Context, s *Sandbox) error
		Resume(ctx context.Context, s *Sandbox) error
	}
	// Files reads and writes files of sandboxes. Paths are absolute.
	Files interface {
		// WorkDir returns the working directory of the shells of a sandbox.
		WorkDir(ctx context.Context, s *Sandbox) (string, error)
		// Stat describes a file and follows no link. It fails with fs.ErrNotExist.
		Stat(ctx context.Context, s *Sandbox, path string) (FileInfo, error)
		// CopyOut reads a file or directory as a tar archive, which the agent may have
		// forged.
		CopyOut(ctx context.Context, s *Sandbox, path string) (io.ReadCloser, error)
		// CopyIn unpacks a tar archive into a directory, for the user of the commands.
		CopyIn(ctx context.Context, s *Sandbox, dir string, archive io.Reader) error
	}
	// Logger has the logs of servers.
	Logger interface {
		// Logs writes the log of the server of a sandbox, and with Follow also later
		// lines, until ctx or the sandbox ends.
		Logs(ctx context.Context, s *Sandbox, o LogOptions, stdout, stderr io.Writer) error
	}
	// Meter measures sandboxes.
	Meter interface {
		// Stats calls each about once a second with the resource usage of a sandbox, or
		// once if stream is false, until ctx or the sandbox ends or each returns an error,
		// which is passed on.
		Stats(ctx context.Context, s *Sandbox, stream bool, each func(Stats) error) error
	}
	// Addresser returns the address of a sandbox's server on this machine: unix:///PATH, or
	// http://HOST:PORT. It holds until the sandbox stops.
	Addresser interface {
		Address(s *Sandbox) (string, error)
	}
	// Inspector returns more about a sandbox than List.
	Inspector interface {
		Inspect(ctx context.Context, s *Sandbox) (*Details, error)
	}
	// Pruner removes expired sandboxes and leftovers.
	Pruner interface {
		// Prune removes expired sandboxes and the leftovers of crashed creators and
		// claimers, unless another caller works on them. With dryRun it only reports.
		Prune(ctx context.Context, dryRun bool) ([]Removal, error)
	}
	// ServerPruner keeps copies of the server on the platform.
	ServerPruner interface {
		// PruneServers removes copies of other versions that no sandbox uses, and returns
		// their names.
		PruneServers(ctx context.Context) ([]string, error)
	}
	// Images knows the platform's images.
	Images interface {
		// ImageNames returns the names of the existing images, sorted.
		ImageNames(ctx context.Context) ([]string, error)
	}
	// Doctor examines the platform.
	Doctor interface {
		// Examine returns its findings, also beside an error.
		Examine(ctx context.Context) ([]Finding, error)
	}
	// Opener opens files of this host on behalf of a specification.
	Opener interface {
		// Open refuses links that an agent may have made on the way, with [ErrInvalid].
		Open(ctx context.Context, name string) (*os.File, error)
	}
	// Warmer keeps sandboxes warm for a [Pool].
	Warmer interface {
		// Prepare gets the prerequisites of a creation, such as the image.
		Prepare(ctx context.Context, spec Spec) error
		// Warm creates a sandbox without an owner, whose Pool is pool.
		Warm(ctx context.Context, pool string, spec Spec) error
		// Claim returns the sandbox that the key of spec has, or gives the key to the
		// first of from that no other claimer takes, and reports whether it was warm; nil
		// if neither exists.
		Claim(ctx context.Context, spec Spec, from []*Sandbox) (s *Sandbox, warm bool, err error)
		// Discard removes a warm sandbox, unless it was claimed or is being claimed.
		Discard(ctx context.Context, s *Sandbox) error
		Leader
	}
	// Leader lets one process of several do their common work.
	Leader interface {
		// Lead calls work while no other process has the lead of that name; the context
		// of work ends when the lead is lost, and with wait work is called again after
		// the lead was won again. It waits for the lead, or, without wait, fails with
		// [ErrConflict] if another process leads or waits for the lead.
		Lead(ctx context.Context, name string, wait bool, work func(context.Context)) error
	}
	// Networker keeps the network policies of sandboxes. Its methods fail with [ErrConflict] for a
	// sandbox that was created without one.
	Networker interface {
		// Network returns the policy of a sandbox, and the state of its connections.
		Network(ctx context.Context, s *Sandbox) (*Network, error)
		// SetNetwork changes the policy. change edits that of the present network; its error is
		// passed on, and then nothing changes. A secret without a value keeps that of the present
		// one, see [egress.Policy.KeepValues]. Connections that the new policy refuses have
		// ended when SetNetwork returns. Where the egress proxy cannot be reached, the new
		// policy applies once it can be, and Up is false: nothing passes until then. A change to the
		// same policy keeps the generation.
		SetNetwork(ctx context.Context, s *Sandbox, change func(n *Network) error) (*Network, error)
		// Denied returns the refused connections after a number, the oldest first, as soon as
		// there are any or wait is over. The last 1,000 are kept.
		Denied(ctx context.Context, s *Sandbox, after int64, wait time.Duration) ([]egress.Denial, error)
		// RestartEgress replaces the egress proxy by one with the present program. All
		// connections end.
		RestartEgress(ctx context.Context) error
	}
	// Labeler has labels that are the operator's: the platform obeys them.
	Labeler interface {
		// CheckLabels refuses such labels where a client asks for them.
		CheckLabels(labels map[string]string) error
	}
	// GPULister gives GPUs by name.
	GPULister interface {
		// GPUs returns the names of all GPUs in the platform's order, nil where it cannot know them.
		GPUs(ctx context.Context) ([]string, error)
	}
	// KeyKeeper keeps the key of a gateway where all processes of the gateway find it.
	KeyKeeper interface {
		// GatewayKey returns the key of a name, which is created if it does not exist.
		GatewayKey(ctx context.Context, name string) (string, error)
	}
)

// ErrUnsupported reports that a driver lacks an ability.
var ErrUnsupported = errors.New("not supported")

// Needs returns the ability T of a driver. For a driver without it, it fails with
// [ErrUnsupported] and a sentence that names the platform and the task.
func Needs[T any](d Driver, task string) (T, error) {
	able, ok := d.(T)
	if !ok {
		return able, fmt.Errorf("%w: %s cannot %s", ErrUnsupported, d.Platform(), task)
	}
	return able, nil
}

// With lets do use an ability of a driver.
func With[T any](d Driver, task string, do func(able T) error) error {
	able, err := Needs[T](d, task)
	if err != nil {
		return err
	}
	return do(able)
}

// Renew changes the deadline of a sandbox; the zero time removes it. Like the functions
// below, it fails as [Needs] does if the driver lacks the ability.
func Renew(ctx context.Context, d Driver, s *Sandbox, deadline time.Time) error {
	return With(d, "change deadlines", func(able Renewer) error { return able.Renew(ctx, s, deadline) })
}

// Stop ends the processes of a sandbox; grace is how long they may take to end by
// themselves.
func Stop(ctx context.Context, d Driver, s *Sandbox, grace time.Duration) error {
	return With(d, "stop sandboxes", func(able Starter) error { return able.Stop(ctx, s, grace) })
}

// Start starts a stopped sandbox, and returns when a command ran in its shell.
func Start(ctx context.Context, d Driver, s *Sandbox) error {
	return With(d, "start sandboxes", func(able Starter) error { return able.Start(ctx, s) })
}

// Pause freezes a sandbox in memory.
func Pause(ctx context.Context, d Driver, s *Sandbox) error {
	return With(d, "pause sandboxes", func(able Pauser) error { return able.Pause(ctx, s) })
}

// Resume continues a paused sandbox.
func Resume(ctx context.Context, d Driver, s *Sandbox) error {
	return With(d, "resume sandboxes", func(able Pauser) error { return able.Resume(ctx, s) })
}

// NameIsFree fails with ErrConflict if another sandbox of the driver has the name or
// the id; an empty name is always free. The caller holds the lock of the name until its
// own sandbox can be listed.
func NameIsFree(ctx context.Context, d Driver, name string) error {
	if name == "" {
		return nil
	}
	all, err := d.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Name == name || s.ID == name {
			return fmt.Errorf("%w: sandbox %s has the name %s; remove it, or take another name", ErrConflict, s.ID, name)
		}
	}
	return nil
}
