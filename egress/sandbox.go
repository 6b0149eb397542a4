package egress

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/time/rate"

	"github.com/actiond/actiond/internal/gate"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/rights"
)

// sandbox is the policy and the connections of one sandbox. It owns the goroutine of its HTTP
// server and those of its requests, which close waits for.
type sandbox struct {
	server         *Server
	id             string
	limit          *rate.Limiter // of connections
	log            *rate.Limiter // of lines
	denials        denials
	sent, received atomic.Int64
	held, buffered atomic.Int64 // see hold and buffer
	asking         atomic.Int64 // connections by TCP that have shown the token
	telling        atomic.Int64 // see maxTelling

	life    context.Context    //nolint:containedctx // of all requests and connections
	end     context.CancelFunc // of life
	http    *http.Server
	running gate.Gate // the HTTP server and its requests

	mu     sync.Mutex
	conf   Conf
	policy document // of conf; empty until the sandbox asks
	obeyed int64    // the generation that all connections obey
	conns  map[*connection]bool
}

// connection is one that the sandbox asked for.
type connection struct {
	host   Host
	port   uint16
	number int64 // by which the sandbox knows it
	end    context.CancelCauseFunc
	done   chan struct{} // closed when it has ended
	denied atomic.Bool   // a denial was recorded

	// The sandbox's mu guards these.
	addr        netip.Addr // that was dialed
	name        Host       // from the TLS hello
	intercepted bool       // the proxy opens its TLS
}

func newSandbox(s *Server, id string, c Conf) *sandbox {
	b := &sandbox{server: s, id: id, conf: c, conns: map[*connection]bool{}}
	b.limit, b.log = rate.NewLimiter(openRate, maxOpenSandbox), rate.NewLimiter(logRate, logBurst)
	b.life, b.end = context.WithCancel(context.Background())
	b.http = httpserver.NewServer(b.life, b, maxHeader, s.cfg.Log)
	return b
}

// listen opens the socket under another name and renames it, so that it takes the place of one
// that an earlier process left. The sandbox sees the directory, and cannot write to it.
func (b *sandbox) listen(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // root of the sandbox may be another user here
		return err
	}
	temporary := filepath.Join(dir, "new")
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(temporary, 0o600)
	if err == nil {
		err = os.Rename(temporary, filepath.Join(dir, "s"))
	}
	if err != nil {
		_ = l.Close()
		return err
	}
	limited := b.server.accepted.LimitListener(rights.Listener(l), maxOpenSandbox+maxWaiting)
	b.running.Go(func() { _ = b.http.Serve(limited) }) // until close
	return nil
}

func (b *sandbox) close() {
	b.running.Close()
	b.end()
	_ = b.http.Close()
	b.running.Wait()
}

// ServeHTTP answers the sandbox.
func (b *sandbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !b.running.Begin() {
		panic(http.ErrAbortHandler) // an empty answer would say that the connection is open
	}
	defer b.running.Done()
	switch {
	case r.Method == http.MethodConnect:
		b.connect(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/denied":
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(min(queryNumber(r, "wait"), maxWait))*time.Second)
		defer cancel()
		found := b.denials.await(ctx, queryNumber(r, "after"))
		if connection := queryNumber(r, "connection"); connection != 0 {
			found = slices.DeleteFunc(found, func(d Denial) bool { return d.Connection != connection })
		}
		_ = httpserver.WriteJSON(w, http.StatusOK, deniedBody{found[:min(len(found), maxAnswered)]}, encode)
	case r.Method == http.MethodGet && r.URL.Path == "/status":
		_ = httpserver.WriteJSON(w, http.StatusOK, b.status(), encode)
	case r.Method == http.MethodGet && r.URL.Path == "/policy":
		b.showPolicy(w, r)
	default:
		w.Header().Set("Connection", "close")
		http.Error(w, "This socket takes CONNECT alone", http.StatusMethodNotAllowed)
	}
}

// document is an encoded answer.
type document struct {
	body []byte
	tag  string
}

// showPolicy answers with the summary of the policy, which is encoded once. A sandbox that has this
// one already, and says so by its tag, gets status 304.
func (b *sandbox) showPolicy(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	if b.policy.body == nil {
		body, err := encode(b.conf.Policy.Summary())
		if err != nil {
			b.mu.Unlock()
			http.Error(w, "the policy cannot be encoded", http.StatusInternalServerError)
			return
		}
		b.policy = document{body, fmt.Sprintf(`"%x"`, sha256.Sum256(body))}
	}
	policy := b.policy
	b.mu.Unlock()
	w.Header().Set("Etag", policy.tag)
	if r.Header.Get("If-None-Match") == policy.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	httpserver.WriteBody(w, http.StatusOK, httpserver.JSON, policy.body)
}

// queryNumber returns a number in the query, 0 without one.
func queryNumber(r *http.Request, name string) int64 {
	n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// deniedBody is the answer to GET /denied.
type deniedBody struct {
	Denied []Denial `json:"denied"`
}

func encode(v any) ([]byte, error) { return json.Marshal(v) }

// apply sets the policy, and ends connections that it refuses.
func (b *sandbox) apply(c Conf) error {
	b.mu.Lock()
	if c.Generation < b.conf.Generation {
		b.mu.Unlock()
		return ErrStale
	}
	b.conf, b.policy = c, document{}
	b.mu.Unlock()
	b.recheck()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.obeyed = max(b.obeyed, c.Generation)
	return nil
}

func (b *sandbox) status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Status{b.obeyed, len(b.conns), b.sent.Load(), b.received.Load(), b.denials.last()}
}

// recheck ends the connections that the policy refuses, and waits for their ends: no byte passes
// afterwards.
func (b *sandbox) recheck() { b.endWhere(b.check) }

// endWhere ends the connections for which why returns an error, with that as the cause, and waits
// for their ends. It calls why with b.mu held.
func (b *sandbox) endWhere(why func(c *connection) error) {
	b.mu.Lock()
	var refused []*connection
	for c := range b.conns {
		if err := why(c); err != nil {
			c.end(b.denying(b.life, c, err))
			refused = append(refused, c)
		}
	}
	b.mu.Unlock()
	for _, c := range refused {
		<-c.done
	}
}

// check returns the reason why the policy refuses a connection, as far as it has come. b.mu is held.
func (b *sandbox) check(c *connection) error {
	p := &b.conf.Policy
	if v := p.Decide(c.host, c.port); !v.Allowed {
		return &denialError{v.Reason}
	}
	if p.MaxBytes > 0 && b.sent.Load()+b.received.Load() >= p.MaxBytes {
		return &denialError{reasonMaxBytes}
	}
	if c.addr.IsValid() {
		if err := b.checkAddress(c.addr, c.port); err != nil {
			return err
		}
	}
	return b.checkName(c)
}

// checkAddress returns the reason why an address may not be dialed. b.mu is held.
func (b *sandbox) checkAddress(addr netip.Addr, port uint16) error {
	own := b.server.own.Load()
	if own == nil {
		return errNotReady
	}
	if reason := b.conf.Policy.denied(Host{addr: addr.Unmap()}, port); reason != "" {
		return &denialError{reason}
	}
	if !usable(addr, *own, b.conf.Private) {
		return &denialError{reasonPrivate}
	}
	return nil
}

// checkName compares the name in the TLS hello with the host that was asked for. An address that
// a rule admits may have any name that is not denied. b.mu is held.
func (b *sandbox) checkName(c *connection) error {
	switch {
	case c.name == Host{}, c.name == c.host:
		return nil
	case c.host.addr.IsValid():
		if reason := b.conf.Policy.denied(c.name, c.port); reason != "" {
			return &denialError{reason}
		}
		return nil
	}
	return &denialError{reasonServerName}
}

// count counts bytes before they are passed on.
func (b *sandbox) count(sent bool, n int) error {
	counter := &b.received
	if sent {
		counter = &b.sent
	}
	counter.Add(int64(n))
	b.server.metrics.Carried(sent, n)
	b.mu.Lock()
	most := b.conf.Policy.MaxBytes
	b.mu.Unlock()
	if most > 0 && b.sent.Load()+b.received.Load() > most {
		return &denialError{reasonMaxBytes}
	}
	return nil
}
