package actions

import (
	"context"
	"sync"
	"testing"
)

// A program is at most a window ahead of its reader, and waits no more once that left, or
// its own time is over.
func TestFlow(t *testing.T) {
	t.Parallel()
	p := NewFlow()
	const part, parts = flowWindow / 4, 40
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
	p.add(ctx, 2*flowWindow)
	writing.Go(func() { p.add(t.Context(), flowWindow) })
	p.Leave()
	writing.Wait()
	p.add(t.Context(), flowWindow)
	var none *Flow
	none.add(t.Context(), 2*flowWindow)
	none.take(1)
	none.Leave()
}
