package executor

import (
	"context"

	"github.com/actiond/actiond/api"
)

// noUndo says why changes cannot be taken back.
const noUndo = "the contents of files are not kept"

// NoUndo says why changes cannot be taken back, and names the flag; "" if they can.
func (w *Workspace) NoUndo() string { return noUndo }

// Diff adds the lines of text files to changes between two states.
func (w *Workspace) Diff(c *api.Changes, _, _ uint64) {
	if c.Counts.Created+c.Counts.Modified > 0 {
		c.Truncated = true // their lines are not kept
	}
}

// Restore makes the tree what it was in a state.
func (w *Workspace) Restore(uint64, api.RestoreOptions) (*api.Restored, error) {
	return nil, api.Conflict(noUndo)
}

// Revert takes back what changed from one state to another.
func (w *Workspace) Revert(_, _ uint64, _ api.RestoreOptions) (*api.Restored, error) {
	return nil, api.Conflict(noUndo)
}

// Verify is a Step that lists everything.
func (w *Workspace) Verify() (n uint64, exact bool) { return w.Step() }

// Capture waits until the contents of the present state are kept.
func (w *Workspace) Capture(context.Context, uint64) (missing int, paths []api.FilePath, err error) {
	return 0, nil, nil
}

// Pin keeps a state by a name until Unpin.
func (w *Workspace) Pin(api.Pin) error { return api.Conflict(noUndo) }

// Unpin takes back a Pin.
func (w *Workspace) Unpin(name string) error { return api.NotFound("There is no checkpoint " + name) }

// Pins are all of them, by time.
func (w *Workspace) Pins() []api.Pin { return nil }
