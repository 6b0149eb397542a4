// Package gate lets work begin until its owner closes, which then waits for the work that has begun.
package gate

import "sync"

// Gate counts work. The zero Gate is open. Its methods may be called concurrently.
type Gate struct {
	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // gets no more once closed is set, so that Wait misses none
}

// Begin counts work, whose end the caller must report by [Gate.Done]. It returns false, and counts
// nothing, if the gate is closed.
func (g *Gate) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.work.Add(1)
	return true
}

// Done reports the end of work that Begin counted.
func (g *Gate) Done() { g.work.Done() }

// Go runs f in a goroutine if Begin returns true, and returns that.
func (g *Gate) Go(f func()) bool {
	if !g.Begin() {
		return false
	}
	go func() {
		defer g.Done()
		f()
	}()
	return true
}

// Close lets no further work begin. It does not wait. It returns false if the gate was closed before.
func (g *Gate) Close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.closed
	g.closed = true
	return !was
}

// Wait returns when all work is done. The gate must be closed.
func (g *Gate) Wait() { g.work.Wait() }
