// Package local is the driver of sandboxes that are processes of this machine. It
// isolates nothing: commands run with all rights of this process's user. A sandbox
// is a server process with a directory of its own, which has all data of the sandbox,
// so that any process of the same user finds it:
//
//	facts    the facts, as JSON
//	key      of the server
//	socket   of the server
//	alive    locked by the server as long as it lives
//	log      of the server
//	state/   of the server
//	work/    working directory of shells, unless the specification names another
package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// Config configures a Driver.
type Config struct {
	// StateDir has a directory for each sandbox, below "local". Default:
	// [sandbox.DefaultStateDir].
	StateDir string
	// Server returns the path of the server program. It is called before a server is
	// started. Required.
	Server func() (string, error)
	// Agent sends requests to the servers. Required.
	Agent sandbox.Agent
	// ReadyTimeout bounds the wait for a started server. Default 30 seconds.
	ReadyTimeout time.Duration
}

// Driver manages the sandboxes below a directory. It may be used concurrently, also
// by several processes.
type Driver struct {
	dir    string // absolute
	root   *os.Root
	config Config
}

var (
	_ sandbox.Driver    = (*Driver)(nil)
	_ sandbox.Renewer   = (*Driver)(nil)
	_ sandbox.Starter   = (*Driver)(nil)
	_ sandbox.Files     = (*Driver)(nil)
	_ sandbox.Logger    = (*Driver)(nil)
	_ sandbox.Inspector = (*Driver)(nil)
	_ sandbox.Pruner    = (*Driver)(nil)
	_ sandbox.Doctor    = (*Driver)(nil)
)

// Open opens the directory, and creates it if it does not exist.
func Open(config Config) (*Driver, error) {
	config.ReadyTimeout = cmp.Or(config.ReadyTimeout, 30*time.Second)
	state, err := filepath.Abs(cmp.Or(config.StateDir, sandbox.DefaultStateDir()))
	if err != nil {
		return nil, fmt.Errorf("finding the state directory: %w", err)
	}
	parent, err := hostpath.OpenPrivate(state)
	if err != nil {
		return nil, fmt.Errorf("opening the state directory %s: %w; choose another with --state-dir", state, err)
	}
	defer func() { _ = parent.Close() }()
	dir := filepath.Join(state, "local")
	if err := parent.MkdirAll("local", 0o700); err != nil {
		return nil, fmt.Errorf("making the directory %s: %w", dir, err)
	}
	root, err := parent.OpenRoot("local")
	if err != nil {
		return nil, fmt.Errorf("opening the directory %s: %w", dir, err)
	}
	return &Driver{dir: dir, root: root, config: config}, nil
}

// Close closes the directory. Sandboxes keep running.
func (d *Driver) Close() error { return d.root.Close() }

// Platform is [sandbox.Driver]'s.
func (d *Driver) Platform() string { return "the driver of local processes" }

func (d *Driver) path(id, name string) string { return filepath.Join(d.dir, id, name) }

const (
	// readyPause is the pause between two requests to a starting server, which does not
	// announce that it listens.
	readyPause = 10 * time.Millisecond
	// StopTime is how long a server may take to end before Delete kills it. The server
	// ends within 5 seconds.
	StopTime = 8 * time.Second
	// longestSocket is without the zero byte: a socket's path has at most 108 bytes
	// on Linux and 104 elsewhere.
	longestSocket = 103
	// longestDir is longestSocket without an id and the name of a socket.
	longestDir = longestSocket - len("/0123456789ab/socket")
)

// Check is [sandbox.Driver]'s. A process of this machine has no image and no limits.
func (d *Driver) Check(_ context.Context, spec *sandbox.Spec) (hash string, err error) {
	options := map[string]bool{
		"an image": spec.Image != "", "mounts": len(spec.Mounts) > 0, "a memory limit": spec.Memory != 0, "a disk limit": spec.Disk != 0,
		"a processor limit": spec.CPUs != 0, "a process limit": spec.Pids != 0, "a file limit": spec.OpenFiles != 0,
		"a network": spec.Network != "", "a network policy": spec.Policy != nil, "another user": spec.User != "" || spec.UserID != 0, "read-only files": spec.ReadOnly,
		"a runtime": spec.Runtime != "", "security options": len(spec.SecurityOpts) > 0, "server flags": len(spec.Flags) > 0,
		"programs as root": spec.AllowRoot, "GPUs (commands open those of this machine with your rights)": !spec.GPUs.IsZero(),
	}
	maps.Copy(options, spec.PodOptions())
	if err := sandbox.CannotHonour(d, options); err != nil {
		return "", err
	}
	if len(d.dir) > longestDir {
		return "", sandbox.Invalid("the path %s is too long for a socket in it: choose a shorter one with --state-dir", d.dir)
	}
	full := *spec
	full.Image = "(local)"
	if err := full.Complete(); err != nil {
		return "", err
	}
	return full.Hash(), nil
}

// Create starts a server in a directory of its own.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	hash, err := d.Check(ctx, &spec)
	if err != nil {
		return nil, err
	}
	id := sandbox.ID(cmp.Or(spec.Key, "\x00"+random.Hex(16)))
	locks := []string{creationLock(id)}
	if spec.Name != "" { // always the first lock, to avoid a deadlock
		locks = []string{".name-" + spec.Name, creationLock(id)}
	}
	for _, name := range locks {
		unlock, err := filelock.Lock(ctx, d.root, name)
		if err != nil {
			return nil, fmt.Errorf("waiting for another creation in %s: %w", d.dir, err)
		}
		defer unlock()
	}
	if found, err := d.existing(ctx, id, hash); found != nil || err != nil {
		return found, err
	}
	if err := sandbox.NameIsFree(ctx, d, spec.Name); err != nil {
		return nil, err
	}
	// A server starts elsewhere if its directory was replaced later on.
	if info, err := os.Stat(spec.WorkDir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%w: working directory %s is not a directory", sandbox.ErrInvalid, spec.WorkDir)
	}
	return d.make(ctx, id, hash, spec)
}

// existing returns the finished sandbox of an id, which it starts if necessary, or nil. It
// removes the leftovers of a crashed creator.
func (d *Driver) existing(ctx context.Context, id, hash string) (*sandbox.Sandbox, error) {
	unlock, err := d.lock(ctx, id)
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, nil //nolint:nilnil // it does not exist
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	f, err := d.load(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, d.remove(id)
	case err != nil:
		return nil, err
	case f.Spec != hash:
		return nil, fmt.Errorf("%w: sandbox %s has this key and another specification", sandbox.ErrConflict, id)
	}
	if !d.alive(id) {
		if err := d.launch(ctx, id, f); err != nil {
			return nil, err
		}
	}
	return d.sandbox(id)
}

// make creates the sandbox completely or not at all. The lock of its id's creation is held.
func (d *Driver) make(ctx context.Context, id, hash string, spec sandbox.Spec) (made *sandbox.Sandbox, err error) {
	if err := os.Mkdir(filepath.Join(d.dir, id), 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for the sandbox: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.remove(id))
		}
	}()
	unlock, err := d.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	f := facts{
		Name: cmp.Or(spec.Name, id), Owner: spec.Owner, Labels: spec.Labels, Env: spec.Env, WorkDir: spec.WorkDir,
		Created: time.Now(), Idle: spec.Idle, Spec: hash,
	}
	if spec.TTL > 0 {
		f.Deadline = f.Created.Add(spec.TTL)
	}
	if err := os.WriteFile(d.path(id, "key"), []byte(cmp.Or(spec.Secret, rand.Text())), 0o600); err != nil {
		return nil, fmt.Errorf("writing the server's key: %w", err)
	}
	for _, name := range []string{"work", "state", "tmp"} {
		if err := os.Mkdir(d.path(id, name), 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of sandbox %s: %w", id, err)
		}
	}
	if err := d.launch(ctx, id, f); err != nil {
		return nil, err
	}
	return d.sandbox(id)
}

// Get is [sandbox.Driver]'s.
func (d *Driver) Get(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	all, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	return sandbox.Find(all, ref)
}

// List returns all sandboxes, the eldest first, without unfinished ones.
func (d *Driver) List(context.Context) ([]*sandbox.Sandbox, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the sandboxes: %w", err)
	}
	var all []*sandbox.Sandbox
	for _, e := range entries {
		if !sandbox.IsID(e.Name()) {
			continue
		}
		s, err := d.sandbox(e.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			all = append(all, s)
		}
	}
	slices.SortFunc(all, (*sandbox.Sandbox).Compare)
	return all, nil
}

// Delete ends the server and removes the directory.
func (d *Driver) Delete(ctx context.Context, s *sandbox.Sandbox) error {
	unlock, err := d.lock(ctx, s.ID)
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	return d.destroy(ctx, s.ID)
}

// destroy is Delete with the lock held.
func (d *Driver) destroy(ctx context.Context, id string) error {
	if err := d.end(ctx, id, StopTime); err != nil {
		return err
	}
	if err := d.remove(id); err != nil {
		return fmt.Errorf("removing sandbox %s: %w", id, err)
	}
	return nil
}

// remove removes the directory of a sandbox. It can have directories without write
// permission for their own user, such as those of Go's module cache.
func (d *Driver) remove(id string) error {
	err := d.root.RemoveAll(id)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = fs.WalkDir(d.root.FS(), id, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = d.root.Chmod(name, 0o700) // before the directory is read
		}
		return nil
	})
	return d.root.RemoveAll(id)
}

// Stop ends the server and keeps the directory.
func (d *Driver) Stop(ctx context.Context, s *sandbox.Sandbox, grace time.Duration) error {
	unlock, err := d.lock(ctx, s.ID)
	if err != nil {
		return err
	}
	defer unlock()
	return d.end(ctx, s.ID, grace)
}

// Start starts the server of a stopped sandbox again.
func (d *Driver) Start(ctx context.Context, s *sandbox.Sandbox) error {
	unlock, err := d.lock(ctx, s.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if d.alive(s.ID) {
		return nil
	}
	f, err := d.load(s.ID)
	if err != nil {
		return err
	}
	return d.launch(ctx, s.ID, f)
}

// Renew sets the deadline in the server, and records it.
func (d *Driver) Renew(ctx context.Context, s *sandbox.Sandbox, deadline time.Time) error {
	unlock, err := d.lock(ctx, s.ID)
	if err != nil {
		return err
	}
	defer unlock()
	f, err := d.load(s.ID)
	if err != nil {
		return err
	}
	if d.alive(s.ID) {
		ttl := time.Duration(0)
		if !deadline.IsZero() {
			ttl = max(time.Until(deadline), time.Second)
		}
		server := access{d, s.ID}
		key, err := server.Key()
		if err == nil {
			err = d.config.Agent.Renew(ctx, server.Dial, key, f.Ticket, ttl)
		}
		if err != nil {
			return fmt.Errorf("renewing sandbox %s: %w", s.ID, err)
		}
	}
	f.Deadline, s.Deadline = deadline, deadline
	return d.save(s.ID, f)
}
