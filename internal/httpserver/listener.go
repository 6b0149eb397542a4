// Package httpserver has the common parts of the HTTP servers of a sandbox and of the
// gateway: limits on connections and bodies, a table of routes, and the form of responses.
package httpserver

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/files"
)

const (
	// HeaderTime limits how long a client may take to send a header.
	HeaderTime = 10 * time.Second
	// IdleTime is longer than known clients keep an idle connection. A client whose
	// connection is closed while it writes would send its action again.
	IdleTime = 120 * time.Second
	// StallTime limits the time in which a client neither sends the rest of its body nor
	// reads the rest of a response.
	StallTime = 30 * time.Second
	// slowest is the lowest average rate of a body, in bytes per second.
	slowest = 16 << 10
	// maxHeaderLines bounds the lines of a header that comes over a connection
	// without [Trust]. net/http bounds bytes only, and a header of 64 KiB that
	// consists of short lines takes 1 MiB of memory.
	maxHeaderLines = 256
)

var errHeaderLines = fmt.Errorf("the header has more than %d lines", maxHeaderLines)

// allowance returns how long n bytes may take at the slowest rate.
func allowance(n int64) time.Duration {
	return time.Duration(n) * (time.Second / slowest)
}

// NewServer returns an HTTP server with timeouts. The contexts of its requests derive
// from base. Errors of net/http are logged to log.
func NewServer(base context.Context, h http.Handler, maxHeader int, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ConnState:         headerBegins,
		ReadHeaderTimeout: HeaderTime,
		IdleTimeout:       IdleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),

		DisableGeneralOptionsHandler: true, // net/http would respond without asking for a key
	}
}

// Shutdown waits up to limit for the requests in flight. It uses only the values of ctx,
// which may have ended.
func Shutdown(ctx context.Context, srv *http.Server, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return srv.Shutdown(ctx)
}

// LimitListener returns l limited to most connections at a time, of which half may be
// without [Trust]. Beyond that a new connection replaces one without trust, so that
// unauthenticated clients exclude only each other: the oldest of the owner that has the most of those,
// where [Own] names owners. If all connections are trusted,
// further ones wait in the kernel's queue, which is better than a refusal: clients send
// an action again when their connection breaks.
func LimitListener(l net.Listener, most int) net.Listener {
	return newBoundListener(l, most)
}

func newBoundListener(l net.Listener, most int) *boundListener {
	return &boundListener{Listener: l, most: most, owned: map[any]int{}, freed: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Total bounds the connections of several listeners together. Beyond that a new connection replaces
// the oldest one without [Trust] of the listener that has the most of those, so that the clients of
// one listener exclude each other first. Where all are trusted, new ones wait, as those of
// [LimitListener].
type Total struct {
	most int

	mu        sync.Mutex // is locked before that of a listener
	open      int
	listeners map[*boundListener]bool
	changed   sync.Cond // a connection, or a listener, began or ended
}

// NewTotal returns a bound of most connections.
func NewTotal(most int) *Total {
	t := &Total{most: most, listeners: map[*boundListener]bool{}}
	t.changed.L = &t.mu
	return t
}

// LimitListener returns l limited as by the function of this name, and by t.
func (t *Total) LimitListener(l net.Listener, most int) net.Listener {
	bound := newBoundListener(l, most)
	bound.total = t
	t.change(func() { t.listeners[bound] = true })
	return bound
}

// admit counts a connection of l. It returns false if l was closed first.
func (t *Total) admit(l *boundListener) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.open >= t.most && t.listeners[l] {
		if !t.evict() {
			t.changed.Wait()
		}
	}
	if t.listeners[l] {
		t.open++
		return true
	}
	return false
}

// evict closes a connection without trust, if there is one. mu is held.
func (t *Total) evict() bool {
	var largest *boundListener
	most := 0
	for l := range t.listeners {
		if n := l.countUntrusted(); n > most {
			largest, most = l, n
		}
	}
	if largest == nil {
		return false
	}
	gone := largest.evict()
	if gone != nil && !gone.left.Swap(true) {
		t.open--
	}
	return gone != nil
}

func (t *Total) change(what func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	what()
	t.changed.Broadcast()
}

type boundListener struct {
	net.Listener
	most   int
	total  *Total        // nil: none
	freed  chan struct{} // receives an element when a connection closes
	closed chan struct{}
	once   sync.Once

	mu        sync.Mutex
	open      int
	untrusted list.List   // of *boundConn without trust, the oldest first
	owned     map[any]int // how many of those each owner has
}

// Accept waits until the limit admits a connection, then for one.
func (l *boundListener) Accept() (net.Conn, error) {
	if !l.await(func() bool { return l.open < l.most || l.untrusted.Len() > 0 }) {
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &boundConn{taken: taken{Conn: c}, listener: l}
	if l.total != nil && !l.total.admit(l) {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	var gone *boundConn
	if !l.await(func() (admitted bool) {
		gone, admitted = l.admit(conn)
		return admitted
	}) {
		conn.leave()
		_ = c.Close()
		return nil, net.ErrClosed
	}
	if gone != nil {
		_ = gone.Conn.Close() // net/http closes it again
		gone.leave()
	}
	if l.total != nil {
		l.total.change(func() {}) // it can be evicted
	}
	return conn, nil
}

// await calls done with mu held until it returns true. It returns false if the
// listener was closed first.
func (l *boundListener) await(done func() bool) bool {
	for {
		l.mu.Lock()
		ok := done()
		l.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-l.freed:
		case <-l.closed:
			return false
		}
	}
}

// admit counts a new connection, or replaces the oldest one without trust, which it
// returns to be closed.
func (l *boundListener) admit(c *boundConn) (gone *boundConn, admitted bool) {
	if l.open >= l.most || l.untrusted.Len() >= (l.most+1)/2 {
		if gone = l.remove(); gone == nil {
			return nil, false
		}
	}
	l.open++
	c.unknown()
	return gone, true
}

// remove stops counting a connection without trust, which the caller closes: the oldest one of the owners that
// have the most. It returns nil if there is none. mu is held.
func (l *boundListener) remove() *boundConn {
	most := 0
	for _, n := range l.owned {
		most = max(most, n)
	}
	for e := l.untrusted.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*boundConn); l.owned[c.owner] == most { //nolint:forcetypeassert // it has no others
			c.known()
			c.out = true
			l.open--
			return c
		}
	}
	return nil
}

// countUntrusted counts the connections without trust.
func (l *boundListener) countUntrusted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.untrusted.Len()
}

// evict closes a connection without trust, and returns it; nil if there is none.
func (l *boundListener) evict() *boundConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := l.remove()
	if gone != nil {
		_ = gone.Conn.Close() // net/http closes it again
	}
	return gone
}

// Close ends Accept as well.
func (l *boundListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		if l.total != nil {
			l.total.change(func() { delete(l.total.listeners, l) })
		}
	})
	return l.Listener.Close()
}

// connKey is the context key of a request's connection.
type connKey struct{}

// Trust marks the connection of an authenticated request. The listener does not close it in
// favor of others.
func Trust(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*boundConn); ok && !c.trusted.Swap(true) {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.known()
	}
}

// Distrust ends the trust in the connection of a request.
func Distrust(r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*boundConn)
	if !ok || !c.trusted.Swap(false) {
		return
	}
	l := c.listener
	l.mu.Lock()
	if !c.out {
		c.unknown()
	}
	l.mu.Unlock()
	l.released()
}

// Own names the owner of the connection of a request, which has no [Trust] by that; see [LimitListener].
func Own(r *http.Request, owner any) {
	c, ok := r.Context().Value(connKey{}).(*boundConn)
	if !ok {
		return
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.place != nil {
		c.listener.count(c, -1)
		defer c.listener.count(c, 1)
	}
	c.owner = owner
}

// DeadlineConn returns c with a deadline on every write, so that a write ends if the
// other side does not read. It does not have CloseWrite.
func DeadlineConn(c net.Conn) net.Conn { return &taken{Conn: c} }

// SetStall replaces [StallTime] for the rest of the connection of a request, whose client
// may then read late: back-pressure instead of an end, for authenticated clients.
func SetStall(r *http.Request, limit time.Duration) {
	if c, ok := r.Context().Value(connKey{}).(*boundConn); ok {
		c.stall.Store(int64(limit - StallTime))
	}
}

// taken sets a deadline for every write. The time between writes has no limit.
type taken struct {
	net.Conn

	stall atomic.Int64 // is added to StallTime
}

// portion is how much is written with one deadline: all of a large response would have one of
// many minutes, for which a client that reads nothing would hold its memory.
const portion = 256 << 10

// Write fails if the other side does not read p in time.
func (c *taken) Write(p []byte) (n int, err error) {
	limit := func(n int) time.Duration { return StallTime + time.Duration(c.stall.Load()) + allowance(int64(n)) }
	latest := time.Now().Add(limit(len(p)))
	for rest := p; ; rest = p[n:] {
		rest = rest[:min(len(rest), portion)]
		deadline := time.Now().Add(limit(len(rest)))
		if latest.Before(deadline) {
			deadline = latest
		}
		if err := c.SetWriteDeadline(deadline); err != nil {
			return n, err
		}
		written, err := c.Conn.Write(rest)
		if n += written; err != nil || n == len(p) {
			return n, err
		}
	}
}

// boundConn is a connection of a listener.
type boundConn struct {
	taken
	listener *boundListener
	trusted  atomic.Bool
	left     atomic.Bool // the total no longer counts it
	header   headerLines // used by the reading goroutine, and by net/http between requests

	// The listener's mu guards these.
	place *list.Element // nil while the connection is trusted, or once it is closed
	owner any           // nil until it is known
	out   bool          // no longer counted
}

// headerLines counts the lines of one header.
type headerLines struct {
	n     int
	empty bool // the line has no bytes so far
	ended bool
}

// add counts the lines in p up to the end of the header, and reports whether they are
// at most maxHeaderLines.
func (h *headerLines) add(p []byte) bool {
	for _, b := range p {
		switch {
		case h.ended:
			return true
		case b == '\n':
			h.ended = h.empty
			h.empty = true
			h.n++
		case b != '\r':
			h.empty = false
		}
	}
	return h.n <= maxHeaderLines
}

// headerBegins is an [http.Server.ConnState] hook.
func headerBegins(c net.Conn, state http.ConnState) {
	if c, ok := c.(*boundConn); ok && state == http.StateIdle {
		c.header = headerLines{}
	}
}

// Read fails if an unauthenticated client sends a header of too many lines.
func (c *boundConn) Read(p []byte) (int, error) {
	n, err := c.taken.Read(p)
	if !c.header.ended && errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = c.arrived(p, err)
	}
	if !c.header.add(p[:n]) && !c.trusted.Load() {
		return 0, errHeaderLines
	}
	return n, err
}

// arrived reads a part of a header that came before the deadline passed, or returns late.
// After a machine has stood still, deadlines pass before anything is read, and net/http, which
// reads 4 KiB at a time, would close the connection of a client that was in time without a response.
func (c *boundConn) arrived(p []byte, late error) (n int, err error) {
	err = late
	switch conn := c.Conn.(type) {
	case interface{ ReadNow(p []byte) (int, error) }: // has more to do than to read
		n, err = conn.ReadNow(p)
	case syscall.Conn:
		n, err = files.ReadNow(conn, p)
	}
	if err != nil {
		return 0, late
	}
	return n, nil
}

// known removes the connection from the list of untrusted ones. The listener's mu is held.
func (c *boundConn) known() {
	if c.place != nil {
		c.listener.untrusted.Remove(c.place)
		c.place = nil
		c.listener.count(c, -1)
	}
}

// unknown adds it there. The listener's mu is held.
func (c *boundConn) unknown() {
	c.place = c.listener.untrusted.PushBack(c)
	c.listener.count(c, 1)
}

// count counts n more connections of the owner of one. mu is held.
func (l *boundListener) count(c *boundConn, n int) {
	if l.owned[c.owner] += n; l.owned[c.owner] == 0 {
		delete(l.owned, c.owner)
	}
}

// released lets Accept look again.
func (l *boundListener) released() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
	if l.total != nil {
		l.total.change(func() {}) // it can be evicted
	}
}

// CloseWrite ends the sending direction. net/http needs it to close a connection
// without losing the last response.
func (c *boundConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close closes the connection and stops counting it.
func (c *boundConn) Close() error {
	l := c.listener
	l.mu.Lock()
	c.known()
	if !c.out {
		c.out = true
		l.open--
	}
	l.mu.Unlock()
	select {
	case l.freed <- struct{}{}:
	default:
	}
	err := c.Conn.Close()
	c.leave()
	return err
}

// leave ends the count by the total.
func (c *boundConn) leave() {
	if t := c.listener.total; t != nil && !c.left.Swap(true) {
		t.change(func() { t.open-- })
	}
}
