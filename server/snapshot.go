package server

import (
	"time"

	"github.com/actiond/actiond/api"
)

// Snapshot is the state of a Server that the next one takes over after a crash. It can be written as JSON.
type Snapshot struct {
	Key   []byte // the SHA-256 of the owner's key; nil without one
	Owner string
	// TTL is the time that is left, and Idle the limit; 0 means none.
	TTL, Idle time.Duration
	Network   *api.ClaimNetwork // nil without a policy
}

func (s *Server) snapshot() Snapshot {
	f := Snapshot{Network: s.network.claimed()}
	if who := s.owner.who.Load(); who != nil {
		f.Key, f.Owner = who.key[:], who.name
	}
	l := s.life
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Idle = l.idle
	if !l.deadline.IsZero() {
		f.TTL = max(time.Until(l.deadline), time.Nanosecond)
	}
	return f
}

// Remember calls [Config].Remember with the claim and the limits as they are.
func (s *Server) Remember() error {
	if s.cfg.Remember == nil {
		return nil
	}
	s.memory.Lock()
	defer s.memory.Unlock()
	return s.cfg.Remember(s.snapshot())
}

// inherit takes over from a server that crashed.
func (s *Server) inherit(f Snapshot) {
	if who := (&holder{name: f.Owner}); copy(who.key[:], f.Key) == len(who.key) {
		s.owner.who.Store(who)
	}
	s.life.limit(f.TTL, f.Idle)
	s.network.claim = f.Network
}
