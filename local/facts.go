package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/sandbox"
)

// facts are the recorded data of a sandbox.
type facts struct {
	Name     string            `json:"name"`
	Owner    string            `json:"owner,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	WorkDir  string            `json:"work_dir,omitempty"` // default: work, in the sandbox's directory
	Created  time.Time         `json:"created"`
	Deadline time.Time         `json:"deadline,omitzero"`
	Idle     time.Duration     `json:"idle,omitempty"`
	PID      int               `json:"pid"`
	Spec     string            `json:"spec,omitempty"`   // hash of the specification
	Ticket   string            `json:"ticket,omitempty"` // for its deadline
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
		return fmt.Errorf("recording sandbox %s: %w", id, err)
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
		return facts{}, fmt.Errorf("reading the facts of sandbox %s: %w", id, err)
	}
	return f, nil
}

// workDir returns the directory in which the commands of a sandbox start.
func (d *Driver) workDir(id string, f facts) string { return cmp.Or(f.WorkDir, d.path(id, "work")) }

// lock prevents other changes of a sandbox until unlock. ctx bounds the wait.
func (d *Driver) lock(ctx context.Context, id string) (unlock func(), err error) {
	unlock, err = filelock.Lock(ctx, d.root, lockName(id))
	if err != nil {
		return nil, fmt.Errorf("waiting for another caller that changes sandbox %s: %w", id, err)
	}
	if _, err = d.root.Lstat(id); err == nil {
		return unlock, nil
	}
	unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("sandbox %s: %w", id, sandbox.ErrNotFound)
	}
	return nil, fmt.Errorf("locking sandbox %s: %w", id, err)
}

func lockName(id string) string { return ".lock-" + id }

// creationLock is held while the sandbox of an id is created, and before its lock.
func creationLock(id string) string { return ".id-" + id }

// sandbox reads a sandbox. If its facts are damaged, it returns a sandbox with the id, so
// that it can be listed and removed; without facts it fails with fs.ErrNotExist.
func (d *Driver) sandbox(id string) (*sandbox.Sandbox, error) {
	f, err := d.load(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s := &sandbox.Sandbox{
		Access: access{d, id},
		ID:     id, Name: cmp.Or(f.Name, id), Owner: f.Owner, Image: "(local)", State: sandbox.Stopped, Created: f.Created,
		Deadline: f.Deadline, IdleLimit: f.Idle, Spec: f.Spec, Labels: f.Labels, User: strconv.Itoa(os.Geteuid()),
		Instance: id + "-" + strconv.FormatInt(f.Created.UnixNano(), 36),
	}
	if d.alive(id) {
		s.State, s.Detail = sandbox.Ready, "process "+strconv.Itoa(f.PID)
	}
	if err != nil {
		s.Detail = err.Error()
	}
	return s, nil
}
