package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/handover"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/shorten"
)

// Upgrader puts another program in the place of this one, in the same process. Its methods
// are called one at a time.
type Upgrader interface {
	// Receive reads a program and checks it. An *[handover.UnfitError] says why it cannot
	// be used.
	Receive(ctx context.Context, r io.Reader) error
	// Received reports whether there is a program.
	Received() bool
	// Movable returns the identities of the actions that can go on in the new program now.
	Movable() map[string]bool
	// Unmovable names what runs that would end, beside actions.
	Unmovable() []string
	// HandOver executes the program that was received. It returns only where that fails, and then
	// this program is as it was, but for what it had to end at last. An *UnsettledError says
	// that something runs that would end.
	HandOver(ctx context.Context, h Handover) error
}

// UnsettledError names what runs and cannot be handed over.
type UnsettledError struct{ What []string }

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("these cannot be handed over: %s", strings.Join(e.What, ", "))
}

// Handover is what another program goes on with.
type Handover struct {
	Server Frozen
	// Force ends what cannot be handed over. Otherwise it is a reason to refuse.
	Force bool
	// Actions returns the actions that go on, once nothing of those that can changes any more,
	// the identities of the others, and the names of requests under way, which end.
	Actions func(movable map[string]bool) (on []FrozenAction, others, requests []string, err error)
	// Settle waits for a moment until actions are recorded that do not go on.
	Settle func(ctx context.Context)
	// Conn takes the connection that the new program answers on; nil for none.
	Conn func() (net.Conn, error)
}

// Frozen is what another program must know of a Server. It can be written as JSON.
type Frozen struct {
	Key   []byte // the SHA-256 of the owner's key; nil without one
	Owner string
	// TTL is the time that is left, and Idle the limit; 0 means none.
	TTL, Idle time.Duration
	Upgrades  Upgrades
	Actions   []FrozenAction
}

// Upgrades counts the upgrades of a process, over all its programs.
type Upgrades struct{ Done, Refused, Failed uint64 }

func (s *Server) freeze() Frozen {
	s.gate.mu.Lock()
	f := Frozen{Upgrades: s.gate.upgrades}
	s.gate.mu.Unlock()
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
	return s.cfg.Remember(s.freeze())
}

// inherit takes over from another program.
func (s *Server) inherit(f Frozen) {
	if who := (&identity{name: f.Owner}); copy(who.key[:], f.Key) == len(who.key) {
		s.owner.who.Store(who)
	}
	s.life.limit(f.TTL, f.Idle)
	s.gate.upgrades = f.Upgrades
}

// gate keeps requests out that would change something while the server is upgraded.
type gate struct {
	upgrading sync.Mutex // held by the upgrade under way

	mu       sync.Mutex
	closed   bool
	inside   map[string]int // by method and path
	upgrades Upgrades
}

func (g *gate) close(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
}

func (g *gate) enter(request string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if g.inside == nil {
		g.inside = map[string]int{}
	}
	g.inside[request]++
	return true
}

func (g *gate) leave(request string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[request]--; g.inside[request] == 0 {
		delete(g.inside, request)
	}
}

// requests names those inside, but of those that carry out an action only so many as there are
// beyond that number.
func (g *gate) requests(flying int) (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := func(request string, n int) {
		switch {
		case n > 1:
			names = append(names, fmt.Sprintf("%d requests %s", n, request))
		case n > 0:
			names = append(names, "the request "+request)
		}
	}
	actions := -flying
	for request, n := range g.inside {
		if _, path, _ := strings.Cut(request, " "); slices.Contains(actionPaths, path) {
			actions += n
		} else {
			name(request, n)
		}
	}
	name("with an action or for its answer", actions)
	slices.Sort(names)
	return names
}

// actionPaths are those of requests that carry out an action from their first byte on.
var actionPaths = []string{"/execute_action", "/v1/actions", "/v1/tools/call", toolsPath}

// count counts an upgrade that was not done.
func (g *gate) count(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, refused := errors.AsType[*api.Error](err); refused {
		g.upgrades.Refused++
	} else {
		g.upgrades.Failed++
	}
}

func errUpgrading() error {
	return refuse(http.StatusTooManyRequests, "The server is being upgraded; nothing was done, try again")
}

// gated counts the requests that may change something, and refuses them during an upgrade. What
// concerns an action that runs goes through: it may be what ends it. An upgrade does not wait for
// attached terminals.
func (s *Server) gated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		terminal := strings.HasSuffix(r.URL.Path, "/terminal")
		reads := (r.Method == http.MethodGet || r.Method == http.MethodHead) && !terminal
		if reads || r.URL.Path == api.UpgradePath || strings.HasPrefix(r.URL.Path, "/v1/actions/") {
			next.ServeHTTP(w, r)
			return
		}
		request := r.Method + " " + shorten.Text(r.URL.Path, maxRequestName)
		if !s.gate.enter(request) {
			s.fail(w, r, errUpgrading())
			return
		}
		if terminal {
			s.gate.leave(request)
		} else {
			defer s.gate.leave(request)
		}
		next.ServeHTTP(w, r)
	})
}

const (
	// defaultUpgradeWait is how long actions have to end before an upgrade.
	defaultUpgradeWait = 30 * time.Second
	maxUpgradeWait     = time.Hour
	// programTime bounds the upload.
	programTime = 10 * time.Minute
	// upgradeLook is the pause between looks at what runs.
	upgradeLook = 20 * time.Millisecond
	// maxRequestName bounds the path in the name of a request, in bytes.
	maxRequestName = 100
)

// upgrade replaces the program of this process by the one in the body. The new program
// answers.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) error {
	conn, err := s.replaceProgram(w, r)
	s.gate.count(err)
	if conn == nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	id := httpserver.LogBroken(s.log, r, err)
	broken := &api.Error{Status: http.StatusInternalServerError, Detail: "The new program could not be executed, and this server goes on: its log says more under " + id}
	if answer, err := api.Encode(api.NewRefusal(broken, id)); err == nil {
		_ = WriteAnswer(conn, broken.Status, answer) // the client may have left
	}
	return nil
}

// replaceProgram is upgrade without the answer, for which it returns the connection where that
// was taken from the HTTP server. The error is not nil.
func (s *Server) replaceProgram(w http.ResponseWriter, r *http.Request) (conn net.Conn, err error) {
	switch {
	case s.cfg.Upgrader == nil:
		return nil, refuse(http.StatusConflict, "This server cannot be upgraded in place: %s", s.cfg.NoUpgrade)
	case !s.locked():
		return nil, refuse(http.StatusConflict, "This server cannot be upgraded in place: it has no key, so the agent could send the program")
	}
	wait, err := number(r, "wait", uint64(defaultUpgradeWait/time.Second), uint64(maxUpgradeWait/time.Second))
	if err != nil {
		return nil, err
	}
	force, err := yes(r, "force")
	if err != nil {
		return nil, err
	}
	if r.ContentLength > handover.MaxProgram {
		return nil, httpserver.UnreadBody(r, &http.MaxBytesError{Limit: handover.MaxProgram})
	}
	if !s.gate.upgrading.TryLock() {
		return nil, refuse(http.StatusConflict, "Another upgrade is under way")
	}
	defer s.gate.upgrading.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), programTime)
	body := &failingReader{ctx: ctx, r: http.MaxBytesReader(nil, r.Body, handover.MaxProgram)}
	err = s.cfg.Upgrader.Receive(ctx, body)
	cancel()
	if _, unfit := errors.AsType[*handover.UnfitError](err); unfit {
		return nil, &api.Error{Status: http.StatusUnprocessableEntity, Detail: "This server goes on as it was: " + err.Error()}
	}
	if body.err != nil {
		return nil, httpserver.UnreadBody(r, body.err)
	}
	if err != nil {
		return nil, fileError(err, "the program", http.StatusInternalServerError)
	}
	err = s.handOver(r.Context(), time.Duration(wait)*time.Second, force, func() (net.Conn, error) { //nolint:gosec // it is bounded
		var err error
		conn, _, err = http.NewResponseController(w).Hijack()
		return conn, err
	})
	return conn, err
}

// failingReader remembers the error of a reader, which ends with ctx.
type failingReader struct {
	ctx context.Context //nolint:containedctx // of one request
	r   io.Reader
	err error
}

func (f *failingReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == nil {
		err = context.Cause(f.ctx)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// WriteAnswer writes a response with a JSON body to a connection that was taken from its
// server.
func WriteAnswer(conn net.Conn, status int, body []byte) error {
	_ = conn.SetWriteDeadline(time.Now().Add(httpserver.StallTime)) // without one it fails as well
	resp := http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {httpserver.JSON}},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Close: true,
	}
	return resp.Write(conn)
}

// Reexecute upgrades to the program that an earlier request brought, and does nothing where
// there is none.
func (s *Server) Reexecute(ctx context.Context) {
	if s.cfg.Upgrader == nil || !s.gate.upgrading.TryLock() {
		return
	}
	defer s.gate.upgrading.Unlock()
	if !s.cfg.Upgrader.Received() {
		return
	}
	if err := s.handOver(ctx, defaultUpgradeWait, false, nil); err != nil {
		s.gate.count(err)
		s.log.WarnContext(ctx, "the server was not upgraded and goes on", "error", err)
	}
}

// handOver waits until what cannot be handed over has ended, and executes the program that was
// received. It returns only where that fails.
func (s *Server) handOver(ctx context.Context, wait time.Duration, force bool, conn func() (net.Conn, error)) error {
	s.gate.close(true)
	defer s.gate.close(false)
	over := time.NewTimer(wait)
	defer over.Stop()
	for late := false; ; {
		forced := late && force
		_, actions, requests := s.underWay(s.cfg.Upgrader.Movable(), forced)
		left := slices.Concat(actions, s.cfg.Upgrader.Unmovable(), requests)
		if len(left) == 0 || forced {
			err := s.tryHandOver(ctx, forced, conn)
			unsettled, ok := errors.AsType[*UnsettledError](err)
			if !ok {
				return err
			}
			left = unsettled.What
		}
		if late {
			return refuse(http.StatusConflict, "The server was not upgraded, because these still run and cannot be handed over: %s. Wait for them or cancel them, or upgrade with force, which ends them or makes their results unknown",
				strings.Join(left[:min(len(left), 10)], ", "))
		}
		select {
		case <-time.After(upgradeLook):
		case <-over.C:
			late = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryHandOver executes the program that was received, and returns where that fails.
func (s *Server) tryHandOver(ctx context.Context, force bool, conn func() (net.Conn, error)) error {
	s.holdPaces(true) // what is to stop may wait for a reader
	defer s.holdPaces(false)
	defer s.thaw()
	next := s.freeze()
	next.Upgrades.Done++ // where the new program reads it
	var on []*flight
	return s.cfg.Upgrader.HandOver(ctx, Handover{
		Server: next, Force: force, Conn: conn,
		Actions: func(movable map[string]bool) (frozen []FrozenAction, others, requests []string, err error) {
			on, others, requests = s.underWay(movable, force)
			frozen, err = s.freezeActions(on)
			return frozen, others, requests, err
		},
		Settle: func(ctx context.Context) { s.settle(ctx, on) },
	})
}

// settleTime bounds how long the record of an action is waited for that has ended.
const settleTime = 2 * time.Second

// settle waits until all actions are recorded but those that go on, and those of shells, whose
// commands go on.
func (s *Server) settle(ctx context.Context, on []*flight) {
	over := time.NewTimer(settleTime)
	defer over.Stop()
	s.flights.mu.Lock()
	var others []*flight
	for _, f := range s.flights.all {
		if f.call.kind != (api.RunAction{}).Kind() && !slices.Contains(on, f) {
			others = append(others, f)
		}
	}
	s.flights.mu.Unlock()
	for _, f := range others {
		select {
		case <-f.done:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// underWay returns the actions under way that go on in the new program, the identities
// of the others, and names other requests. An action goes on where it is movable and a
// client can ask for it, or by force.
func (s *Server) underWay(movable map[string]bool, force bool) (on []*flight, others, requests []string) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	flying := 0
	for _, f := range s.flights.all {
		flying += f.requests
		if movable[f.action.ID()] && (f.named || force) {
			on = append(on, f)
		} else {
			others = append(others, f.action.ID())
		}
	}
	slices.Sort(others)
	return on, others, s.gate.requests(flying)
}

// holdPaces has no program wait for the reader of its stream, or again.
func (s *Server) holdPaces(held bool) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	for _, f := range s.flights.all {
		f.call.reader.hold(held)
	}
}
