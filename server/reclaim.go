package server

import (
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// largeHeap is above the heap of a server with small requests alone.
	largeHeap = 20 << 20
	// reclaimPause is between the end of a large request and giving its memory back.
	reclaimPause = 250 * time.Millisecond
	// longestPause is between two times, however long the first one took: the memory of a
	// request that ended just after it is back within a second.
	longestPause = 500 * time.Millisecond
)

// SandboxMemory returns how many bytes of memory the sandbox could use when it was first asked; 0
// without a limit.
func SandboxMemory() uint64 { return sandboxMemory() }

var sandboxMemory = sync.OnceValue(controlGroup(controlGroupDir).limit)

// reclaimer gives memory back to the system soon after requests that took much of it: the
// kernel ends the largest process first when memory runs out, and the runtime would keep
// freed memory for minutes.
type reclaimer struct{ active, missed atomic.Bool }

// after is called at the end of requests and actions. Giving back takes a fiftieth of one
// processor's time, and more only where that is less than twice a second.
func (r *reclaimer) after() {
	if heldMemory() <= largeHeap {
		return
	}
	r.missed.Store(true)
	if !r.active.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(reclaimPause, func() {
		r.missed.Store(false)
		begun := time.Now()
		giveBack()
		time.AfterFunc(min(max(reclaimPause, 50*time.Since(begun)), longestPause), func() {
			r.active.Store(false)
			if r.missed.Load() {
				r.after()
			}
		})
	})
}

// giveBack gives the free memory back to the system.
func giveBack() {
	runtime.GC() // what a sync.Pool holds outlasts one collection
	debug.FreeOSMemory()
}

// heldMemory is how many bytes the runtime has from the system.
func heldMemory() uint64 {
	samples := [...]runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(samples[:])
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
