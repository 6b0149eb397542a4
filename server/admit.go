package server

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
)

// bodyTime is how long a large body that is read whole waits until those that are being worked
// on, and large answers, leave it its part of the memory.
const bodyTime = 5 * time.Second

// enterWhole is enterWith for requests whose bodies are read whole: together, the large ones
// in flight have at most MaxBody bytes.
func (s *Server) enterWhole(
	r *http.Request, read func(begun time.Time) (*call, error),
) (c *call, leave func(), err error) {
	body, release := s.large(r)
	r.Body = body
	c, left, err := s.enterWith(r, read)
	if err != nil {
		release()
		return nil, nil, err
	}
	c.Held = body.held
	return c, sync.OnceFunc(func() { left(); release() }), nil
}

// large returns the body of a request, which takes its part of the memory when it is read.
// release gives it back, once.
func (s *Server) large(r *http.Request) (body *wholeBody, release func()) {
	body = &wholeBody{ReadCloser: r.Body, ctx: r.Context(), s: s, size: r.ContentLength}
	return body, sync.OnceFunc(func() { s.shares.Give(body.held) })
}

// wholeBody is the body of a request that is read whole.
type wholeBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // of the request whose body it is
	s    *Server
	size int64 // -1 if the client did not say
	n    int64 // that were read
	held int64 // of Server.shares
}

func (b *wholeBody) Read(p []byte) (int, error) {
	if b.held == 0 && max(b.size, b.n) >= api.LargeSize {
		most := b.s.cfg.MaxBody
		if b.size >= 0 {
			most = min(most, b.size)
		}
		ctx, cancel := context.WithTimeout(b.ctx, bodyTime)
		defer cancel()
		var err error
		if b.held, err = b.s.shares.Take(ctx, max(most, api.LargeSize)); err != nil {
			return 0, refuse(http.StatusTooManyRequests,
				"Other large requests and answers are in flight, of at most %d bytes together; nothing was done, try again",
				b.s.cfg.MaxBody)
		}
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if err == io.EOF && b.held > b.n { // its size was not announced
		b.s.shares.Give(b.held - b.n)
		b.held = b.n
	}
	return n, err
}

// enterWith acquires the semaphore of actions in flight, then reads the action in a request.
// leave releases it, once.
func (s *Server) enterWith(
	r *http.Request, read func(begun time.Time) (*call, error),
) (c *call, leave func(), err error) {
	begun := time.Now()
	if leave, err = s.enter(); err == nil {
		leave = sync.OnceFunc(leave)
		if c, err = read(begun); err == nil {
			return c, leave, nil
		}
		leave()
	}
	s.metrics.action(r.Context(), unread, err, time.Since(begun))
	return nil, nil, err
}

// enter acquires the semaphore of actions in flight; leave releases it. It comes before the
// body is read, so that it bounds the memory that bodies take as well.
func (s *Server) enter() (leave func(), err error) {
	if s.draining.Load() {
		return nil, refuse(http.StatusTooManyRequests, "The server is shutting down; nothing was done")
	}
	select {
	case s.inFlight <- struct{}{}:
		s.life.begin()
		return func() {
			s.life.end()
			s.release.Reset(releaseTime)
			s.reclaim.after()
			<-s.inFlight
		}, nil
	default:
		return nil, refuse(http.StatusTooManyRequests, "%d actions are in flight already; nothing was done, try again",
			s.cfg.MaxActions)
	}
}

// joinLimit limits the requests that wait for an action started by another request. stop ends
// the wait, once.
func (s *Server) joinLimit() (stop func(), err error) {
	select {
	case s.followers <- struct{}{}:
		return sync.OnceFunc(func() { <-s.followers }), nil
	default:
		return nil, refuse(http.StatusTooManyRequests,
			"%d requests already wait for running actions: ask for the action without waiting, or try again", maxFollowers)
	}
}
