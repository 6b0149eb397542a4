package server

import (
	"context"
	"sync"
	"testing"
)

// A program is at most a window ahead of its reader, and waits no more once that left, or
// its own time is over.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPace()
	const part, parts = paceWindow / 4, 40
	var taken, given int
	var mu sync.Mutex
	var writing sync.WaitGroup
	writing.Go(func() {
		for range parts {
			p.add(t.Context(), part)
			mu.Lock()
			if given++; given-taken > 5 {
				t.Errorf("%d parts ahead", given-taken)
			}
			mu.Unlock()
		}
	})
	for range parts {
		mu.Lock()
		taken++
		mu.Unlock()
		p.take(part)
	}
	writing.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.add(ctx, 2*paceWindow)
	writing.Go(func() { p.add(t.Context(), paceWindow) })
	p.leave()
	writing.Wait()
	p.add(t.Context(), paceWindow)
	var none *pace
	none.add(t.Context(), 2*paceWindow)
	none.take(1)
	none.leave()
}
