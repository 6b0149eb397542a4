package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Driver creates and manages sandboxes on one kind of platform. Its methods may be
// called concurrently, also by several processes that use the same state. Their
// contexts bound the wait; an operation that was cancelled leaves all or nothing.
// They fail with [ErrUnknown] where the platform cannot be reached.
//
// What a driver tells while it works (progress, pulls) and where it logs is part of
// its own configuration, because pools and reapers use it too.
type Driver interface {
	// Platform names the platform in sentences, such as "the Docker engine".
	Platform() string
	// Check fills in the defaults of spec, refuses what the platform cannot honour
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
	// Delete removes a sandbox and what belongs to it, whatever state it is in. A
	// sandbox that no longer exists is not an error.
	Delete(ctx context.Context, s *Sandbox) error
	// Close releases what the driver holds. Sandboxes live on.
	io.Closer
}

// The optional abilities of drivers. [Needs] finds them.
type (
	// Watcher reports what happens to sandboxes.
	Watcher interface {
		// Events calls each for every event from now on, until ctx ends or each returns
		// an error, which is passed on.
		Events(ctx context.Context, each func(Event) error) error
	}
	// Renewer changes deadlines.
	Renewer interface {
		// Renew gives a sandbox another deadline, and tells its server; the zero time
		// takes the deadline away.
		Renew(ctx context.Context, s *Sandbox, deadline time.Time) error
	}
	// KeyReader reads the keys of many sandboxes at once.
	KeyReader interface {
		// ReadKeys does what the Key of each sandbox would do, so that they need not.
		ReadKeys(ctx context.Context, all []*Sandbox) error
	}
	// Starter stops sandboxes, keeps their files, and starts them again.
	Starter interface {
		// Stop ends the processes; grace is what they get to end by themselves.
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
		// WorkDir returns where the shells of a sandbox start.
		WorkDir(ctx context.Context, s *Sandbox) (string, error)
		// Stat looks at a file and follows no link. It fails with fs.ErrNotExist.
		Stat(ctx context.Context, s *Sandbox, path string) (FileInfo, error)
		// CopyOut reads a file or directory as a tar archive, which the agent may have
		// forged.
		CopyOut(ctx context.Context, s *Sandbox, path string) (io.ReadCloser, error)
		// CopyIn unpacks a tar archive into a directory, for the user of the commands.
		CopyIn(ctx context.Context, s *Sandbox, dir string, archive io.Reader) error
	}
	// Logger has the logs of servers.
	Logger interface {
		// Logs writes what the server of a sandbox logged, and with Follow what it will
		// log, until ctx or the sandbox ends.
		Logs(ctx context.Context, s *Sandbox, o LogOptions, stdout, stderr io.Writer) error
	}
	// Meter measures sandboxes.
	Meter interface {
		// Stats calls each about once a second with what a sandbox uses, or once if
		// stream is false, until ctx or the sandbox ends or each returns an error, which
		// is passed on.
		Stats(ctx context.Context, s *Sandbox, stream bool, each func(Stats) error) error
	}
	// Inspector knows more of a sandbox than List returns.
	Inspector interface {
		Inspect(ctx context.Context, s *Sandbox) (*Details, error)
	}
	// Pruner removes what is over.
	Pruner interface {
		// Prune removes sandboxes whose time is up and what crashed creators and
		// claimers left, unless a caller works on it. With dryRun it only reports.
		Prune(ctx context.Context, dryRun bool) ([]Removal, error)
	}
	// ServerPruner keeps copies of the server on the platform.
	ServerPruner interface {
		// PruneServers removes those of other versions that no sandbox uses, and returns
		// their names.
		PruneServers(ctx context.Context) ([]string, error)
	}
	// Images knows the platform's images.
	Images interface {
		// Image fails with [ErrNoImage] for an image that is not there.
		Image(ctx context.Context, name string) (*Image, error)
		// ImageNames returns the names of the images that are there, sorted.
		ImageNames(ctx context.Context) ([]string, error)
		// Build makes an image from a tar archive with a Dockerfile and gives it the
		// tags. output gets the text of the build.
		Build(ctx context.Context, archive io.Reader, tags []string, output io.Writer) error
	}
	// Doctor examines the platform.
	Doctor interface {
		// Examine returns what it found out, also beside an error.
		Examine(ctx context.Context) ([]Finding, error)
	}
	// Opener opens files of this host on behalf of a specification.
	Opener interface {
		// Open refuses links that an agent may have made on the way, with [ErrInvalid].
		Open(ctx context.Context, name string) (*os.File, error)
	}
	// Warmer keeps sandboxes warm for a [Pool].
	Warmer interface {
		// Prepare gets what a creation waits for before the sandbox itself, such as the
		// image.
		Prepare(ctx context.Context, spec Spec) error
		// Warm creates a sandbox without an owner, whose Pool is pool.
		Warm(ctx context.Context, pool string, spec Spec) error
		// Claim returns the sandbox that the key of spec has, or gives the key to the
		// first of from that no other claimer gets, and reports which it was; nil if
		// there is neither.
		Claim(ctx context.Context, spec Spec, from []*Sandbox) (s *Sandbox, warm bool, err error)
		// Discard removes a warm sandbox, unless it was claimed or is being claimed.
		Discard(ctx context.Context, s *Sandbox) error
		Leader
	}
	// PoolKeeper is a Warmer whose platform makes and replaces the sandboxes of a pool
	// itself: [Pool] does not call Warm, Claim and Discard then.
	PoolKeeper interface {
		// KeepPool tells the platform to keep size sandboxes of spec in a pool, in place of
		// what the pool had. It is called again and again.
		KeepPool(ctx context.Context, pool string, spec Spec, size int) error
		// RemovePool removes the sandboxes that wait in a pool, and keeps no others there.
		RemovePool(ctx context.Context, pool string) error
		// ClaimFrom returns the sandbox that the key of spec has, or gives the key one of
		// the pool, and reports whether that was ready; nil where the platform keeps no
		// sandboxes of spec in the pool.
		ClaimFrom(ctx context.Context, pool string, spec Spec) (s *Sandbox, warm bool, err error)
	}
	// Leader lets one process of several do what they share.
	Leader interface {
		// Lead calls work while no other process leads what; the context of work ends
		// when the lead is lost, and with wait work is called again once the lead was
		// won again. It waits for the lead, or, without wait, fails with [ErrConflict] if
		// another process leads or waits for the lead.
		Lead(ctx context.Context, what string, wait bool, work func(context.Context)) error
	}
	// KeyKeeper keeps the key of a gateway where all processes of the gateway find it.
	KeyKeeper interface {
		// GatewayKey returns the key of a name, which is made if it does not exist.
		GatewayKey(ctx context.Context, name string) (string, error)
	}
)

// ErrUnsupported reports that a driver lacks an ability.
var ErrUnsupported = errors.New("not supported")

// Needs returns the ability T of a driver. For a driver without it, it fails with
// [ErrUnsupported] and a sentence that names the platform and what it cannot do.
func Needs[T any](d Driver, what string) (T, error) {
	able, ok := d.(T)
	if !ok {
		return able, fmt.Errorf("%w: %s cannot %s", ErrUnsupported, d.Platform(), what)
	}
	return able, nil
}

// Renew gives a sandbox another deadline, and the zero time none. Like the functions
// below, it fails as [Needs] does where the driver cannot do it.
func Renew(ctx context.Context, d Driver, s *Sandbox, deadline time.Time) error {
	renewer, err := Needs[Renewer](d, "change deadlines")
	if err != nil {
		return err
	}
	return renewer.Renew(ctx, s, deadline)
}

// Stop ends the processes of a sandbox; grace is what they get to end by themselves.
func Stop(ctx context.Context, d Driver, s *Sandbox, grace time.Duration) error {
	starter, err := Needs[Starter](d, "stop sandboxes")
	if err != nil {
		return err
	}
	return starter.Stop(ctx, s, grace)
}

// Start starts a stopped sandbox, and returns when a command ran in its shell.
func Start(ctx context.Context, d Driver, s *Sandbox) error {
	starter, err := Needs[Starter](d, "start sandboxes")
	if err != nil {
		return err
	}
	return starter.Start(ctx, s)
}

// Pause freezes a sandbox in memory.
func Pause(ctx context.Context, d Driver, s *Sandbox) error {
	pauser, err := Needs[Pauser](d, "pause sandboxes")
	if err != nil {
		return err
	}
	return pauser.Pause(ctx, s)
}

// Resume lets a paused sandbox go on.
func Resume(ctx context.Context, d Driver, s *Sandbox) error {
	pauser, err := Needs[Pauser](d, "resume sandboxes")
	if err != nil {
		return err
	}
	return pauser.Resume(ctx, s)
}

// NameIsFree fails with ErrConflict if another sandbox of the driver answers to the
// name; an empty name is always free. The caller holds the lock of the name until its
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
