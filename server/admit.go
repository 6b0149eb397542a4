package server

import (
	"net/http"
	"sync"
	"time"
)

// enterWith acquires the semaphore of actions in flight, then reads the action in a request.
// leave releases it, once.
func (s *Server) enterWith(r *http.Request, read func(begun time.Time) (*call, error)) (c *call, leave func(), err error) {
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
		return nil, refuse(http.StatusTooManyRequests, "%d actions are in flight already; nothing was done, try again", s.cfg.MaxActions)
	}
}

// joinLimit limits the requests that wait for an action started by another request. stop ends
// the wait, once.
func (s *Server) joinLimit() (stop func(), err error) {
	select {
	case s.followers <- struct{}{}:
		return sync.OnceFunc(func() { <-s.followers }), nil
	default:
		return nil, refuse(http.StatusTooManyRequests, "%d requests already wait for running actions: ask for the action without waiting, or try again", maxFollowers)
	}
}
