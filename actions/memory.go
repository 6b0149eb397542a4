package actions

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
)

// takeTime is how long an action waits for the memory that it needs before it begins.
const takeTime = 30 * time.Second

// Memory bounds the bytes that large bodies, files and answers hold together, so that all
// actions in flight fit into a sandbox: the work on them takes up to six times their bytes. Its
// methods may be called concurrently. It differs from a semaphore.Weighted in that an action
// that has some bytes goes before those without any: they wait for its bytes.
type Memory struct {
	size    int64
	growing sync.Mutex // held by the action that waits for more than its request has

	mu      sync.Mutex
	free    int64
	waiting list.List // of *waiter, the next one first
}

// waiter is a caller that waits for bytes.
type waiter struct {
	n     int64
	ready chan struct{} // closed once it has them
}

// NewMemory returns a Memory of so many bytes.
func NewMemory(size int64) *Memory { return &Memory{size: size, free: size} }

// Take waits until n bytes are free, or all where n is more, and returns how many it took,
// for [Memory.Give]. It takes nothing for less than [api.LargeSize]. A caller that has some
// already must not wait. The error is the cause of the end of ctx.
func (m *Memory) Take(ctx context.Context, n int64) (taken int64, err error) {
	if n < api.LargeSize {
		return 0, nil
	}
	n = min(n, m.size)
	if err := m.take(ctx, n, false, nil); err != nil {
		return 0, err
	}
	return n, nil
}

// take waits for n bytes, before all that wait already if first is set. The error is the cause of
// the end of ctx, or [journal.ErrCancelled].
func (m *Memory) take(ctx context.Context, n int64, first bool, cancelled <-chan struct{}) (err error) {
	m.mu.Lock()
	w := &waiter{n, make(chan struct{})}
	element := m.waiting.PushBack(w)
	if first {
		m.waiting.MoveToFront(element)
	}
	m.serve()
	m.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-cancelled:
		err = journal.ErrCancelled
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if channel.Closed(w.ready) {
		m.free += n
	} else {
		m.waiting.Remove(element)
	}
	m.serve()
	return err
}

// serve gives those that wait their bytes, as far as they go. The caller holds mu.
func (m *Memory) serve() {
	for next := m.waiting.Front(); next != nil; next = m.waiting.Front() {
		w := next.Value.(*waiter) //nolint:forcetypeassert // it has no others
		if w.n > m.free {
			return
		}
		m.free -= w.n
		m.waiting.Remove(next)
		close(w.ready)
	}
}

// Give gives back memory that was taken.
func (m *Memory) Give(taken int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += taken
	m.serve()
}

// errMemory refuses an action for which there was no memory.
var errMemory = api.TooMany("Other large requests and answers leave no memory for this one; nothing was done, try again")

// take takes n bytes of the memory for the action, until its last caller has left and the work of
// [api.Watch.Hold] has ended: those that it had before are part of them, and so are those of its
// request. The caller uses none of the former while it waits, which ends when the action is
// cancelled. The error is an *api.Error or [journal.ErrCancelled].
func (r *Run) take(ctx context.Context, n int64) error {
	m := r.m.cfg.Memory
	if n < api.LargeSize {
		return nil
	}
	if n = min(n, m.size) - r.call.Held; n <= r.taken {
		return nil
	}
	m.Give(r.taken)
	r.taken = 0
	if r.call.Held > 0 { // two that wait for the memory of the other one's request would wait in vain
		if !m.growing.TryLock() {
			return errMemory
		}
		defer m.growing.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, takeTime)
	defer cancel()
	err := m.take(ctx, n, r.call.Held > 0, r.cancelled)
	if err != nil && !errors.Is(err, journal.ErrCancelled) {
		err = errMemory
	}
	if err != nil {
		return err
	}
	r.taken = n
	return nil
}

// hold is [api.Watch.Hold].
func (r *Run) hold() (release func()) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.working++
	return func() {
		r.leave(&r.working)
		r.m.mu.Lock()
		done := r.release
		r.m.mu.Unlock()
		if done != nil {
			done()
		}
	}
}

// leave decrements the number of those that hold the memory of the action, and gives that back after
// the last one.
func (r *Run) leave(holders *int) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if *holders--; !r.held() {
		r.keep(0)
	}
}

// held reports whether a caller or work holds the memory of the action. The caller holds the lock
// of the manager.
func (r *Run) held() bool { return r.waiters+r.readers+r.working > 0 }

// takeFree takes n bytes of the memory for the answer of the action, as far as they are free: it
// has its result, which is recorded in any case.
func (r *Run) takeFree(n int64) {
	m := r.m.cfg.Memory
	if n < api.LargeSize {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	more := min(max(n-r.taken, 0), m.free)
	m.free -= more
	r.taken += more
}

// Sending gives most of the memory of an action that ended back: the rest is for its answer,
// which is encoded and may be read slowly.
func (r *Run) Sending() {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if r.ended {
		r.keep(int64(len(r.answer.Body)) / EncodedPart)
	}
}

// EncodedPart divides the bytes of an encoded answer that is sent: the work on it is done.
const EncodedPart = 6

// keep gives back all but so many bytes, once the action has ended. The caller holds the
// lock of the manager.
func (r *Run) keep(most int64) {
	if r.ended && r.taken > most {
		r.m.cfg.Memory.Give(r.taken - most)
		r.taken = most
	}
}
