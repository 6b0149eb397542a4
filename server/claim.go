package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/bound"
)

// owner is who may use the sandbox: whoever knows the key. The zero value is
// nobody.
type owner struct {
	claiming sync.Mutex // one claim at a time
	who      atomic.Pointer[identity]
}

// identity is the hash of a key, and a name for people. Hashed, all keys have
// one length, and comparing them tells nothing about either.
type identity struct {
	key  [sha256.Size]byte
	name string
}

func (o *owner) set(key, name string) { o.who.Store(&identity{sha256.Sum256([]byte(key)), name}) }

// has tells whether the key is the owner's.
func (i *identity) has(key string) bool {
	sent := sha256.Sum256([]byte(key))
	return subtle.ConstantTimeCompare(sent[:], i.key[:]) == 1
}

// check refuses a request with a key that is not the owner's.
func (o *owner) check(key string) error {
	who := o.who.Load()
	if who == nil {
		return refuse(http.StatusForbidden, "This sandbox has no owner yet: claim it first (POST /v1/claim)")
	}
	if !who.has(key) {
		return refuse(http.StatusForbidden, "Invalid API Key")
	}
	return nil
}

// claim gives the sandbox to the first who asks and has its ticket. The same key
// may ask again, as a caller does who did not get the first answer, and changes
// nothing.
func (s *Server) claim(w http.ResponseWriter, r *http.Request) error {
	if hash := s.cfg.ClaimHash; hash != nil {
		sent := sha256.Sum256([]byte(r.Header.Get(api.KeyHeader)))
		if subtle.ConstantTimeCompare(sent[:], hash) != 1 {
			return refuse(http.StatusForbidden, "Invalid API Key")
		}
		bound.Trust(r)
	}
	body, err := readJSON(r, maxSmallBody)
	if err != nil {
		return err
	}
	c, err := api.DecodeClaim(body)
	if err != nil {
		return err
	}
	if !s.cfg.Claim {
		return refuse(http.StatusConflict, "This server was not started with --claim: it has its key already, or needs none")
	}
	if err := s.bind(r.Context(), c); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// bind makes c.Key the key. Whoever comes second waits until it is known
// whether the first one's claim held.
func (s *Server) bind(ctx context.Context, c api.Claim) error {
	s.owner.claiming.Lock()
	defer s.owner.claiming.Unlock()
	if who := s.owner.who.Load(); who != nil {
		if !who.has(c.Key) {
			return refuse(http.StatusConflict, "This sandbox has another owner")
		}
		return nil
	}
	if len(c.Env) > 0 {
		// A caller who goes away must not leave half a claim.
		if err := s.cfg.Executor.Export(context.WithoutCancel(ctx), c.Env); err != nil {
			return err
		}
	}
	s.life.limit(seconds(c.TTLSeconds), seconds(c.IdleSeconds))
	s.owner.set(c.Key, c.Owner)
	s.log.InfoContext(ctx, "claimed", "owner", c.Owner)
	return nil
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
