package executor

import (
	"context"

	"github.com/actiond/actiond/api"
)

// Internals that tests need.
const MaxFileWork = maxFileWork

// NewFileWork returns a semaphore for file work.
var NewFileWork = newFileWork

// OnFiles is file work with a number for a result.
var OnFiles = onFiles[int]

// OwnedBy returns a directory that may be in the environment of a user's programs, without links, or "".
var OwnedBy = ownedBy

// WithFiles does work with files.
func (e *Executor) WithFiles(ctx context.Context, w api.Watch, path string, work func() api.Observation) (api.Observation, error) {
	return e.withFiles(ctx, w, []string{path}, api.Request{}, work)
}

// Find calls find as a look at the workspace is called, and reports whether it returned in time.
func (w *Workspace) Find(find func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := bounded(w, func() bool { find(); return true })
	return ok
}

// Mark is the variable that the agent's processes have.
func (e *Executor) Mark() string { return e.mark }
