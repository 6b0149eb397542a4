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
	// busyHeap is how much the server keeps while further requests have the runtime collect again and again: a
	// series of requests of a megabyte takes a third longer where each takes its pages from the system anew.
	busyHeap = 2 * largeHeap
	// reclaimPause is between the end of a large request and giving its memory back.
	reclaimPause = 250 * time.Millisecond
	// longestPause is between two times, however long the first one took: beyond busyHeap, the memory of
	// a request that ended just after it is back within a second.
	longestPause = 500 * time.Millisecond
)

// SandboxMemory returns how many bytes of memory the sandbox could use when it was first asked; 0
// without a limit.
func SandboxMemory() uint64 { return sandboxMemory() }

var sandboxMemory = sync.OnceValue(controlGroup(controlGroupDir).limit)

// reclaimer gives memory back to the system soon after requests that took much of it: the
// kernel ends the largest process first when memory runs out, and the runtime would keep
// freed memory for minutes.
type reclaimer struct {
	active, missed atomic.Bool
	usage          func() heapUsage
	give           func()
}

// heapUsage is what the runtime has from the system, in bytes, and how often it collected by itself.
type heapUsage struct{ held, collections uint64 }

// after is called at the end of requests and actions. Giving back takes a fiftieth of one
// processor's time, and more only where that is less than twice a second.
func (r *reclaimer) after() {
	u := r.usage()
	if u.held <= largeHeap {
		return
	}
	r.missed.Store(true)
	if r.active.CompareAndSwap(false, true) {
		r.await(u)
	}
}

// await gives memory back after a pause in which the runtime, which was seen before, collects
// none: until then it is in use, unless it is more than busyHeap.
func (r *reclaimer) await(before heapUsage) {
	time.AfterFunc(reclaimPause, func() {
		if now := r.usage(); now.collections != before.collections && now.held <= busyHeap {
			r.await(now)
			return
		}
		r.missed.Store(false)
		begun := time.Now()
		r.give()
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

func runtimeUsage() heapUsage {
	samples := [...]runtimemetrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/cycles/automatic:gc-cycles"},
	}
	runtimemetrics.Read(samples[:])
	return heapUsage{samples[0].Value.Uint64() - samples[1].Value.Uint64(), samples[2].Value.Uint64()}
}
