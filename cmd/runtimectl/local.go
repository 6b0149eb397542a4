package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/actiond/actiond/docker"
)

// localPlace is this machine: a sandbox is a server process in a directory of
// its own. It isolates nothing. What is known of a sandbox stands in that
// directory, so that any process of the same user finds it:
//
//	facts    a localFacts, as JSON
//	key      of the server
//	socket   of the server
//	alive    locked by the server as long as it lives
//	log      of the server
//	state/   of the server
//	work/    where shells start
type localPlace struct {
	dir     string // holds a directory for each sandbox
	program string // the server; "" where none was looked for
}

// localFacts are what a local sandbox was made with.
type localFacts struct {
	Name     string            `json:"name"`
	Owner    string            `json:"owner,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Created  time.Time         `json:"created"`
	Deadline time.Time         `json:"deadline,omitzero"`
	Idle     time.Duration     `json:"idle,omitempty"`
	PID      int               `json:"pid"`
}

// openLocal opens this machine as a place. The server is looked for when one is
// to be started.
func (p *program) openLocal() (*localPlace, error) {
	dir := p.place.stateDir
	if dir == "" {
		var err error
		if dir, err = p.localStateDir(); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(filepath.Join(dir, "local"))
	if err != nil {
		return nil, fmt.Errorf("finding the state directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	return &localPlace{dir: dir, program: p.place.server}, nil
}

// localStateDir is the default of --state-dir.
func (p *program) localStateDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/actiond", nil
	}
	if dir := p.getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "actiond"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the state directory: %w; name one with --state-dir", err)
	}
	return filepath.Join(home, ".local", "state", "actiond"), nil
}

// warnLocal says loudly what --local is not.
func (p *program) warnLocal() {
	_, _ = fmt.Fprintf(p.stderr, "warning: --local isolates nothing: commands run on this machine with all rights of user %d\n", os.Geteuid())
}

// Close does nothing: sandboxes live on.
func (l *localPlace) Close() error { return nil }

func (l *localPlace) path(id, name string) string { return filepath.Join(l.dir, id, name) }

// longestLocal leaves room for an id and a socket's name in a socket's path.
const longestLocal = longestSocket - len("/0123456789ab/socket")

// Create starts a server in a directory of its own.
func (l *localPlace) Create(ctx context.Context, spec docker.Spec) (made *sandbox, err error) {
	if len(l.dir) > longestLocal {
		return nil, fmt.Errorf("the path %s is too long for a socket in it: choose another directory with --state-dir", l.dir)
	}
	if spec.Name != "" && !localName.MatchString(spec.Name) {
		return nil, fmt.Errorf("%w: name %q: letters, digits, '_', '.' and '-', beginning with a letter or digit", docker.ErrInvalid, spec.Name)
	}
	random := make([]byte, 6)
	_, _ = rand.Read(random) // never fails
	id := hex.EncodeToString(random)
	if err := os.Mkdir(filepath.Join(l.dir, id), 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for the sandbox: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(filepath.Join(l.dir, id)))
		}
	}()
	unlock, err := l.lock(id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	f := localFacts{Name: spec.Name, Owner: spec.Owner, Labels: spec.Labels, Env: spec.Env, Created: time.Now(), Idle: spec.Idle}
	if f.Name == "" {
		f.Name = id
	}
	if spec.TTL > 0 {
		f.Deadline = f.Created.Add(spec.TTL)
	}
	if err := os.WriteFile(l.path(id, "key"), []byte(rand.Text()), 0o600); err != nil {
		return nil, fmt.Errorf("writing the server's key: %w", err)
	}
	for _, name := range []string{"work", "state", "tmp"} {
		if err := os.Mkdir(l.path(id, name), 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of sandbox %s: %w", id, err)
		}
	}
	if err := l.launch(ctx, id, f); err != nil {
		return nil, err
	}
	return l.sandbox(id)
}

var localName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)

// launch starts the server of a sandbox, whose lock is held, and returns when a
// command ran. The process outlives this one.
func (l *localPlace) launch(ctx context.Context, id string, f localFacts) (err error) {
	program, err := findServer(l.program)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(l.path(id, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the server's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	alive, err := lockedFile(l.path(id, "alive"), syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = alive.Close() }() // the server has it too
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program,
		"--addr", "unix:"+l.path(id, "socket"), "--working-dir", l.path(id, "work"),
		"--session-key-file", l.path(id, "key"), "--state-dir", l.path(id, "state"))
	if !f.Deadline.IsZero() {
		cmd.Args = append(cmd.Args, "--ttl", max(time.Until(f.Deadline), time.Second).String())
	}
	if f.Idle > 0 {
		cmd.Args = append(cmd.Args, "--idle-limit", f.Idle.String())
	}
	cmd.Env = append(os.Environ(), "TMPDIR="+l.path(id, "tmp"))
	for _, name := range slices.Sorted(maps.Keys(f.Env)) {
		cmd.Env = append(cmd.Env, name+"="+f.Env[name])
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.path(id, "work"), log, log
	cmd.ExtraFiles = []*os.File{alive}
	// A session of its own: it is to outlive this terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	ended := make(chan *os.ProcessState, 1)
	go func() { // ends with the server, or with this program
		_ = cmd.Wait() // the state says the same
		ended <- cmd.ProcessState
	}()
	f.PID = cmd.Process.Pid
	if err = l.save(id, f); err == nil {
		err = l.waitReady(ctx, id, ended)
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	return err
}

// waitReady returns when the server of a sandbox runs commands, or why it does
// not.
func (l *localPlace) waitReady(ctx context.Context, id string, ended <-chan *os.ProcessState) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("nothing after %v", readyLimit))
	defer cancel()
	key, err := l.key(id)
	if err != nil {
		return err
	}
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	for {
		err := agent{}.Ready(ctx, l.dialer(id), key)
		if err == nil {
			return nil
		}
		select {
		case how := <-ended:
			return fmt.Errorf("sandbox %s: the server ended by itself (%v)%s", id, how, l.lastWords(id))
		case <-ctx.Done():
			return fmt.Errorf("sandbox %s: waiting for the first command: %w (%w)%s", id, context.Cause(ctx), err, l.lastWords(id))
		case <-pause.C:
		}
	}
}

// lastWords are the last lines of a server's log, for the end of an error.
func (l *localPlace) lastWords(id string) string {
	data, err := os.ReadFile(l.path(id, "log"))
	if err != nil {
		return ""
	}
	var t tail
	_, _ = t.Write(data) // never fails
	return t.quote()
}

func (l *localPlace) dialer(id string) docker.DialFunc {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", l.path(id, "socket"))
		if err != nil {
			return nil, fmt.Errorf("connecting to sandbox %s: %w", id, err)
		}
		return conn, nil
	}
}

func (l *localPlace) key(id string) (string, error) {
	data, err := os.ReadFile(l.path(id, "key"))
	if err != nil {
		return "", fmt.Errorf("reading the key of sandbox %s: %w", id, err)
	}
	return string(data), nil
}

func (l *localPlace) save(id string, f localFacts) error {
	data, err := json.Marshal(f)
	if err == nil {
		temp := l.path(id, "facts.tmp")
		if err = os.WriteFile(temp, data, 0o600); err == nil {
			err = os.Rename(temp, l.path(id, "facts"))
		}
	}
	if err != nil {
		return fmt.Errorf("writing down sandbox %s: %w", id, err)
	}
	return nil
}

func (l *localPlace) load(id string) (localFacts, error) {
	var f localFacts
	data, err := os.ReadFile(l.path(id, "facts"))
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		return f, fmt.Errorf("reading about sandbox %s: %w", id, err)
	}
	return f, nil
}

// lock keeps others from changing a sandbox until unlock.
func (l *localPlace) lock(id string) (unlock func(), err error) {
	dir, err := os.Open(filepath.Join(l.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("sandbox %s: %w", id, docker.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("locking sandbox %s: %w", id, err)
	}
	if err := flock(dir, syscall.LOCK_EX); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("locking sandbox %s: %w", id, err)
	}
	return func() { _ = dir.Close() }, nil
}

func flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// lockedFile opens a file, making it if need be, and locks it. It does not wait.
func lockedFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(file, how|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	return file, nil
}

// alive tells whether a sandbox has its server.
func (l *localPlace) alive(id string) bool {
	file, err := lockedFile(l.path(id, "alive"), syscall.LOCK_SH)
	if err == nil {
		_ = file.Close()
	}
	return errors.Is(err, syscall.EWOULDBLOCK)
}

// sandbox looks at one.
func (l *localPlace) sandbox(id string) (*sandbox, error) {
	f, err := l.load(id)
	if err != nil {
		return nil, err
	}
	s := &docker.Sandbox{
		ID: id, Name: f.Name, Owner: f.Owner, Image: "(local)", State: docker.Stopped, Created: f.Created,
		Deadline: f.Deadline, IdleLimit: f.Idle, Labels: f.Labels, User: strconv.Itoa(os.Geteuid()), Transport: "socket",
	}
	if l.alive(id) {
		s.State, s.Detail = docker.Ready, "process "+strconv.Itoa(f.PID)
	}
	return &sandbox{s, l.dialer(id), func() (string, error) { return l.key(id) }}, nil
}

var localID = regexp.MustCompile(`^[0-9a-f]{12}$`)

// List looks at all of them, the eldest first. One that is just being made is
// not among them.
func (l *localPlace) List(context.Context) ([]*sandbox, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the sandboxes: %w", err)
	}
	var all []*sandbox
	for _, e := range entries {
		if !localID.MatchString(e.Name()) {
			continue
		}
		s, err := l.sandbox(e.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *sandbox) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, nil
}

// Delete ends the server and removes the directory.
func (l *localPlace) Delete(ctx context.Context, s *sandbox) error {
	unlock, err := l.lock(s.ID)
	if errors.Is(err, docker.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.end(ctx, s.ID, stopLimit); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(l.dir, s.ID)); err != nil {
		return fmt.Errorf("removing sandbox %s: %w", s.ID, err)
	}
	return nil
}

// Stop ends the server and keeps the directory.
func (l *localPlace) Stop(ctx context.Context, s *sandbox, grace time.Duration) error {
	unlock, err := l.lock(s.ID)
	if err != nil {
		return err
	}
	defer unlock()
	return l.end(ctx, s.ID, grace)
}

// end asks the server to end, and kills it after grace. It knows whom to ask as
// long as the server holds its lock: the process's number is its own then.
func (l *localPlace) end(ctx context.Context, id string, grace time.Duration) error {
	f, err := l.load(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	kill := time.NewTimer(grace)
	defer kill.Stop()
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	sent := false
	for l.alive(id) {
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
func (l *localPlace) Start(ctx context.Context, s *sandbox) error {
	unlock, err := l.lock(s.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if l.alive(s.ID) {
		return nil
	}
	f, err := l.load(s.ID)
	if err != nil {
		return err
	}
	return l.launch(ctx, s.ID, f)
}

// Renew writes down another deadline. The server has to be told as well.
func (l *localPlace) Renew(_ context.Context, s *sandbox, deadline time.Time) error {
	unlock, err := l.lock(s.ID)
	if err != nil {
		return err
	}
	defer unlock()
	f, err := l.load(s.ID)
	if err != nil {
		return err
	}
	f.Deadline, s.Deadline = deadline, deadline
	return l.save(s.ID, f)
}

// Prune removes those whose time is up, and what creators who died have left.
func (l *localPlace) Prune(ctx context.Context, dryRun bool) ([]docker.Removal, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the sandboxes: %w", err)
	}
	var removed []docker.Removal
	var failures []error
	for _, e := range entries {
		id := e.Name()
		if !localID.MatchString(id) {
			continue
		}
		name, reason, err := l.reason(id)
		if err == nil && reason != "" && !dryRun {
			err = l.Delete(ctx, &sandbox{Sandbox: &docker.Sandbox{ID: id}})
		}
		if err == nil && reason != "" {
			removed = append(removed, docker.Removal{ID: id, Name: name, Reason: reason})
		}
		failures = append(failures, err)
	}
	return removed, errors.Join(failures...)
}

// reason says why a sandbox is to be removed, "" where it is not.
func (l *localPlace) reason(id string) (name, reason string, err error) {
	dir, err := os.Open(filepath.Join(l.dir, id))
	if err != nil {
		return "", "", err
	}
	defer func() { _ = dir.Close() }()
	if flock(dir, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return "", "", nil // somebody works on it
	}
	f, err := l.load(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "its creator died", nil
	case err != nil:
		return "", "", err
	case !f.Deadline.IsZero() && !time.Now().Before(f.Deadline):
		return f.Name, "its time was up at " + f.Deadline.UTC().Format(time.RFC3339), nil
	}
	return f.Name, "", nil
}

// WorkDir is where the shells of a sandbox start.
func (l *localPlace) WorkDir(_ context.Context, s *sandbox) (string, error) {
	return l.path(s.ID, "work"), nil
}

// Logs writes what the server logged. Of the options it knows Follow and Tail:
// the lines begin with their time in any case.
func (l *localPlace) Logs(ctx context.Context, s *sandbox, o docker.LogOptions, _, stderr io.Writer) error {
	file, err := os.Open(l.path(s.ID, "log"))
	if err != nil {
		return fmt.Errorf("reading the log of sandbox %s: %w", s.ID, err)
	}
	defer func() { _ = file.Close() }()
	if o.Tail > 0 {
		if err := seekLines(file, o.Tail); err != nil {
			return fmt.Errorf("reading the log of sandbox %s: %w", s.ID, err)
		}
	}
	pause := time.NewTicker(10 * readyPause)
	defer pause.Stop()
	for {
		over := !o.Follow || !l.alive(s.ID)
		if _, err := io.Copy(stderr, file); err != nil {
			return fmt.Errorf("copying the log of sandbox %s: %w", s.ID, err)
		}
		if over {
			return nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// seekLines goes to where the last n lines of a file begin.
func seekLines(file *os.File, n int) error {
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	lines := slices.Collect(bytes.Lines(data))
	last := bytes.Join(lines[max(0, len(lines)-n):], nil)
	_, err = file.Seek(-int64(len(last)), io.SeekCurrent)
	return err
}
