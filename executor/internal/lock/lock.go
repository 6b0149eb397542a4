// Package lock takes locks within a time.
package lock

import (
	"context"
	"sync"
)

// Before locks before ctx ends; otherwise the error is the cause of its end. Its turn comes also
// where another goroutine gives the lock back only to take it again, and a lock that
// readers share lets no further one in meanwhile.
func Before(ctx context.Context, l sync.Locker) error {
	locked := make(chan struct{})
	go func() {
		l.Lock()
		close(locked)
	}()
	select {
	case <-locked:
		return nil
	case <-ctx.Done():
		go func() { // it ends with what is waited for
			<-locked
			l.Unlock()
		}()
		return context.Cause(ctx)
	}
}
