package server

import (
	"context"
	"io"
	"net/http"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// largeBody is the size from which on a body that is read whole waits until those that
	// are being worked on leave it its part of the memory, and bodyTime how long it waits.
	largeBody = 1 << 20
	bodyTime  = 5 * time.Second
	// largeHeap is more than what the server takes for small requests.
	largeHeap = 20 << 20
	// reclaimPause is between the end of a large request and giving its memory back.
	reclaimPause = 250 * time.Millisecond
)

// SandboxMemory is how many bytes of memory the sandbox may use; 0 without a limit.
func SandboxMemory() uint64 { return controlGroup(controlGroupDir).limit() }

// enterWhole is enterWith for requests whose bodies are read whole: together, the large ones
// in flight have at most MaxBody bytes.
func (s *Server) enterWhole(r *http.Request, read func(begun time.Time) (*call, error)) (c *call, leave func(), err error) {
	body, release := s.large(r)
	r.Body = body
	c, left, err := s.enterWith(r, read)
	if err != nil {
		release()
		return nil, nil, err
	}
	return c, sync.OnceFunc(func() { left(); release() }), nil
}

// large returns the body of a request, which takes its part of the memory when it is read.
// release gives it back, once.
func (s *Server) large(r *http.Request) (body *wholeBody, release func()) {
	body = &wholeBody{ReadCloser: r.Body, ctx: r.Context(), s: s, size: r.ContentLength}
	return body, func() { s.bodies.Release(body.held) }
}

// wholeBody is the body of a request that is read whole.
type wholeBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // of the request whose body it is
	s    *Server
	size int64 // -1 if the client did not say
	n    int64 // that were read
	held int64 // of Server.bodies
}

func (b *wholeBody) Read(p []byte) (int, error) {
	if b.held == 0 && max(b.size, b.n) >= largeBody {
		most := b.s.cfg.MaxBody
		if b.size >= 0 {
			most = min(most, b.size)
		}
		ctx, cancel := context.WithTimeout(b.ctx, bodyTime)
		defer cancel()
		if b.s.bodies.Acquire(ctx, most) != nil {
			return 0, refuse(http.StatusTooManyRequests, "Other large requests are in flight, of at most %d bytes together; nothing was done, try again", b.s.cfg.MaxBody)
		}
		b.held = most
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if err == io.EOF && b.held > b.n { // its size was not announced
		b.s.bodies.Release(b.held - b.n)
		b.held = b.n
	}
	return n, err
}

// reclaimer gives memory back to the system soon after requests that took much of it: the
// kernel ends the largest process first when memory runs out, and the runtime would keep
// what is free for minutes.
type reclaimer struct{ active, missed atomic.Bool }

// after is called at the end of requests and actions. Giving back takes at most a fiftieth
// of one processor's time.
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
		debug.FreeOSMemory()
		time.AfterFunc(max(reclaimPause, 50*time.Since(begun)), func() {
			r.active.Store(false)
			if r.missed.Load() {
				r.after()
			}
		})
	})
}

// heldMemory is how many bytes the runtime has from the system.
func heldMemory() uint64 {
	samples := [...]runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(samples[:])
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
