package server

import (
	"net/http"
	"sync"
	"time"
)

// enterWith takes a place, which leave gives back once, and reads the action in a
// request.
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

// enter takes one of the places for actions in flight; leave gives it back. It
// comes before the body is read, so that it bounds the memory that bodies take
// as well.
func (s *Server) enter() (leave func(), err error) {
	if s.draining.Load() {
		return nil, refuse(http.StatusTooManyRequests, "The server is shutting down; nothing was done")
	}
	select {
	case s.actions <- struct{}{}:
		s.life.begin()
		return func() {
			s.life.end()
			s.release.Reset(releaseTime)
			s.reclaim.after()
			<-s.actions
		}, nil
	default:
		return nil, refuse(http.StatusTooManyRequests, "%d actions are in flight already; nothing was done, try again", s.cfg.MaxActions)
	}
}

// joins takes one of the places for requests that wait for an action which another one
// carries out; stop gives it back, once.
func (s *Server) joins() (stop func(), err error) {
	select {
	case s.followers <- struct{}{}:
		return sync.OnceFunc(func() { <-s.followers }), nil
	default:
		return nil, refuse(http.StatusTooManyRequests, "%d requests already wait for running actions: ask for the action without waiting, or try again", maxFollowers)
	}
}
