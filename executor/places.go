package executor

import (
	"context"
	"fmt"
	"time"

	"github.com/actiond/actiond/api"
)

const (
	// maxFileWork bounds what is done to files at a time. Each holds a thread for
	// as long as its file system takes, and a server that needs one more where an
	// agent has taken the last process of a sandbox ends.
	maxFileWork = 8
	// stuckTime is how long a place is waited for.
	stuckTime = 30 * time.Second
)

// places bound how much is done to files at a time. What hangs in a file system keeps
// its place, and nobody waits for it who does not want to.
type places chan struct{}

// take takes a place; ctx bounds the wait. The error is an *api.Error where
// nothing ends.
func (p places) take(ctx context.Context) (leave func(), err error) {
	select { // without a timer in the usual case
	case p <- struct{}{}:
		return func() { <-p }, nil
	default:
	}
	limit := time.NewTimer(stuckTime)
	defer limit.Stop()
	select {
	case p <- struct{}{}:
		return func() { <-p }, nil
	case <-limit.C:
		return nil, api.TooMany(fmt.Sprintf("%d accesses to files are under way, and none ended within %v: a file system may not answer", cap(p), stuckTime))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// onFiles does file work in one of the places. ctx bounds the wait for it, and it
// goes on without its caller.
func onFiles[T any](ctx context.Context, p places, work func() (T, error)) (result T, err error) {
	leave, err := p.take(ctx)
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
			leave()
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

// As does what a server is asked to do to files, with the rights of the sandbox's
// user and in one of the places. The error is that of work, or an *api.Error where
// no place gets free.
func (e *Executor) As(work func() error) error {
	leave, err := e.places.take(context.Background())
	if err != nil {
		return err
	}
	defer leave()
	return e.cfg.User.As(work)
}
