package executor

import (
	"context"

	"github.com/actiond/actiond/api"
)

// What tests need to see from inside.
const MaxFileWork = maxFileWork

// NewFileWork returns a semaphore for file work.
var NewFileWork = newFileWork

// OnFiles is file work with a number for a result.
var OnFiles = onFiles[int]

// OwnedByRoot returns a directory that may be on root's PATH, without links, or "".
var OwnedByRoot = ownedByRoot

// WithFiles does work with files.
func (e *Executor) WithFiles(ctx context.Context, w api.Watch, path string, work func() api.Observation) (api.Observation, error) {
	return e.withFiles(ctx, w, []string{path}, api.Request{}, work)
}
