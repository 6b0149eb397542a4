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
	// maxFileWork bounds the file actions at a time. Each holds a thread for
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
	return waitDetached(ctx, release, work)
}

// waitDetached waits for work until ctx ends; the work goes on. release is called after the work.
func waitDetached[T any](ctx context.Context, release func(), work func() (T, error)) (result T, err error) {
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

// withFiles does work with files. Where these or the answer are so large that they may not fit into
// memory beside others, it waits for its part first, which it holds until the work has ended.
func (e *Executor) withFiles(
	ctx context.Context, w api.Watch, paths []string, req api.Request, work func() api.Observation,
) (api.Observation, error) {
	var size int64
	o, err := onFiles(ctx, e.files, func() (api.Observation, error) {
		size = e.sizeOf(paths, req.Session)
		switch {
		case ctx.Err() != nil: // the file system did not answer in time
			return nil, context.Cause(ctx)
		case size >= api.LargeSize:
			return nil, nil
		}
		return work(), nil
	})
	const tries = 3 // the size of the file, that of its text in an answer, and once more for a file that grew
	for taken, again := int64(0), 0; err == nil && again < tries; again++ {
		if o != nil {
			size = readSize(o)
		}
		if size <= taken {
			break
		}
		if err := w.Takes(size); err != nil {
			return nil, err
		}
		taken = size
		o, err = e.holding(ctx, w, work)
	}
	return o, err
}

// holding does work with files that holds the memory of its action until it has ended.
func (e *Executor) holding(ctx context.Context, w api.Watch, work func() api.Observation) (api.Observation, error) {
	release, err := e.files.acquire(ctx)
	if err != nil {
		return nil, err
	}
	free := w.Holds()
	return waitDetached(ctx, func() { free(); release() }, func() (api.Observation, error) { return work(), nil })
}

// sizeOf returns how many bytes of files are loaded, as far as the user may know.
func (e *Executor) sizeOf(paths []string, session string) (size int64) {
	dir := e.workingDir(session)
	_ = e.cfg.User.Do(func() error { // where that fails, so does the work
		for _, path := range paths {
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			info, err := os.Stat(path)
			if err == nil && info.Mode().IsRegular() && info.Size() <= e.cfg.MaxFile { // beyond it is not loaded
				size += info.Size()
			}
		}
		return nil
	})
	return size
}

// mostCounted is how many bytes [api.AnswerSize] counts at most for one of a text.
const mostCounted = 3

// readSize returns the size of the answer to a read, as large ones are counted; 0 for one that is not large, and
// for other answers, whose work had its effect.
func readSize(o api.Observation) int64 {
	if _, reads := o.(api.ReadObservation); !reads || mostCounted*len(api.Content(o)) < api.LargeSize {
		return 0
	}
	if size := api.AnswerSize(o); size >= api.LargeSize {
		return size
	}
	return 0
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
