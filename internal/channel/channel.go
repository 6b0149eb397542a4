// Package channel waits for channels that are closed as a signal, and for times.
package channel

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Closed reports whether c, to which no value is ever sent, is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// ClosedWithin waits at most for limit until c is closed, and reports whether it is.
func ClosedWithin(c <-chan struct{}, limit time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(limit):
		return Closed(c)
	}
}

// Go runs work in a goroutine until stop, which closes over and returns once work has. It is called once.
func Go(work func(over <-chan struct{})) (stop func()) {
	over := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() { work(over) })
	return func() {
		close(over)
		working.Wait()
	}
}

// Sleep returns nil after d, or the cause of the end of ctx if that comes first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// EndedBy reports whether err is no more than the end of ctx.
func EndedBy(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}
