package server

import (
	"context"
	"sync"
	"time"
)

const (
	// paceWindow is how many bytes a program may be ahead of the reader of its stream.
	paceWindow = 1 << 20
	// paceTime is how long a program waits for a reader that takes nothing.
	paceTime = 30 * time.Second
)

// pace has a program wait for the reader that started it, as the next program in a
// pipeline would, so that it gets more than the journal keeps. A nil pace does not
// wait. Its methods may be called concurrently.
type pace struct {
	mu    sync.Mutex
	ahead int64         // bytes that the reader has not taken
	moved chan struct{} // closed when it takes some
	over  bool          // there is no reader
	held  bool          // no program waits
}

func newPace() *pace { return &pace{moved: make(chan struct{})} }

// add counts output, and returns when the reader is near enough, is gone, has taken
// nothing for paceTime, or ctx is over.
func (p *pace) add(ctx context.Context, n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead += int64(n)
	for !p.over && !p.held && p.ahead > paceWindow && ctx.Err() == nil {
		moved := p.moved
		p.mu.Unlock()
		timer := time.NewTimer(paceTime)
		select {
		case <-moved:
		case <-ctx.Done():
		case <-timer.C:
			p.leave()
		}
		timer.Stop()
		p.mu.Lock()
	}
}

// take counts what the reader took.
func (p *pace) take(n int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead -= n
	p.change()
}

// hold has no program wait, or again.
func (p *pace) hold(held bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	p.change()
}

// leave says that the reader left.
func (p *pace) leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.change()
}

// change wakes a program that waits. The caller holds mu.
func (p *pace) change() {
	close(p.moved)
	p.moved = make(chan struct{})
}
