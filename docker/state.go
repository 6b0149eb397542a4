package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// stateDir is a directory that only the controller's user can open:
//
//	controller            who this is
//	locks/ID              held while a process makes or ends that sandbox
//	locks/name-NAME       held while a process makes a sandbox of that name
//	locks/users           held while a user id is picked
//	locks/pool-NAME       held by the process that fills that warm pool
//	locks/egress          held while the egress proxy is made, started or removed
//	sandboxes/ID/claim    key, name, owner of the sandbox
//	sandboxes/ID/run/     mounted into the sandbox
//	egress/               mounted into the egress proxy, which makes the rest in it:
//	egress/conf/ID.json   the network policy of the sandbox, its secrets and the key of its CA
//	egress/conf/host.json the addresses that no sandbox reaches
//	egress/conf/ID.pem    the authorities that verify the sandbox's hosts with secrets
//	egress/run/ID/        mounted into the sandbox
//	egress/control        the controller's socket of the proxy
//
// An os.Root keeps links from leading out of it.
type stateDir struct {
	path string
	root *os.Root
}

// openState makes the directory if it is not there and refuses one that others
// could change.
func openState(dir string) (*stateDir, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("state directory %q must be an absolute path", dir)
	}
	root, err := hostpath.OpenPrivate(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the state directory %s: %w; choose another with --state-dir", dir, err)
	}
	s := &stateDir{dir, root}
	if err := errors.Join(s.mkdir("locks"), s.mkdir("sandboxes")); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("preparing the state directory %s: %w", dir, err)
	}
	return s, nil
}

func (s *stateDir) Close() error { return s.root.Close() }

func (s *stateDir) mkdir(name string) error {
	if err := s.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// controller is the name of the controller that uses this directory. Two controllers on one
// engine leave each other's sandboxes alone.
func (s *stateDir) controller() (string, error) {
	unlock, err := filelock.LockBriefly(s.root, "locks/controller")
	if err != nil {
		return "", err
	}
	defer unlock()
	data, err := s.root.ReadFile("controller")
	if err == nil && len(data) == 16 {
		return string(data), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading who this controller is: %w", err)
	}
	id := random.Hex(8)
	return id, s.write("controller", []byte(id))
}

// tempSuffix ends the names of files that are being written.
const tempSuffix = ".tmp"

// write puts a whole file in place or changes nothing, also where the machine loses
// power meanwhile.
func (s *stateDir) write(name string, data []byte) error {
	temp := name + "." + random.Hex(4) + tempSuffix
	err := s.writeThrough(temp, data)
	if err == nil {
		err = s.root.Rename(temp, name)
	}
	if err != nil {
		_ = s.root.Remove(temp)
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// writeThrough makes a file and returns when its data is on the disk.
func (s *stateDir) writeThrough(name string, data []byte) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// stateFile is the record that a controller keeps of a sandbox: secrets, which must not be in labels, and values
// that change.
type stateFile struct {
	Ticket   string            `json:"ticket,omitempty"` // for its claim and its deadline
	Key      string            `json:"key,omitempty"`
	Owner    string            `json:"owner,omitempty"`
	Name     string            `json:"name,omitempty"`
	Env      map[string]string `json:"env,omitempty"` // to claim it again after a restart
	Done     bool              `json:"done"`          // the sandbox was ready once
	Claimed  bool              `json:"claimed"`       // a warm one has an owner, or is about to
	Spec     string            `json:"spec,omitempty"`
	Deadline time.Time         `json:"deadline,omitzero"` // after a claim or a renewal
	Idle     time.Duration     `json:"idle,omitempty"`
	Egress   bool              `json:"egress,omitempty"` // it has a network policy, in egress/conf
	Names    bool              `json:"names,omitempty"`  // with Egress: programs that know no proxy can connect to names
	Mounts   []sandbox.Mount   `json:"mounts,omitempty"` // as they were checked
	UserID   int               `json:"user_id,omitempty"`
}

// forever is the deadline of a sandbox whose deadline was taken away.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// prepare makes the directory of a sandbox and the empty one that is mounted
// into it. It returns the path of the latter. It removes the directory of an earlier
// sandbox of that id.
func (s *stateDir) prepare(id string) (string, error) {
	if err := s.remove(id); err != nil {
		return "", err
	}
	dir := path.Join("sandboxes", id)
	if err := s.root.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the directory of sandbox %s: %w", id, err)
	}
	return s.runPath(id), s.makeRun(id)
}

// makeRun makes the directory of the socket where it does not exist: backups have none.
func (s *stateDir) makeRun(id string) error {
	if err := s.root.Mkdir(path.Join("sandboxes", id, "run"), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the socket directory of sandbox %s: %w", id, err)
	}
	return nil
}

// give makes the directory that is mounted, and its contents, the server's. An
// engine that remaps users has another number for that than 0.
func (s *stateDir) give(id string, uid int) error {
	if uid == os.Geteuid() {
		return nil
	}
	dir := path.Join("sandboxes", id, "run")
	entries, err := fs.ReadDir(s.root.FS(), dir)
	for _, e := range entries {
		err = errors.Join(err, s.root.Lchown(path.Join(dir, e.Name()), uid, -1))
	}
	if err = errors.Join(err, s.root.Lchown(dir, uid, -1)); err != nil {
		return fmt.Errorf("giving the socket directory to the server of sandbox %s: %w", id, err)
	}
	return nil
}

func (s *stateDir) runPath(id string) string { return filepath.Join(s.path, "sandboxes", id, "run") }

func (s *stateDir) remove(id string) error {
	if err := s.root.RemoveAll(path.Join("sandboxes", id)); err != nil {
		return fmt.Errorf("removing the directory of sandbox %s: %w", id, err)
	}
	return nil
}

func (s *stateDir) save(id string, n stateFile) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return s.write(path.Join("sandboxes", id, "claim"), data)
}

// load is the state file of a sandbox; it fails with fs.ErrNotExist if there is no state file.
func (s *stateDir) load(id string) (stateFile, error) {
	var n stateFile
	data, err := s.root.ReadFile(path.Join("sandboxes", id, "claim"))
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return n, fmt.Errorf("reading the state file of sandbox %s: %w", id, err)
	}
	return n, nil
}

// ids are those that have a directory here.
func (s *stateDir) ids() ([]string, error) {
	entries, err := fs.ReadDir(s.root.FS(), "sandboxes")
	if err != nil {
		return nil, fmt.Errorf("listing the sandboxes' directories: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// lock waits until no other caller, in this process or another, holds the lock of
// that name. It is released by unlock, or by the death of this process.
func (s *stateDir) lock(ctx context.Context, name string) (unlock func(), err error) {
	return filelock.Lock(ctx, s.root, path.Join("locks", name))
}

// tryLock is lock without waiting; it fails with filelock.ErrLocked.
func (s *stateDir) tryLock(name string) (unlock func(), err error) {
	return filelock.TryLock(s.root, path.Join("locks", name))
}
