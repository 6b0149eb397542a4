package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/sandbox"
)

const (
	// staleTime is how long a list of the sandboxes is used. The driver reports
	// changes at once, so this matters only if a report is lost.
	staleTime = 30 * time.Second
	// holdOff is the pause between two attempts to reach the engine. Requests to known
	// sandboxes are passed on meanwhile.
	holdOff = 2 * time.Second
	// lookTime bounds the wait of requests to known sandboxes for an engine that
	// accepts connections and does not answer.
	lookTime = 5 * time.Second
	// maxIdleConns limits the idle connections to one sandbox.
	maxIdleConns = 32
	// poolTime is shorter than the server in a sandbox keeps an idle connection,
	// so that no request is sent over one that is being closed.
	poolTime = 60 * time.Second
)

// directory caches the sandboxes, so that a request to one of them needs no call of
// the engine. All methods may be called concurrently.
type directory struct {
	driver  sandbox.Driver
	looking chan struct{} // held by the caller that asks the engine

	mu       sync.Mutex
	entries  map[string]*entry // by id
	complete bool              // entries has all sandboxes
	changes  int               // that were reported
	looked   time.Time         // the last look began
	failed   error             // of that look
	ends     []end             // the last ones, the eldest first
}

// entry is a sandbox and the connections to it.
type entry struct {
	transport *http.Transport
	ports     *http.Transport // to applications
	// publicPorts are for clients without a key; public has an element per connection.
	publicPorts *http.Transport
	public      chan struct{}

	mu      sync.Mutex
	sandbox *sandbox.Sandbox
	fresh   time.Time // of the last look; zero: it has changed since
	key     string    // once it was needed
	end     string    // why it ended or is about to; "": not known
}

func newDirectory(d sandbox.Driver) *directory {
	return &directory{driver: d, looking: make(chan struct{}, 1), entries: map[string]*entry{}}
}

// find returns the sandbox of an id or a name. It fails with sandbox.ErrNotFound or
// sandbox.ErrAmbiguous, or with sandbox.ErrUnknown for one that was not seen before. The engine
// is asked about an unknown sandbox only for a trusted caller.
func (d *directory) find(ctx context.Context, ref string, trusted bool) (*entry, error) {
	found, complete, _ := d.known(ref)
	if found != nil && found.isFresh() {
		return found, nil
	}
	if found == nil && complete && !trusted {
		return nil, errNoSandbox(ref)
	}
	lookCtx := ctx
	if found != nil {
		var cancel context.CancelFunc
		lookCtx, cancel = context.WithTimeoutCause(ctx, lookTime, errHangs)
		defer cancel()
	}
	err := d.look(lookCtx)
	now, _, ambiguous := d.known(ref)
	switch {
	case now != nil && (err == nil || errors.Is(err, sandbox.ErrUnknown)):
		return now, nil // the engine may be down, and the sandbox live on
	case err != nil:
		return nil, err
	case ambiguous != nil:
		return nil, ambiguous
	}
	return nil, errNoSandbox(ref)
}

// known returns the cached sandbox of an id or a name, or nil. complete reports whether
// the cache has all sandboxes.
func (d *directory) known(ref string) (found *entry, complete bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	complete = d.complete && time.Since(d.looked) < staleTime
	if sandbox.IsID(ref) {
		return d.entries[ref], complete, nil
	}
	for _, e := range d.entries {
		if e.current().Name != ref {
			continue
		}
		if found != nil {
			return nil, complete, fmt.Errorf("%q is %w: write its id", ref, sandbox.ErrAmbiguous)
		}
		found = e
	}
	return found, complete, nil
}

var errHangs = fmt.Errorf("the engine does not answer: %w", sandbox.ErrUnknown)

func errNoSandbox(id string) error { return fmt.Errorf("%.64q: %w", id, sandbox.ErrNotFound) }

// reachable asks the engine, unless it was asked a moment ago.
func (d *directory) reachable(ctx context.Context) error {
	d.mu.Lock()
	recent, failed := time.Since(d.looked) < holdOff, d.failed
	d.mu.Unlock()
	if recent {
		return failed
	}
	return d.look(ctx)
}

// look asks the engine for all sandboxes. A caller that waits for another one's list
// gets the result of a list that began after its own call.
func (d *directory) look(ctx context.Context) error {
	came := time.Now()
	select {
	case d.looking <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("looking for the sandboxes: %w", context.Cause(ctx))
	}
	defer func() { <-d.looking }()
	d.mu.Lock()
	looked, failed, changes, before := d.looked, d.failed, d.changes, maps.Clone(d.entries)
	d.mu.Unlock()
	if looked.After(came) || failed != nil && time.Since(looked) < holdOff {
		return failed
	}
	begun := time.Now()
	all, err := d.driver.List(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("looking for the sandboxes: %w", context.Cause(ctx))
		if !errors.Is(err, errHangs) {
			return err // the engine may be reachable
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looked, d.failed = begun, err
	if err != nil {
		d.looked = time.Now() // it may have taken longer than holdOff
		return err
	}
	there := map[string]bool{}
	for _, s := range all {
		if s.Pool != "" { // not claimed
			continue
		}
		there[s.ID] = true
		// A sandbox that changed during the list is asked for again.
		d.entry(s).update(s, changes == d.changes)
	}
	d.complete = changes == d.changes
	for id, e := range before { // those that came meanwhile may be in no list yet
		if !there[id] && d.entries[id] == e {
			d.drop(e, "")
		}
	}
	return nil
}

// entry returns the entry of a sandbox, a new one for a new container. d.mu is held.
func (d *directory) entry(s *sandbox.Sandbox) *entry {
	if old := d.entries[s.ID]; old != nil {
		if old.current().Instance == s.Instance {
			return old
		}
		d.drop(old, "")
	}
	made := newEntry(s)
	d.entries[s.ID] = made
	return made
}

func newEntry(s *sandbox.Sandbox) *entry {
	made := &entry{sandbox: s, public: make(chan struct{}, publicConns)}
	made.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := made.current().Dial(ctx)
			if err != nil {
				return nil, &dialError{err}
			}
			return httpserver.DeadlineConn(conn), nil
		},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        poolTime,
		MaxResponseHeaderBytes: maxHeader,
		ExpectContinueTimeout:  time.Second,
	}
	made.ports, made.publicPorts = newPortTransport(made.dialPort), newPortTransport(made.dialPublicPort)
	return made
}

// dialError reports that no connection to a sandbox could be made: nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// put records a sandbox that the gateway has created or changed.
func (d *directory) put(s *sandbox.Sandbox) {
	d.mu.Lock()
	d.changes++
	e := d.entry(s)
	e.update(s, true)
	d.mu.Unlock()
	_, _ = e.sessionKey() // while it can be read: its end is for those with the key
}

// forget removes a sandbox that no longer exists.
func (d *directory) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	if e := d.entries[id]; e != nil {
		d.drop(e, sandbox.EndRemoved)
	}
}

// changed marks a sandbox as changed; "" means all.
func (d *directory) changed(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	d.complete = false
	if id != "" {
		if s := d.entries[id]; s != nil {
			s.stale()
		}
		return
	}
	for _, s := range d.entries {
		s.stale()
	}
}

// watch marks the sandboxes of which the engine reports a change, until ctx ends.
func (d *directory) watch(ctx context.Context, watcher sandbox.Watcher, log *slog.Logger) {
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, staleTime) {
		begun := time.Now()
		err := watcher.Events(ctx, func(e sandbox.Event) error {
			d.changed(e.ID)
			switch e.What {
			case "stop": // after it died
				d.note(e.ID, sandbox.EndStopped)
			case "die":
				d.keepKey(e.ID)
				log.InfoContext(ctx, "a sandbox ended", "sandbox", e.ID, "name", e.Name, "status", e.Code)
			}
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		d.changed("") // changes are missed until the next watch begins
		if time.Since(begun) > staleTime {
			wait = time.Second
		}
		log.WarnContext(ctx, "cannot watch the sandboxes", "error", err, "next", wait)
		_ = channel.Sleep(ctx, wait) // the loop ends then
	}
}

// keepKey reads the session key of a sandbox that ended.
func (d *directory) keepKey(id string) {
	d.mu.Lock()
	e := d.entries[id]
	d.mu.Unlock()
	if e != nil {
		_, _ = e.sessionKey() // without it, only the operator learns of the end
	}
}

// close drops idle connections.
func (d *directory) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.entries {
		s.closeIdle()
	}
}

// closeIdle drops idle connections.
func (s *entry) closeIdle() {
	s.ports.CloseIdleConnections()
	s.publicPorts.CloseIdleConnections()
	s.transport.CloseIdleConnections()
}

func (s *entry) current() *sandbox.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandbox
}

func (s *entry) isFresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.fresh) < staleTime
}

func (s *entry) update(now *sandbox.Sandbox, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandbox = now
	if now.State != sandbox.Stopped && now.State != sandbox.Gone && s.end != sandbox.EndRemoved {
		s.end = ""
	}
	s.fresh = time.Time{}
	if fresh {
		s.fresh = time.Now()
	}
}

func (s *entry) stale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = time.Time{}
}

// sessionKey returns the key of the sandbox's server. The entry is not locked while the
// driver reads the key: lookups by name read all entries.
func (s *entry) sessionKey() (string, error) {
	s.mu.Lock()
	key, of := s.key, s.sandbox
	s.mu.Unlock()
	if key != "" {
		return key, nil
	}
	key, err := of.Key()
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
	return key, nil
}

// keeps reports whether key is the sandbox's.
func (s *entry) keeps(key string) (bool, error) {
	own, err := s.sessionKey()
	if own == "" || err != nil {
		return false, err
	}
	return sameKey(key, sha256.Sum256([]byte(own))), nil
}
