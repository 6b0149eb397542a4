package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/sandbox"
)

// Prune removes expired sandboxes, and the leftovers of creators that died.
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
		removal, err := d.prune(ctx, id, dryRun)
		if err == nil && removal.Reason != "" {
			removed = append(removed, removal)
		}
		failures = append(failures, err)
	}
	return removed, errors.Join(failures...)
}

// prune removes a sandbox if it must be removed. It leaves one that is being created
// alone: its creator may have made the directory, and not locked it yet.
func (d *Driver) prune(ctx context.Context, id string, dryRun bool) (sandbox.Removal, error) {
	unlock, err := filelock.TryLock(d.root, creationLock(id))
	if errors.Is(err, filelock.ErrLocked) {
		return sandbox.Removal{}, nil
	}
	if err != nil {
		return sandbox.Removal{}, err
	}
	defer unlock()
	unlockSandbox, err := filelock.TryLock(d.root, lockName(id))
	if errors.Is(err, filelock.ErrLocked) { // another caller works on it
		return sandbox.Removal{}, nil
	}
	if err != nil {
		return sandbox.Removal{}, err
	}
	defer unlockSandbox() // after the removal, which a renewal must not precede
	name, reason, err := d.reason(id)
	if err == nil && reason != "" && !dryRun {
		err = d.destroy(ctx, id)
	}
	return sandbox.Removal{ID: id, Name: name, Reason: reason}, err
}

// reason returns why a sandbox, whose lock is held, must be removed, or "".
func (d *Driver) reason(id string) (name, reason string, err error) {
	if _, err := d.root.Lstat(id); errors.Is(err, fs.ErrNotExist) { // another caller removed it
		return "", "", nil
	}
	f, err := d.load(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "its creator died", nil
	case err != nil: // a person decides: its files may be intact
		return "", "", fmt.Errorf("%w: 'runtimectl rm %s' removes it", err, id)
	}
	s := sandbox.Sandbox{Deadline: f.Deadline}
	return f.Name, s.Overdue(time.Now()), nil
}
