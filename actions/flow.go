package actions

import (
	"context"
	"sync"
	"time"
)

const (
	// flowWindow is how many bytes a program may be ahead of the reader of its output.
	flowWindow = 1 << 20
	// flowTime is how long a program waits for a reader that takes nothing.
	flowTime = 30 * time.Second
)

// Flow is the back-pressure between a program and the reader that started it: the program
// waits for the reader as for the next program in a pipeline, so that the reader gets more
// than the journal keeps. A nil Flow holds no program back. Its methods may be called
// concurrently.
type Flow struct {
	mu      sync.Mutex
	ahead   int64         // bytes that the reader has not taken
	changed chan struct{} // closed at the next change
	over    bool          // there is no reader
}

// NewFlow returns the Flow of a reader that has taken nothing.
func NewFlow() *Flow { return &Flow{changed: make(chan struct{})} }

// add counts output, and returns when the reader is near enough, has left or has taken
// nothing for flowTime, or when ctx ends.
func (f *Flow) add(ctx context.Context, n int) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += int64(n)
	for !f.over && f.ahead > flowWindow && ctx.Err() == nil {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		case <-time.After(flowTime):
			f.Leave()
		}
		f.mu.Lock()
	}
}

// take counts the bytes that the reader took.
func (f *Flow) take(n int64) { f.change(func() { f.ahead -= n }) }

// Leave ends the back-pressure: the reader has left.
func (f *Flow) Leave() { f.change(func() { f.over = true }) }

// change changes the state and wakes a program that waits.
func (f *Flow) change(do func()) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}
