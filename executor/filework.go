package executor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/actiond/actiond/api"
)

const (
	// maxFileWork bounds what is done to files at a time. Each holds a thread for
	// as long as its file system takes, and a server that needs one more where an
	// agent has taken the last process of a sandbox ends.
	maxFileWork = 8
	// stuckTime is how long file work waits for its turn.
	stuckTime = 30 * time.Second
)

// fileWork is a semaphore of maxFileWork. Work that hangs in a file system keeps
// its share of it; callers need not wait for it.
type fileWork struct{ *semaphore.Weighted }

func newFileWork() fileWork { return fileWork{semaphore.NewWeighted(maxFileWork)} }

// acquire waits for the turn of one piece of work; ctx bounds the wait. The error is
// an *api.Error where no work ends.
func (f fileWork) acquire(ctx context.Context) (release func(), err error) {
	release = func() { f.Release(1) }
	if f.TryAcquire(1) { // without a timer in the usual case
		return release, nil
	}
	bound, cancel := context.WithTimeoutCause(ctx, stuckTime,
		api.TooMany(fmt.Sprintf("%d accesses to files are under way, and none ended within %v: a file system may not answer", maxFileWork, stuckTime)))
	defer cancel()
	if err := f.Acquire(bound, 1); err != nil {
		return nil, context.Cause(bound)
	}
	return release, nil
}

// onFiles does file work when it is its turn. ctx bounds the wait for it, and it
// goes on without its caller.
func onFiles[T any](ctx context.Context, f fileWork, work func() (T, error)) (result T, err error) {
	release, err := f.acquire(ctx)
	if err != nil {
		return result, err
	}
	type outcome struct {
		result   T
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var out outcome
		defer func() {
			out.panicked = recover()
			release()
			done <- out
		}()
		out.result, out.err = work()
	}()
	select {
	case out := <-done:
		if out.panicked != nil {
			panic(out.panicked)
		}
		return out.result, out.err
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}

// withFiles does work with files. Where these are so large that they may not fit into memory
// beside others, it waits for its part first; where the answer is even larger, again.
func (e *Executor) withFiles(ctx context.Context, w api.Watch, paths []string, req api.Request, work func() api.Observation) (api.Observation, error) {
	var size int64
	o, err := onFiles(ctx, e.files, func() (api.Observation, error) {
		for _, path := range paths {
			if !filepath.IsAbs(path) {
				path = filepath.Join(e.workingDir(req.Session), path)
			}
			info, err := os.Stat(path)
			if ctx.Err() != nil { // the file system did not answer in time
				return nil, context.Cause(ctx)
			}
			if err == nil && info.Mode().IsRegular() && info.Size() <= e.cfg.MaxFile { // beyond it is not loaded
				size += info.Size()
			}
		}
		if size >= api.LargeSize {
			return nil, nil
		}
		return work(), nil
	})
	for again := range 2 {
		if o != nil || err != nil {
			break
		}
		if err := w.Takes(size); err != nil {
			return nil, err
		}
		o, err = onFiles(ctx, e.files, func() (api.Observation, error) { return work(), nil })
		if _, reads := o.(api.ReadObservation); reads && again == 0 && api.AnswerSize(o) > size {
			size, o = api.AnswerSize(o), nil
		}
	}
	return o, err
}

// As does the file work of a server with the rights of the sandbox's user. The
// error is that of work, or an *api.Error where no other work ends.
func (e *Executor) As(work func() error) error {
	release, err := e.files.acquire(context.Background())
	if err != nil {
		return err
	}
	defer release()
	return e.cfg.User.Do(work)
}
