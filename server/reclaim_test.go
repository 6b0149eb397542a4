package server

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestReclaim: memory is given back a pause after a large request, but not between the requests of a
// series, which take it again at once, unless it is much.
func TestReclaim(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		held   uint64
		series bool // requests during which the runtime collects
		want   bool // given back during the series, or after the request
	}{
		{"small", largeHeap, false, false},
		{"small series", largeHeap, true, false},
		{"large", largeHeap + 1, false, true},
		{"large series", busyHeap, true, false},
		{"very large series", busyHeap + 1, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var collections, given atomic.Uint64
				r := reclaimer{
					usage: func() heapUsage { return heapUsage{tt.held, collections.Load()} },
					give:  func() { given.Add(1) },
				}
				if !tt.series {
					r.after()
					time.Sleep(reclaimPause)
				}
				for end := time.Now().Add(time.Minute); tt.series && time.Now().Before(end); time.Sleep(reclaimPause / 10) {
					collections.Add(1)
					r.after()
				}
				synctest.Wait()
				if got := given.Swap(0) > 0; got != tt.want {
					t.Errorf("got %v, want %v", got, tt.want)
				}
				time.Sleep(time.Second)
				if got, want := given.Load() > 0, tt.series && tt.held > largeHeap; got != want {
					t.Errorf("within a second after the end: got %v, want %v", got, want)
				}
			})
		})
	}
}
