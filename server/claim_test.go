package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

const ownersKey = "0123456789abcdef0123456789abcdef"

func withClaim(cfg *server.Config) { cfg.Claim = true }

func claimBy(key string) request { return post("/v1/claim", `{"key":"`+key+`"}`) }

// Of many who claim at once one gets the sandbox, and only that one's key opens it.
func TestClaimIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	f := &fake{}
	s := newServer(t, withExecutor(f), withClaim)
	const racers = 100
	codes := make([]int, racers)
	var all sync.WaitGroup
	for i := range racers {
		all.Go(func() {
			body := fmt.Sprintf(`{"key":"%s%03d","env":{"WHO":"%d"}}`, ownersKey, i, i)
			codes[i] = post("/v1/claim", body).send(s).Code
		})
	}
	all.Wait()
	won := -1
	for i, code := range codes {
		switch {
		case code == http.StatusNoContent && won < 0:
			won = i
		case code == http.StatusNoContent:
			t.Errorf("both %d and %d won", won, i)
		case code != http.StatusConflict:
			t.Errorf("racer %d: status %d", i, code)
		}
	}
	for i := range racers {
		q := post("/execute_action", runTrue)
		q.key = fmt.Sprintf("%s%03d", ownersKey, i)
		want := http.StatusForbidden
		if i == won {
			want = http.StatusOK
		}
		if got := q.send(s).Code; got != want {
			t.Errorf("key of racer %d, %d won: status %d, want %d", i, won, got, want)
		}
	}
	if len(f.exported) != 1 || f.exported[0]["WHO"] != fmt.Sprint(won) {
		t.Errorf("variables of %v, %d won", f.exported, won)
	}
}

// The state that a server needs after a crash is kept before the claim, or the new limit, is
// answered. Where that fails, the owner can try again.
func TestClaimIsRemembered(t *testing.T) {
	t.Parallel()
	var kept []server.Snapshot
	var full error
	s := newServer(t, withClaim, func(cfg *server.Config) {
		cfg.Remember = func(f server.Snapshot) error { kept = append(kept, f); return full }
	})
	body := `{"key":"` + ownersKey + `","owner":"a","ttl_seconds":3600,"idle_limit_seconds":60}`
	renew := post("/v1/renew", `{"ttl_seconds":0}`)
	renew.key = ownersKey
	key := sha256.Sum256([]byte(ownersKey))
	for i, step := range []struct {
		request
		full error
		code int
		ttl  bool
	}{
		{post("/v1/claim", body), errors.New("no memory"), http.StatusInternalServerError, true},
		{post("/v1/claim", body), nil, http.StatusNoContent, true},
		{renew, errors.New("no memory"), http.StatusInternalServerError, false},
		{renew, nil, http.StatusOK, false},
	} {
		full = step.full
		if w := step.send(s); w.Code != step.code || len(kept) != i+1 {
			t.Fatalf("step %d: status %d: %s, kept %d times", i, w.Code, w.Body, len(kept))
		}
		if got := kept[i]; string(got.Key) != string(key[:]) || got.Owner != "a" || got.Idle != time.Minute || (got.TTL > 59*time.Minute) != step.ttl || (got.TTL == 0) == step.ttl {
			t.Errorf("step %d: kept %+v", i, got)
		}
	}
}

// A client that did not get the answer asks again; that changes nothing.
func TestClaimAgain(t *testing.T) {
	t.Parallel()
	f := &fake{}
	s := newServer(t, withExecutor(f), withClaim)
	for _, body := range []string{
		`{"key":"` + ownersKey + `","owner":"a","env":{"A":"1"},"ttl_seconds":60}`,
		`{"key":"` + ownersKey + `","owner":"b","env":{"A":"2"},"ttl_seconds":0}`,
	} {
		if w := post("/v1/claim", body).send(s); w.Code != http.StatusNoContent {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
	q := get("/v1/status")
	q.key = ownersKey
	var life api.Life
	if err := json.Unmarshal(q.send(s).Body.Bytes(), &life); err != nil || !life.Claimed || life.Owner != "a" || life.Deadline == nil {
		t.Errorf("got %+v, %v", life, err)
	}
	if len(f.exported) != 1 {
		t.Errorf("exported %v", f.exported)
	}
}

// failing cannot export.
type failing struct{ fake }

func (*failing) Export(_ context.Context, _, _ map[string]string) error {
	return errors.New("inner secret")
}

// A claim that failed bound nothing.
func TestClaimThatBreaks(t *testing.T) {
	t.Parallel()
	s := newServer(t, withClaim, func(cfg *server.Config) { cfg.Executor = &failing{} })
	if w := post("/v1/claim", `{"key":"`+ownersKey+`","env":{"A":"1"}}`).send(s); w.Code != http.StatusInternalServerError {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if w := claimBy(strings.ToUpper(ownersKey)).send(s); w.Code != http.StatusNoContent {
		t.Errorf("the next claim: status %d: %s", w.Code, w.Body)
	}
}

// Guessing does not help, and does not keep the owner out.
func TestTenThousandWrongKeys(t *testing.T) {
	t.Parallel()
	var log testhelp.Buffer
	s := newServer(t, withClaim, withLog(&log))
	claimBy(ownersKey).send(s)
	for i := range 10_000 {
		q := post("/execute_action", runTrue)
		q.key = fmt.Sprintf("%032x", i)
		if w := q.send(s); w.Code != http.StatusForbidden {
			t.Fatalf("key %q: status %d", q.key, w.Code)
		}
	}
	q := post("/execute_action", runTrue)
	q.key = ownersKey
	if w := q.send(s); w.Code != http.StatusOK {
		t.Errorf("the owner: status %d: %s", w.Code, w.Body)
	}
	metrics := get("/metrics")
	metrics.key = ownersKey
	for place, text := range map[string]string{"log": log.String(), "metrics": metrics.send(s).Body.String()} {
		if strings.Contains(text, ownersKey) || strings.Contains(text, fmt.Sprintf("%032x", 77)) {
			t.Errorf("a key is in the %s", place)
		}
	}
}

// With a ticket, neighbours who reach the server first get nothing by it.
func TestClaimTicket(t *testing.T) {
	t.Parallel()
	hash := sha256.Sum256([]byte("the ticket"))
	s := newServer(t, withClaim, func(cfg *server.Config) { cfg.ClaimHash = hash[:] })
	for _, tt := range []struct {
		ticket string
		want   int
	}{
		{"", http.StatusForbidden},
		{"another ticket", http.StatusForbidden},
		{ownersKey, http.StatusForbidden},
		{hex.EncodeToString(hash[:]), http.StatusForbidden},
		{"the ticket", http.StatusNoContent},
		{"", http.StatusForbidden},
		{"the ticket", http.StatusNoContent}, // again
	} {
		q := claimBy(ownersKey)
		q.key = tt.ticket
		if w := q.send(s); w.Code != tt.want {
			t.Errorf("ticket %q: status %d, want %d: %s", tt.ticket, w.Code, tt.want, w.Body)
		}
	}
	q := get("/v1/status")
	q.key = "the ticket"
	if w := q.send(s); w.Code != http.StatusForbidden {
		t.Errorf("the ticket as a key: status %d", w.Code)
	}
}
