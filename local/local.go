// Package local is the driver of sandboxes that are processes of this machine. It
// isolates nothing: commands run with all rights of this process's user. A sandbox
// is a server process in a directory of its own, in which everything about it is
// recorded, so that any process of the same user finds it:
//
//	facts    the facts, as JSON
//	key      of the server
//	socket   of the server
//	alive    locked by the server as long as it lives
//	log      of the server
//	state/   of the server
//	work/    where shells start
package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// Config says how a Driver is opened.
type Config struct {
	// StateDir holds a directory for each sandbox, below "local". Default:
	// [sandbox.DefaultStateDir].
	StateDir string
	// Server returns the path of the server program. It is called when one is to be
	// started. Required.
	Server func() (string, error)
	// Agent speaks to the servers. Required.
	Agent sandbox.Agent
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

// facts are what a sandbox was made with.
type facts struct {
	Name     string            `json:"name"`
	Owner    string            `json:"owner,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Created  time.Time         `json:"created"`
	Deadline time.Time         `json:"deadline,omitzero"`
	Idle     time.Duration     `json:"idle,omitempty"`
	PID      int               `json:"pid"`
	Spec     string            `json:"spec,omitempty"` // hash of the specification
}

// Open opens the directory, and makes it if it is not there.
func Open(config Config) (*Driver, error) {
	dir, err := filepath.Abs(filepath.Join(cmp.Or(config.StateDir, sandbox.DefaultStateDir()), "local"))
	if err != nil {
		return nil, fmt.Errorf("finding the state directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the state directory: %w", err)
	}
	return &Driver{dir: dir, root: root, config: config}, nil
}

// Close closes the directory. Sandboxes live on.
func (d *Driver) Close() error { return d.root.Close() }

// Platform is [sandbox.Driver]'s.
func (d *Driver) Platform() string { return "the driver of local processes" }

func (d *Driver) path(id, name string) string { return filepath.Join(d.dir, id, name) }

const (
	// readyLimit is how long a server may take to start on a loaded machine.
	readyLimit = 30 * time.Second
	// readyPause is how long to wait before asking a starting server again:
	// it does not announce that it listens.
	readyPause = 10 * time.Millisecond
	// StopTime is how long a server may take to end, which it promises to do
	// within 5 seconds; then Delete kills it.
	StopTime = 8 * time.Second
	// longestSocket leaves room for the zero byte: a socket's path has 108 bytes
	// on Linux and 104 elsewhere.
	longestSocket = 103
	// longestDir leaves room for an id and a socket's name in a socket's path.
	longestDir = longestSocket - len("/0123456789ab/socket")
)

// Check is [sandbox.Driver]'s. A process of this machine has no image and no limits.
func (d *Driver) Check(_ context.Context, spec *sandbox.Spec) (hash string, err error) {
	var refused []string
	for what, asked := range map[string]bool{
		"mounts": len(spec.Mounts) > 0, "a working directory": spec.WorkDir != "", "a memory limit": spec.Memory != 0,
		"a processor limit": spec.CPUs != 0, "a process limit": spec.Pids != 0, "a file limit": spec.OpenFiles != 0,
		"a network": spec.Network != "", "another user": spec.User != "" || spec.UserID != 0, "read-only files": spec.ReadOnly,
		"a runtime": spec.Runtime != "", "security options": len(spec.SecurityOpts) > 0, "server flags": len(spec.Flags) > 0,
	} {
		if asked {
			refused = append(refused, what)
		}
	}
	if len(refused) > 0 {
		slices.Sort(refused)
		return "", sandbox.Invalid("%s cannot honour %s", d.Platform(), strings.Join(refused, ", "))
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
	if len(d.dir) > longestDir {
		return nil, fmt.Errorf("the path %s is too long for a socket in it: choose another directory with --state-dir", d.dir)
	}
	hash, err := d.Check(ctx, &spec)
	if err != nil {
		return nil, err
	}
	id := sandbox.ID(cmp.Or(spec.Key, "\x00"+random.Hex(16)))
	locks := []string{".id-" + id}
	if spec.Name != "" { // first, everywhere
		locks = []string{".name-" + spec.Name, ".id-" + id}
	}
	for _, name := range locks {
		unlock, err := filelock.Lock(ctx, d.root, name)
		if err != nil {
			return nil, fmt.Errorf("waiting for another creation: %w", err)
		}
		defer unlock()
	}
	if found, err := d.existing(ctx, id, hash); found != nil || err != nil {
		return found, err
	}
	if err := sandbox.NameIsFree(ctx, d, spec.Name); err != nil {
		return nil, err
	}
	return d.make(ctx, id, hash, spec)
}

// existing returns the finished sandbox of an id, started if need be, or nil. What
// a crashed creator left is removed.
func (d *Driver) existing(ctx context.Context, id, hash string) (*sandbox.Sandbox, error) {
	unlock, err := d.lock(id)
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, nil //nolint:nilnil // there is none
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

// make makes the sandbox; the lock of its id's creation is held. It leaves all or
// nothing.
func (d *Driver) make(ctx context.Context, id, hash string, spec sandbox.Spec) (made *sandbox.Sandbox, err error) {
	if err := os.Mkdir(filepath.Join(d.dir, id), 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for the sandbox: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.remove(id))
		}
	}()
	unlock, err := d.lock(id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	f := facts{
		Name: cmp.Or(spec.Name, id), Owner: spec.Owner, Labels: spec.Labels, Env: spec.Env, Created: time.Now(), Idle: spec.Idle, Spec: hash,
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

// launch starts the server of a sandbox, whose lock is held, and returns when a
// command ran. The process outlives this one.
func (d *Driver) launch(ctx context.Context, id string, f facts) (err error) {
	program, err := d.config.Server()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(d.path(id, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the server's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	alive, err := d.lockAlive(ctx, id)
	if err != nil {
		return err
	}
	defer func() { _ = alive.Close() }() // the server has it too
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program,
		"--addr", "unix:"+d.path(id, "socket"), "--working-dir", d.path(id, "work"),
		"--session-key-file", d.path(id, "key"), "--state-dir", d.path(id, "state"))
	if !f.Deadline.IsZero() {
		cmd.Args = append(cmd.Args, "--ttl", max(time.Until(f.Deadline), time.Second).String())
	}
	if f.Idle > 0 {
		cmd.Args = append(cmd.Args, "--idle-limit", f.Idle.String())
	}
	cmd.Env = append(os.Environ(), "TMPDIR="+d.path(id, "tmp"))
	for _, name := range slices.Sorted(maps.Keys(f.Env)) {
		cmd.Env = append(cmd.Env, name+"="+f.Env[name])
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.path(id, "work"), log, log
	cmd.ExtraFiles = []*os.File{alive}
	// A session of its own: it is to outlive this terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	ended := make(chan struct{})
	go func() { // ends with the server, or with this program
		_ = cmd.Wait() // the state says the same
		close(ended)
	}()
	f.PID = cmd.Process.Pid
	if err = d.save(id, f); err == nil {
		err = d.waitReady(ctx, id, cmd, ended)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		<-ended // it writes nothing any more
	}
	return err
}

// waitReady returns when the server of a sandbox runs commands, or why it does
// not.
func (d *Driver) waitReady(ctx context.Context, id string, cmd *exec.Cmd, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("nothing after %v", readyLimit))
	defer cancel()
	server := access{d, id}
	key, err := server.Key()
	if err != nil {
		return err
	}
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	for {
		err := d.config.Agent.Ready(ctx, server.Dial, key)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			err := fmt.Errorf("the server ended by itself (%v)", cmd.ProcessState)
			return &sandbox.StartError{ID: id, Err: err, Logs: d.lastWords(id)}
		case <-ctx.Done():
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
			return &sandbox.StartError{ID: id, Step: "waiting for the first command", Err: err, Logs: d.lastWords(id)}
		case <-pause.C:
		}
	}
}

// access reaches the server of a sandbox.
type access struct {
	driver *Driver
	id     string
}

// Dial is [sandbox.Access]'s.
func (a access) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", a.driver.path(a.id, "socket"))
	if err != nil {
		return nil, fmt.Errorf("connecting to sandbox %s: %w", a.id, err)
	}
	return conn, nil
}

// Key is [sandbox.Access]'s.
func (a access) Key() (string, error) {
	data, err := os.ReadFile(a.driver.path(a.id, "key"))
	if err != nil {
		return "", fmt.Errorf("reading the key of sandbox %s: %w", a.id, err)
	}
	return string(data), nil
}

func (d *Driver) save(id string, f facts) error {
	data, err := json.Marshal(f)
	if err == nil {
		temp := d.path(id, "facts.tmp")
		if err = os.WriteFile(temp, data, 0o600); err == nil {
			err = os.Rename(temp, d.path(id, "facts"))
		}
	}
	if err != nil {
		return fmt.Errorf("writing down sandbox %s: %w", id, err)
	}
	return nil
}

func (d *Driver) load(id string) (facts, error) {
	var f facts
	data, err := os.ReadFile(d.path(id, "facts"))
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		return f, fmt.Errorf("reading about sandbox %s: %w", id, err)
	}
	return f, nil
}

// lock keeps others from changing a sandbox until unlock.
func (d *Driver) lock(id string) (unlock func(), err error) {
	for {
		dir, err := os.Open(filepath.Join(d.dir, id))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("sandbox %s: %w", id, sandbox.ErrNotFound)
		}
		if err != nil {
			return nil, fmt.Errorf("locking sandbox %s: %w", id, err)
		}
		if err := filelock.Flock(dir, syscall.LOCK_EX); err != nil {
			_ = dir.Close()
			return nil, fmt.Errorf("locking sandbox %s: %w", id, err)
		}
		held, err := dir.Stat()
		now, nowErr := d.root.Lstat(id)
		if err == nil && nowErr == nil && os.SameFile(held, now) {
			return func() { _ = dir.Close() }, nil
		}
		_ = dir.Close() // it was removed meanwhile, and perhaps made again
	}
}

// lockedFile opens a file, making it if need be, and locks it. It does not wait.
func lockedFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Flock(file, how|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	return file, nil
}

// lockAlive locks the file by which a server shows that it lives. The caller holds
// the lock of the sandbox, which has no server: only [Driver.alive] can have locked the
// file, for a moment.
func (d *Driver) lockAlive(ctx context.Context, id string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		file, err := lockedFile(d.path(id, "alive"), syscall.LOCK_EX)
		if !errors.Is(err, filelock.ErrLocked) {
			return file, err
		}
		select {
		case <-time.After(readyPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// alive tells whether a sandbox has its server.
func (d *Driver) alive(id string) bool {
	file, err := lockedFile(d.path(id, "alive"), syscall.LOCK_SH)
	if err == nil {
		_ = file.Close()
	}
	return errors.Is(err, filelock.ErrLocked)
}

// sandbox looks at one.
func (d *Driver) sandbox(id string) (*sandbox.Sandbox, error) {
	f, err := d.load(id)
	if err != nil {
		return nil, err
	}
	s := &sandbox.Sandbox{
		Access: access{d, id},
		ID:     id, Name: f.Name, Owner: f.Owner, Image: "(local)", State: sandbox.Stopped, Created: f.Created,
		Deadline: f.Deadline, IdleLimit: f.Idle, Spec: f.Spec, Labels: f.Labels, User: strconv.Itoa(os.Geteuid()),
		Instance: id + "-" + strconv.FormatInt(f.Created.UnixNano(), 36),
	}
	if d.alive(id) {
		s.State, s.Detail = sandbox.Ready, "process "+strconv.Itoa(f.PID)
	}
	return s, nil
}

// Get is [sandbox.Driver]'s.
func (d *Driver) Get(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	all, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	return sandbox.Find(all, ref)
}

// List looks at all of them, the eldest first. One that is just being made is
// not among them.
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
	slices.SortFunc(all, func(a, b *sandbox.Sandbox) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, nil
}

// Delete ends the server and removes the directory.
func (d *Driver) Delete(ctx context.Context, s *sandbox.Sandbox) error {
	unlock, err := d.lock(s.ID)
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.end(ctx, s.ID, StopTime); err != nil {
		return err
	}
	if err := d.remove(s.ID); err != nil {
		return fmt.Errorf("removing sandbox %s: %w", s.ID, err)
	}
	return nil
}

// remove removes the directory of a sandbox. Commands leave directories in it that
// their own user may not write to, such as those of Go's module cache.
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
	unlock, err := d.lock(s.ID)
	if err != nil {
		return err
	}
	defer unlock()
	return d.end(ctx, s.ID, grace)
}

// end asks the server to end, and kills it after grace. While the server holds its
// lock, the recorded process is the server.
func (d *Driver) end(ctx context.Context, id string, grace time.Duration) error {
	f, err := d.load(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if f.PID < 2 { // kill(2) takes 0 and less for groups of processes
		return fmt.Errorf("ending the server of sandbox %s: process %d cannot be its server", id, f.PID)
	}
	kill := time.NewTimer(grace)
	defer kill.Stop()
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	sent := false
	for d.alive(id) {
		if !sent {
			_ = syscall.Kill(f.PID, syscall.SIGTERM) // gone: the next look tells
			sent = true
		}
		select {
		case <-kill.C:
			_ = syscall.Kill(f.PID, syscall.SIGKILL)
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the server of sandbox %s to end: %w", id, context.Cause(ctx))
		}
	}
	return nil
}

// Start starts the server of a stopped sandbox again.
func (d *Driver) Start(ctx context.Context, s *sandbox.Sandbox) error {
	unlock, err := d.lock(s.ID)
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

// Renew tells the server, and records the deadline.
func (d *Driver) Renew(ctx context.Context, s *sandbox.Sandbox, deadline time.Time) error {
	unlock, err := d.lock(s.ID)
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
			err = d.config.Agent.Renew(ctx, server.Dial, key, ttl)
		}
		if err != nil {
			return fmt.Errorf("renewing sandbox %s: %w", s.ID, err)
		}
	}
	f.Deadline, s.Deadline = deadline, deadline
	return d.save(s.ID, f)
}

// Prune removes those whose time is up, and what creators who died have left.
func (d *Driver) Prune(ctx context.Context, dryRun bool) ([]sandbox.Removal, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the sandboxes: %w", err)
	}
	var removed []sandbox.Removal
	var failures []error
	for _, e := range entries {
		id := e.Name()
		if !sandbox.IsID(id) {
			continue
		}
		name, reason, err := d.reason(id)
		if err == nil && reason != "" && !dryRun {
			err = d.Delete(ctx, &sandbox.Sandbox{ID: id})
		}
		if err == nil && reason != "" {
			removed = append(removed, sandbox.Removal{ID: id, Name: name, Reason: reason})
		}
		failures = append(failures, err)
	}
	return removed, errors.Join(failures...)
}

// reason says why a sandbox is to be removed, "" where it is not.
func (d *Driver) reason(id string) (name, reason string, err error) {
	dir, err := os.Open(filepath.Join(d.dir, id))
	if errors.Is(err, fs.ErrNotExist) { // another caller removed it
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	defer func() { _ = dir.Close() }()
	if filelock.Flock(dir, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return "", "", nil // another caller works on it
	}
	f, err := d.load(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "its creator died", nil
	case err != nil:
		return "", "", err
	}
	s := sandbox.Sandbox{Deadline: f.Deadline}
	return f.Name, s.Overdue(time.Now()), nil
}
