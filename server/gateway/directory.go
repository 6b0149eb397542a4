package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/server/bound"
)

const (
	// staleTime is how long a look at the sandboxes counts at most. What happens
	// to them is told by the engine at once, so it only matters where that does
	// not arrive.
	staleTime = 30 * time.Second
	// holdOff is how long it is not asked again after the engine could not be
	// reached: sandboxes that are known are used meanwhile.
	holdOff = 2 * time.Second
	// maxIdleConns is how many idle connections to one sandbox are kept.
	maxIdleConns = 32
	// poolTime is shorter than the server in a sandbox keeps an idle connection,
	// so that no request is sent over one that is being closed.
	poolTime = 60 * time.Second
)

// directory remembers the sandboxes, so that a request to one of them does not
// ask the engine. All methods may be called concurrently.
type directory struct {
	host    *docker.Host
	looking chan struct{} // held by who asks the engine

	mu       sync.Mutex
	seats    map[string]*seat // by id
	complete bool             // no other sandboxes are known to be there
	changes  int              // that were told
	looked   time.Time        // the last look began
	failed   error            // of that look
}

// seat is a sandbox and the connections to it.
type seat struct {
	transport *http.Transport

	mu      sync.Mutex
	sandbox *docker.Sandbox
	fresh   time.Time // when it was looked at; zero: it has changed since
	key     string    // once it was needed
}

func newDirectory(host *docker.Host) *directory {
	return &directory{host: host, looking: make(chan struct{}, 1), seats: map[string]*seat{}}
}

// find gives the sandbox of an id. It fails with docker.ErrNotFound, or with
// docker.ErrUnknown for one that was not seen before. Only for a trusted caller
// the engine is asked about an id that nobody heard of.
func (d *directory) find(ctx context.Context, id string, trusted bool) (*seat, error) {
	d.mu.Lock()
	found, complete := d.seats[id], d.complete && time.Since(d.looked) < staleTime
	d.mu.Unlock()
	if found != nil && found.isFresh() {
		return found, nil
	}
	if found == nil && complete && !trusted {
		return nil, errNoSandbox(id)
	}
	err := d.look(ctx)
	d.mu.Lock()
	now := d.seats[id]
	d.mu.Unlock()
	switch {
	case now != nil && (err == nil || errors.Is(err, docker.ErrUnknown)):
		return now, nil // the engine may be down, and the sandbox live on
	case err != nil:
		return nil, err
	}
	return nil, errNoSandbox(id)
}

func errNoSandbox(id string) error { return fmt.Errorf("%.64q: %w", id, docker.ErrNotFound) }

// reachable asks the engine, unless somebody did so a moment ago.
func (d *directory) reachable(ctx context.Context) error {
	d.mu.Lock()
	recent, failed := time.Since(d.looked) < holdOff, d.failed
	d.mu.Unlock()
	if recent {
		return failed
	}
	return d.look(ctx)
}

// look asks the engine for all sandboxes. Who comes while somebody else asks
// gets what came of a look that began after they came.
func (d *directory) look(ctx context.Context) error {
	came := time.Now()
	select {
	case d.looking <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("looking for the sandboxes: %w", context.Cause(ctx))
	}
	defer func() { <-d.looking }()
	d.mu.Lock()
	looked, failed, changes := d.looked, d.failed, d.changes
	d.mu.Unlock()
	if looked.After(came) || failed != nil && time.Since(looked) < holdOff {
		return failed
	}
	begun := time.Now()
	all, err := d.host.List(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("looking for the sandboxes: %w", context.Cause(ctx))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looked, d.failed = begun, err
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, s := range all {
		if s.Pool != "" { // nobody's
			continue
		}
		there[s.ID] = true
		// Who changed while this was asked for is asked for again.
		d.seat(s).update(s, changes == d.changes)
	}
	d.complete = changes == d.changes
	if !d.complete {
		return nil
	}
	for id, s := range d.seats {
		if !there[id] {
			s.transport.CloseIdleConnections()
			delete(d.seats, id)
		}
	}
	return nil
}

// seat gives the seat of a sandbox, a new one for a container that was not seen
// before. d.mu is held.
func (d *directory) seat(s *docker.Sandbox) *seat {
	if old := d.seats[s.ID]; old != nil {
		if old.current().Container == s.Container {
			return old
		}
		old.transport.CloseIdleConnections()
	}
	made := newSeat(s)
	d.seats[s.ID] = made
	return made
}

func newSeat(s *docker.Sandbox) *seat {
	made := &seat{sandbox: s}
	made.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := made.current().Dial(ctx)
			if err != nil {
				return nil, &dialError{err}
			}
			return bound.Conn(conn), nil
		},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        poolTime,
		MaxResponseHeaderBytes: maxHeader,
		ExpectContinueTimeout:  time.Second,
	}
	return made
}

// dialError says that a sandbox could not be connected to: nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// put notes what the gateway did to a sandbox.
func (d *directory) put(s *docker.Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	d.seat(s).update(s, true)
}

// forget notes that a sandbox is gone.
func (d *directory) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	if s := d.seats[id]; s != nil {
		s.transport.CloseIdleConnections()
		delete(d.seats, id)
	}
}

// changed notes that something happened to a sandbox; "" stands for all.
func (d *directory) changed(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	d.complete = false
	for name, s := range d.seats {
		if id == "" || id == name {
			s.stale()
		}
	}
}

// watch notes what the engine tells, until ctx ends.
func (d *directory) watch(ctx context.Context, log *slog.Logger) {
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, staleTime) {
		begun := time.Now()
		err := d.host.Events(ctx, func(e docker.Event) error {
			d.changed(e.ID)
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		d.changed("") // what happens until it tells again is not known
		if time.Since(begun) > staleTime {
			wait = time.Second
		}
		log.WarnContext(ctx, "the engine does not tell what happens", "error", err, "next", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// close drops idle connections.
func (d *directory) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.seats {
		s.transport.CloseIdleConnections()
	}
}

func (s *seat) current() *docker.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandbox
}

func (s *seat) isFresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.fresh) < staleTime
}

func (s *seat) update(sandbox *docker.Sandbox, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandbox = sandbox
	s.fresh = time.Time{}
	if fresh {
		s.fresh = time.Now()
	}
}

func (s *seat) stale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = time.Time{}
}

// sessionKey is the key of the sandbox's server.
func (s *seat) sessionKey() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key == "" {
		key, err := s.sandbox.Key()
		if err != nil {
			return "", err
		}
		s.key = key
	}
	return s.key, nil
}

// keeps tells whether key is the sandbox's.
func (s *seat) keeps(key string) (bool, error) {
	own, err := s.sessionKey()
	if own == "" || err != nil {
		return false, err
	}
	return sameKey(key, sha256.Sum256([]byte(own))), nil
}
