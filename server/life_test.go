package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// living serves without clients on a clock of the test's own, and tells when Serve
// ends. It must be called in a bubble.
func living(t *testing.T, change ...func(*server.Config)) (s *server.Server, lived func() time.Duration) {
	t.Helper()
	s = newServer(t, change...)
	ctx, cancel := context.WithCancel(t.Context())
	begun := time.Now()
	var ended atomic.Int64
	ended.Store(-1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(ctx, &silent{closed: make(chan struct{})}); err != nil {
			t.Error(err)
		}
		ended.Store(int64(time.Since(begun)))
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s, func() time.Duration { synctest.Wait(); return time.Duration(ended.Load()) }
}

// silent is a listener without connections.
type silent struct{ closed chan struct{} }

func (l *silent) Accept() (net.Conn, error) { <-l.closed; return nil, net.ErrClosed }
func (l *silent) Close() error              { close(l.closed); return nil }
func (l *silent) Addr() net.Addr            { return &net.UnixAddr{Name: "silent"} }

func limits(ttl, idle time.Duration) func(*server.Config) {
	return func(cfg *server.Config) { cfg.TTL, cfg.Idle = ttl, idle }
}

func TestTimeToLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, lived := living(t, limits(time.Hour, 0))
		time.Sleep(59 * time.Minute)
		if got := lived(); got >= 0 {
			t.Fatalf("it ended after %v", got)
		}
		if w := post("/v1/renew", `{"ttl_seconds":7200}`).send(s); w.Code != http.StatusOK {
			t.Fatalf("renewing: %s", w.Body)
		}
		time.Sleep(2*time.Hour - time.Second)
		if got := lived(); got >= 0 {
			t.Fatalf("renewed, it ended after %v", got)
		}
		time.Sleep(2 * time.Second)
		if got, want := lived(), 2*time.Hour+59*time.Minute; got != want {
			t.Errorf("it lived for %v, want %v", got, want)
		}
	})
}

// Where a driver keeps the deadline, the driver alone changes it: the owner is told how, and the ticket stays secret.
func TestDriverRenews(t *testing.T) {
	t.Parallel()
	hash := sha256.Sum256([]byte("the ticket"))
	s := newServer(t, withClaim, func(cfg *server.Config) { cfg.ClaimHash = hash[:] })
	claim := claimBy(ownersKey)
	claim.key = "the ticket"
	if w := claim.send(s); w.Code != http.StatusNoContent {
		t.Fatalf("claiming: %d %s", w.Code, w.Body)
	}
	for _, tt := range []struct {
		name, key, ticket string
		status            int
		text              string
	}{
		{"the owner", ownersKey, "", 409, "renew it with 'runtimectl renew', or through its gateway\",\"errors\":[],\"code\":\"driven\"}"},
		{"the owner with its key as ticket", ownersKey, ownersKey, 409, "driven"},
		{"the ticket alone", "", "the ticket", 403, "Invalid API Key"},
		{"the ticket as key", "the ticket", "the ticket", 403, "Invalid API Key"},
		{"the driver", ownersKey, "the ticket", 200, `"deadline":"`},
	} {
		r := post("/v1/renew", `{"ttl_seconds":7200}`)
		r.key, r.header = tt.key, map[string]string{api.TicketHeader: tt.ticket}
		if w := r.send(s); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.text) {
			t.Errorf("%s: got %d %s, want %d with %s", tt.name, w.Code, w.Body, tt.status, tt.text)
		}
	}
}

func TestTimeToLiveTakenAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, lived := living(t, limits(time.Hour, 0))
		post("/v1/renew", `{"ttl_seconds":0}`).send(s)
		time.Sleep(1000 * time.Hour)
		if got := lived(); got >= 0 {
			t.Errorf("it ended after %v", got)
		}
	})
}

// A working server is not idle, however long it takes.
func TestIdleLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		works := &fake{do: func(context.Context, api.Request) (api.Observation, error) {
			time.Sleep(3 * time.Hour)
			return api.ErrorObservation{}, nil
		}}
		s, lived := living(t, withExecutor(works), limits(0, time.Hour))
		time.Sleep(time.Minute)
		post("/execute_action", runTrue).send(s)
		time.Sleep(59 * time.Minute)
		if got := lived(); got >= 0 {
			t.Fatalf("it ended after %v", got)
		}
		get("/v1/status").send(s) // looking is no work
		time.Sleep(2 * time.Minute)
		if got, want := lived(), 4*time.Hour+time.Minute; got != want {
			t.Errorf("it lived for %v, want %v", got, want)
		}
	})
}

// running is an executor with a command that goes on until it is over.
type running struct {
	fake
	over atomic.Bool
}

func (r *running) Sessions() []api.Session {
	state := "busy"
	if r.over.Load() {
		state = "idle"
	}
	return []api.Session{{Name: "default", State: state}}
}

// A command that was answered for and goes on is work too.
func TestIdleLimitWithACommandThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := &running{}
		s, lived := living(t, func(cfg *server.Config) { cfg.Executor = runs }, limits(0, time.Hour))
		time.Sleep(100*time.Hour + 30*time.Minute)
		if got := lived(); got >= 0 {
			t.Fatalf("it ended after %v", got)
		}
		var life api.Life
		if err := json.Unmarshal(get("/v1/status").send(s).Body.Bytes(), &life); err != nil || !life.Busy || life.IdleSince != nil {
			t.Errorf("got %+v, %v", life, err)
		}
		runs.over.Store(true)
		time.Sleep(2 * time.Hour)
		if got := lived(); got < 101*time.Hour || got > 102*time.Hour {
			t.Errorf("it lived for %v", got)
		}
	})
}

// The owner's limits take the place of those that the server waited with.
func TestClaimLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, lived := living(t, withClaim, limits(time.Hour, 0))
		time.Sleep(30 * time.Minute)
		post("/v1/claim", `{"key":"`+ownersKey+`","idle_limit_seconds":7200}`).send(s)
		time.Sleep(2*time.Hour - time.Second)
		if got := lived(); got >= 0 {
			t.Fatalf("it ended after %v", got)
		}
		time.Sleep(2 * time.Second)
		if got, want := lived(), 2*time.Hour+30*time.Minute; got != want {
			t.Errorf("it lived for %v, want %v", got, want)
		}
	})
}

// Without a claim it does not wait forever.
func TestNobodyClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, lived := living(t, withClaim, limits(time.Hour, 0))
		time.Sleep(2 * time.Hour)
		if got := lived(); got != time.Hour {
			t.Errorf("it lived for %v", got)
		}
	})
}

// The wall clock of a host is set now and then. No limit follows it, and what is
// told is what it shows now: its reader compares it with the same clock.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	for _, forward := range []time.Duration{90 * time.Minute, -90 * time.Minute} {
		begun := time.Now()
		s := newServer(t, limits(time.Hour, 30*time.Minute))
		s.SetClock(forward)
		var told api.Life
		if err := json.Unmarshal(get("/v1/status").send(s).Body.Bytes(), &told); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		if told.UserID == nil || *told.UserID != os.Geteuid() {
			t.Errorf("%v: got user id %v", forward, told.UserID)
		}
		if told.IdleSince == nil || told.IdleSince.Before(begun) || told.IdleSince.After(now) {
			t.Errorf("%v: idle since %v, want something between %v and %v", forward, told.IdleSince, begun, now)
		}
		if told.Deadline == nil || told.Deadline.Before(begun.Add(time.Hour)) || told.Deadline.After(now.Add(time.Hour)) {
			t.Errorf("%v: deadline %v, want an hour after %v", forward, told.Deadline, begun)
		}
		if due, reason := s.NextLook(); reason != "" || due.Before(begun.Add(30*time.Minute)) || due.After(now.Add(30*time.Minute)) {
			t.Errorf("%v: it would look at its limits at %v (%s), want half an hour after %v", forward, due, reason, begun)
		}
	}
}
