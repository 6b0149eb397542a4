package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// Bounds of a claim.
const (
	// maxOpenBody bounds the body of a claim that needs no ticket, which anyone who
	// reaches the server can send.
	maxOpenBody = 64 << 10
	// claimTime limits how long a claim may take to arrive, since others wait for it.
	claimTime = 10 * time.Second
)

// claim binds the sandbox to the first client that asks and has its ticket. The
// same key may claim again, as a client does that did not get the first answer; that
// changes nothing.
//
// The route is open, so everything that can be asked is asked before the body is
// read, and one body is read at a time: an unauthenticated client must not take up
// memory.
func (s *Server) claim(w http.ResponseWriter, r *http.Request) error {
	limit := int64(maxOpenBody)
	if s.driven() {
		if !s.hasTicket(r.Header.Get(api.KeyHeader)) {
			return refuse(http.StatusForbidden, "Invalid API Key")
		}
		httpserver.Trust(r)
		limit = maxSmallBody
	}
	if !s.cfg.Claim {
		return refuse(http.StatusConflict, "This server was not started with --claim: it has its key already, or needs none")
	}
	c, err := s.readClaim(r, limit)
	if err != nil {
		return err
	}
	if err := s.bind(r.Context(), c); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// driven reports whether a driver keeps the record of the sandbox.
func (s *Server) driven() bool { return s.cfg.ClaimHash != nil }

func (s *Server) hasTicket(sent string) bool {
	hash := sha256.Sum256([]byte(sent))
	return subtle.ConstantTimeCompare(hash[:], s.cfg.ClaimHash) == 1
}

// readClaim reads the body of a claim once all others have been read.
func (s *Server) readClaim(r *http.Request, limit int64) (api.Claim, error) {
	select {
	case s.owner.reading <- struct{}{}:
		defer func() { <-s.owner.reading }()
	case <-r.Context().Done():
		return api.Claim{}, context.Cause(r.Context())
	}
	httpserver.HurryBody(r, claimTime)
	body, err := readJSON(r, limit)
	if err != nil {
		return api.Claim{}, err
	}
	return api.DecodeClaim(body)
}

// bind makes c.Key the key. A second caller waits until it is known whether the
// first claim succeeded.
func (s *Server) bind(ctx context.Context, c api.Claim) error {
	s.owner.claiming.Lock()
	defer s.owner.claiming.Unlock()
	if who := s.owner.who.Load(); who != nil {
		if !who.has(c.Key) {
			return refuse(http.StatusConflict, "This sandbox has another owner")
		}
		return s.Remember() // which may have failed
	}
	variables, err := s.connect(c.Network)
	if err != nil {
		s.network.close()
		return errNetwork(err)
	}
	if len(c.Env) > 0 || c.Network != nil {
		// A caller who goes away must not leave half a claim.
		if err := s.cfg.Executor.Export(context.WithoutCancel(ctx), c.Env, variables); err != nil {
			s.network.close()
			return err
		}
	}
	s.countNetwork()
	s.life.limit(seconds(c.TTLSeconds), seconds(c.IdleLimitSeconds))
	s.owner.set(c.Key, c.Owner)
	s.log.InfoContext(ctx, "claimed", "owner", c.Owner)
	return s.Remember()
}
