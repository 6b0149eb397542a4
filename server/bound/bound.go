// Package bound keeps clients of an HTTP server from holding it up: it limits
// how many connections there are, how long one may be silent in the middle of a
// body, and how slow a body may come.
package bound

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
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

// Listener returns l limited to most connections at a time. Further ones wait in
// the kernel's queue, which loses less than a refusal: clients send an action
// again when their connection breaks.
func Listener(l net.Listener, most int) net.Listener {
	return &boundListener{Listener: l, slots: make(chan struct{}, most), closed: make(chan struct{})}
}

type boundListener struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Accept waits for a free slot, then for a connection.
func (l *boundListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &boundConn{taken: taken{c}, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends Accept as well.
func (l *boundListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
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
	release func()
}

// CloseWrite tells the other side that all is said; net/http needs it to end a
// connection without losing the last answer.
func (c *boundConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close frees the slot.
func (c *boundConn) Close() error {
	defer c.release()
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
