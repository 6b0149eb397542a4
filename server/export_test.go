package server

import (
	"time"
	"unsafe"

	"golang.org/x/time/rate"

	"github.com/actiond/actiond/api"
)

// Bounds that tests go beyond.
const (
	MaxConns     = maxConns
	MaxHeader    = maxHeader
	MaxTunnels   = maxTunnels
	MaxFollowers = maxFollowers
	MaxWatchers  = maxWatchers
)

// SetTunnelIdle sets how long a tunnel may carry nothing.
func (s *Server) SetTunnelIdle(d time.Duration) { s.tunnels.idle = d }

// SetTunnelRate sets how many tunnels a second may be opened from now on, the first at
// once, and how long a request waits for its turn.
func (s *Server) SetTunnelRate(most rate.Limit, wait time.Duration) {
	s.tunnels.rate, s.tunnels.wait = rate.NewLimiter(most, 1), wait
}

// Route is a line of the table.
type Route struct {
	Method, Path string
	Open         bool
}

// Routes returns the table.
func (s *Server) Routes() []Route {
	var routes []Route
	for _, rt := range s.routes() {
		routes = append(routes, Route{rt.Method, rt.Path, rt.Open})
	}
	return routes
}

// SetHeartbeat makes streamed answers beat more often than any test waits.
func (s *Server) SetHeartbeat(d time.Duration) { s.heartbeat = d }

// SetClock makes it seem that the wall clock was set forward by so much, after all
// that the life of the sandbox remembers.
func (s *Server) SetClock(forward time.Duration) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	for _, t := range []*time.Time{&s.life.since, &s.life.deadline} {
		// A time that was read from the clock has the seconds of the wall clock in
		// the upper bits of its first word, and the monotonic clock in its second.
		*(*uint64)(unsafe.Pointer(t)) -= uint64(forward/time.Second) << 30
	}
}

// NextLook is when the limits of the sandbox's life are looked at next, or which
// of them is reached.
func (s *Server) NextLook() (due time.Time, reason string) { return s.life.next(false) }

// GroupUsage is what a control group uses.
func GroupUsage(dir string) (api.Usage, bool) { return controlGroup(dir).usage() }

// CloseNetwork closes the local proxy, as Serve does at its end.
func (s *Server) CloseNetwork() { s.network.close() }

// HasNetwork reports whether there is a local proxy.
func (s *Server) HasNetwork() bool { return s.network.proxy() != nil || s.network.claimed() != nil }
