package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/actiond/actiond/api"
)

// owner is the client that may use the sandbox, known by its key.
type owner struct {
	reading  chan struct{} // a semaphore of one: claims that are being read
	claiming sync.Mutex    // one claim at a time
	who      atomic.Pointer[holder]
}

// unclaimed is the code of refusals before the claim.
const unclaimed = "unclaimed"

// holder is the hash of a key, and a name for people. Hashed, all keys have
// one length, and comparing them tells nothing about either.
type holder struct {
	key  [sha256.Size]byte
	name string
}

func (o *owner) set(key, name string) { o.who.Store(&holder{sha256.Sum256([]byte(key)), name}) }

func (i *holder) has(key string) bool {
	sent := sha256.Sum256([]byte(key))
	return subtle.ConstantTimeCompare(sent[:], i.key[:]) == 1
}

// check refuses a request with a key that is not the owner's.
func (o *owner) check(key string) error {
	who := o.who.Load()
	if who == nil {
		return &api.Error{
			Status: http.StatusForbidden, Code: unclaimed,
			Detail: "This sandbox has no owner yet: claim it first (POST /v1/claim), or after a restart by hand run 'runtimectl start'",
		}
	}
	if !who.has(key) {
		return refuse(http.StatusForbidden, "Invalid API Key")
	}
	return nil
}
