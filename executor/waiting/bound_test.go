package waiting_test

import (
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/waiting"
)

// A look that the kernel does not answer costs one of the looks, and no caller more than the
// limit.
func TestBound(t *testing.T) {
	t.Parallel()
	b := waiting.NewBound(2, 50*time.Millisecond)
	free := make(chan struct{})
	var ended sync.WaitGroup
	for range 2 {
		ended.Add(1)
		if b.Do(func(time.Time) { defer ended.Done(); <-free }) {
			t.Error("a look that hangs has ended")
		}
	}
	if b.Do(func(time.Time) { t.Error("a third look began") }) {
		t.Error("a third look ended")
	}
	close(free)
	ended.Wait()
}

// A look waits for its turn instead of being refused.
func TestBoundWaits(t *testing.T) {
	t.Parallel()
	b := waiting.NewBound(1, patience)
	began, free := make(chan struct{}), make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		if !b.Do(func(time.Time) { close(began); <-free }) {
			t.Error("the first look did not end")
		}
	})
	<-began
	looks.Go(func() {
		if !b.Do(func(time.Time) {}) {
			t.Error("the second look did not wait for the first one")
		}
	})
	time.AfterFunc(10*time.Millisecond, func() { close(free) })
	looks.Wait()
}
