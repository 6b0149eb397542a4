// Package bound keeps clients of an HTTP server from holding it up: it limits
// how many connections there are, how long one may be silent in the middle of a
// body, and how slow a body may come.
package bound

import (
	"container/list"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// HeaderTime is enough for any client that is not dripping its header.
	HeaderTime = 10 * time.Second
	// IdleTime is longer than any client keeps an idle connection: a client
	// whose connection is closed while it writes sends its action again.
	IdleTime = 120 * time.Second
	// StallTime is how long the other side may be silent in the middle of a
	// body, its own or ours.
	StallTime = 30 * time.Second
	// slowest is the rate in bytes per second under which a body, counted from
	// its start, is given up: slower than any line a sandbox is reached over,
	// and fast enough that a dripped body ends.
	slowest = 16 << 10
)

// allowance returns how long n bytes may take at the slowest rate.
func allowance(n int64) time.Duration {
	return time.Duration(n) * (time.Second / slowest)
}

// Server returns an HTTP server whose connections are bounded. Contexts of its
// requests come from base, and what net/http complains of goes to log.
func Server(base context.Context, h http.Handler, maxHeader int, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ReadHeaderTimeout: HeaderTime,
		IdleTimeout:       IdleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),

		DisableGeneralOptionsHandler: true, // it would answer without a key
	}
}

// Shutdown waits up to limit for the running requests; ctx has ended already
// and gives only its values.
func Shutdown(ctx context.Context, srv *http.Server, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return srv.Shutdown(ctx)
}

// Listener returns l limited to most connections at a time. Where all are taken, a
// new one takes the place of the oldest that Trust was not called for, so that
// strangers keep out nobody but each other. Where there is none, further ones wait
// in the kernel's queue, which loses less than a refusal: clients send an action
// again when their connection breaks.
func Listener(l net.Listener, most int) net.Listener {
	return &boundListener{Listener: l, most: most, freed: make(chan struct{}, 1), closed: make(chan struct{})}
}

type boundListener struct {
	net.Listener
	most   int
	freed  chan struct{} // has an element once a place was given back
	closed chan struct{}
	once   sync.Once

	mu        sync.Mutex
	open      int
	strangers list.List // of *boundConn, the oldest first
}

// Accept waits for a place, then for a connection.
func (l *boundListener) Accept() (net.Conn, error) {
	if !l.await(func() bool { return l.open < l.most || l.strangers.Len() > 0 }) {
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &boundConn{taken: taken{c}, listener: l}
	var gone *boundConn
	if !l.await(func() (admitted bool) {
		gone, admitted = l.admit(conn)
		return admitted
	}) {
		_ = c.Close() // of no use to anybody
		return nil, net.ErrClosed
	}
	if gone != nil {
		_ = gone.Conn.Close() // whoever serves it closes it again
	}
	return conn, nil
}

// await returns once done, which is called with mu held, is true; false where the
// listener was closed before.
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

// admit gives a connection a place, or that of a stranger, who is gone then.
func (l *boundListener) admit(c *boundConn) (gone *boundConn, admitted bool) {
	switch oldest := l.strangers.Front(); {
	case l.open < l.most:
		l.open++
	case oldest == nil:
		return nil, false
	default:
		gone = l.strangers.Remove(oldest).(*boundConn) //nolint:forcetypeassert // it has no others
		gone.stranger, gone.out = nil, true
	}
	c.stranger = l.strangers.PushBack(c)
	return gone, true
}

// Close ends Accept as well.
func (l *boundListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// connKey finds the connection of a request in its context.
type connKey struct{}

// Trust has the connection of a request, whose sender has shown a key, stay.
func Trust(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*boundConn); ok && !c.trusted.Swap(true) {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.known()
	}
}

// Conn returns c with a deadline on every write, so that one that the other side
// does not take ends. It has no CloseWrite: what passes it on closes both ways.
func Conn(c net.Conn) net.Conn { return &taken{c} }

// taken gives every write its own deadline, so that an answer that nobody
// reads ends, while one that takes its time to come has no limit.
type taken struct{ net.Conn }

// Write fails when the other side does not take p in time.
func (c *taken) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(StallTime + allowance(int64(len(p))))); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// boundConn is a connection of a listener.
type boundConn struct {
	taken
	listener *boundListener
	trusted  atomic.Bool

	// The listener's mu guards these.
	stranger *list.Element // nil once it is none any more
	out      bool          // it has no place any more
}

// known takes the connection off the list of strangers.
func (c *boundConn) known() {
	if c.stranger != nil {
		c.listener.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

// CloseWrite tells the other side that all is said; net/http needs it to end a
// connection without losing the last answer.
func (c *boundConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close gives the place back.
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
	return c.Conn.Close()
}

// Bodies puts a deadline on the bodies of all requests, also of those that are
// refused before anybody reads them: net/http reads on after the handler.
// received is told the length of each body after its handler.
func Bodies(next http.Handler, received func(n int64)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &body{ReadCloser: r.Body, conn: http.NewResponseController(w), begun: time.Now()}
		b.extend(b.begun)
		r.Body = b
		next.ServeHTTP(w, r)
		received(b.n)
	})
}

// body is a request body that must keep coming.
type body struct {
	io.ReadCloser
	conn  *http.ResponseController
	begun time.Time
	n     int64
}

// Read reads on and fails with os.ErrDeadlineExceeded when nothing comes for
// StallTime, or too little since the start.
func (b *body) Read(p []byte) (int, error) {
	if b.n > 0 {
		b.extend(time.Now())
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if err == io.EOF {
		// From here on the connection is only watched for the client's leaving,
		// and an action may take as long as it likes.
		_ = b.conn.SetReadDeadline(time.Time{}) // tests have no connection
	}
	return n, err
}

func (b *body) extend(now time.Time) {
	deadline := b.begun.Add(StallTime + allowance(b.n))
	if stall := now.Add(StallTime); stall.Before(deadline) {
		deadline = stall
	}
	_ = b.conn.SetReadDeadline(deadline) // tests have no connection
}
