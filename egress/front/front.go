// Package front is the sandbox's side of network policies: the local proxy, by HTTP and by SOCKS5 on
// one port, and for programs that know no proxy a resolver, which gives each host name an address of
// the loopback interface. Each connection to either becomes a CONNECT on the socket of the egress proxy, which decides;
// its refusals are passed on as they are, and collected.
//
// The proxy is a convenience for programs, and no fence: bytes that are written to the egress proxy's
// socket by hand get the same answers. The package knows connections, and neither actions nor the
// API of the sandbox.
package front

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/gate"
	"github.com/actiond/actiond/internal/httpserver"
)

// Address is where programs find the proxy.
const Address = "127.0.0.1:3128"

// Limits of a front.
const (
	maxOpen     = 256
	maxHeader   = 8 << 10
	maxResponse = 256 << 10 // header of a response to a plain request
	idleTime    = time.Hour
	keptIdle    = 16 // connections to hosts that plain requests may use again
	keptTime    = 30 * time.Second
	refuseTime  = time.Second
	acceptPause = 10 * time.Millisecond
)

// Config configures a [Front].
type Config struct {
	// Socket is the path of the egress proxy's socket.
	Socket string
	// Remote and Token are the address IP:PORT of an egress proxy elsewhere and the token of
	// this sandbox there, in place of Socket.
	Remote, Token string
	// Address is an address to listen on; empty means [Address].
	Address string
	// Resolver is an address for the resolver; empty: no resolver, and programs need the proxy.
	Resolver string
	// Hosts is the sandbox's list of hosts; empty means /etc/hosts.
	Hosts string
	// Log gets the errors of the HTTP server.
	Log *slog.Logger
	// Denied is called with each denial before the client learns of it, so that the client's
	// socket can be found. It returns the name of the client's process, or "". Several
	// connections call it concurrently. nil finds no processes.
	Denied func(d Denial) (process string)
	// Opened is called with the ends of a connection whose TLS the egress proxy opens, before its
	// client may use it. The function that it returns is called with each denial inside of it, perhaps after its
	// end, and returns the name of the process. nil finds none.
	Opened func(client, front netip.AddrPort) func(d Denial) (process string)
}

// Front is the local proxy and the resolver. It owns listeners, and the goroutines of its connections,
// which Close ends. Its methods may be called concurrently.
type Front struct {
	cfg       Config
	listener  *net.TCPListener
	http      *http.Server
	handoff   *handoff
	forwarder *httputil.ReverseProxy
	transport *http.Transport
	egress    *egressClient
	resolver  *resolver // nil for none
	problem   error     // why there is none, although there should be
	denials   denials
	opened    opened
	metrics   *egress.Metrics

	headerTime time.Duration // in which a client sends the header of a request

	life    context.Context //nolint:containedctx // of all connections
	end     context.CancelFunc
	running gate.Gate // the two servers, requests, dials and connections by SOCKS

	mu      sync.Mutex
	clients int
}

// Start listens, and returns a front whose caller must call Close. It goes on without a resolver that
// cannot listen, which [Front.ResolverProblem] says.
func Start(cfg Config) (*Front, error) { return start(cfg, httpserver.HeaderTime, listenTCP) }

// start is Start with another limit for headers, and other listeners of names.
func start(cfg Config, headerTime time.Duration, listen func(netip.AddrPort) (net.Listener, error)) (*Front, error) {
	cfg.Address, cfg.Hosts = cmp.Or(cfg.Address, Address), cmp.Or(cfg.Hosts, hostsFile)
	at, err := netip.ParseAddrPort(cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("starting the local proxy: %w", err)
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("starting the local proxy: %w", err)
	}
	f := &Front{cfg: cfg, listener: l, handoff: &handoff{conns: make(chan net.Conn), closed: make(chan struct{}), addr: l.Addr()}}
	f.metrics = egress.NewMetrics(func() float64 { return float64(f.Open()) })
	f.life, f.end = context.WithCancel(context.Background())
	f.egress, f.headerTime = newEgressClient(&cfg), headerTime
	f.http = httpserver.NewServer(f.life, f, maxHeader, cfg.Log)
	f.http.ReadHeaderTimeout = headerTime
	inner := f.http.ConnContext
	f.http.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(inner(ctx, c), clientKey{}, c)
	}
	f.transport = &http.Transport{
		DialContext: f.dial, DisableCompression: true, MaxIdleConns: keptIdle, IdleConnTimeout: keptTime, MaxResponseHeaderBytes: maxResponse,
	}
	f.forwarder = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: f.transport, ModifyResponse: stripDenied, ErrorHandler: f.failed, ErrorLog: f.http.ErrorLog,
	}
	if cfg.Resolver != "" {
		f.resolver, f.problem = f.startResolver(cfg.Resolver, listen)
	}
	f.running.Go(func() { f.accept(f.listener, f.sniff, (*client).turnAway) })
	f.running.Go(func() { _ = f.http.Serve(f.handoff) }) // until Close
	return f, nil
}

// Close ends all connections and stops listening.
func (f *Front) Close() {
	if f.running.Close() {
		f.stop()
	}
}

func (f *Front) stop() {
	f.end()
	_ = f.listener.Close()
	if f.resolver != nil {
		f.resolver.close()
	}
	close(f.handoff.closed)
	_ = f.http.Close()
	f.running.Wait()
	f.transport.CloseIdleConnections()
}

// Address returns the address that the front listens on.
func (f *Front) Address() netip.AddrPort { return addrPort(f.listener.Addr()) }

// Resolves reports whether the resolver runs.
func (f *Front) Resolves() bool { return f.resolver != nil }

// ResolverProblem returns why the resolver does not run although it was asked for, otherwise nil.
func (f *Front) ResolverProblem() error { return f.problem }

// Open returns how many clients are connected.
func (f *Front) Open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clients
}

// Collectors returns the metrics of the front.
func (f *Front) Collectors() []prometheus.Collector {
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "actiond_network_up", Help: "1 where the egress proxy answers, otherwise 0.",
	}, func() float64 {
		if _, err := f.Policy(f.life); err != nil {
			return 0
		}
		return 1
	})
	return append(f.metrics.Collectors(), up)
}

// Policy asks the egress proxy for the policy.
func (f *Front) Policy(ctx context.Context) (egress.Summary, error) { return f.egress.policy(ctx) }

// Denied returns the latest denials, at most 1,000, the oldest first.
func (f *Front) Denied() []Denial { return f.denials.all() }

// accept takes connections until the listener is closed. It serves each, or turns it away where there
// are too many.
func (f *Front) accept(l net.Listener, serve, turnAway func(*client)) {
	for {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many open files
			if channel.Sleep(f.life, acceptPause) != nil {
				return
			}
			continue
		}
		c := &client{TCPConn: conn.(*net.TCPConn), front: f, stop: func() bool { return true }} //nolint:forcetypeassert // all listeners are TCP's
		if !f.enter() {
			c.once.Do(func() {}) // it does not count
			turnAway(c)
			f.metrics.Failed(http.StatusServiceUnavailable)
			continue
		}
		c.stop = context.AfterFunc(f.life, func() { _ = conn.Close() }) // also where the client reads nothing
		if !f.running.Go(func() { serve(c) }) {
			_ = c.Close()
		}
	}
}

func (f *Front) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clients >= maxOpen {
		return false
	}
	f.clients++
	return true
}

func (f *Front) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients--
}

// sniff gives a connection to the protocol that its first byte names.
func (f *Front) sniff(c *client) {
	_ = c.SetReadDeadline(time.Now().Add(f.headerTime)) // a connection that cannot have one is broken
	var first [1]byte
	if _, err := io.ReadFull(c.TCPConn, first[:]); err != nil {
		_ = c.Close()
		return
	}
	if first[0] == socksVersion {
		f.socks(c)
		return
	}
	c.first = first[:]
	if !f.handoff.give(c) {
		_ = c.Close()
	}
}

// client is a connection of a program.
type client struct {
	*net.TCPConn

	front *Front
	stop  func() bool // of the wait for the front's end
	first []byte      // that was read, and is yet to be read again
	once  sync.Once

	refused *refusal // the answer to its request, where the client knows no proxy
}

func (c *client) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.TCPConn.Read(p)
}

// Close closes the connection, and stops counting it.
func (c *client) Close() error {
	c.once.Do(func() {
		c.stop()
		c.front.leave()
	})
	return c.TCPConn.Close()
}

// turnAway answers a client beyond the limit. Its socket is new, so that nothing waits for the reader.
func (c *client) turnAway() {
	const text = "this sandbox has too many connections\n"
	_ = c.SetWriteDeadline(time.Now().Add(refuseTime))
	_, _ = fmt.Fprintf(c.TCPConn, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(text), text)
	_ = c.CloseWrite()
	_ = c.TCPConn.Close()
}

// clientKey is the context key of a request's connection.
type clientKey struct{}

// clientOf returns the connection of a request.
func clientOf(ctx context.Context) *client {
	c, _ := ctx.Value(clientKey{}).(*client)
	return c
}

// handoff is the listener of the HTTP server.
type handoff struct {
	conns  chan net.Conn
	closed chan struct{}
	addr   net.Addr
}

// give returns false if the listener is closed.
func (h *handoff) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		return false
	}
}

// Accept implements [net.Listener].
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. [Front.Close] closes the listener.
func (h *handoff) Close() error { return nil }

// Addr implements [net.Listener].
func (h *handoff) Addr() net.Addr { return h.addr }

// addrPort returns the address of a TCP socket, in one form.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// buffered reads the buffer of a reader first, and then the connection itself.
func buffered(r *bufio.Reader, c net.Conn) io.Reader {
	n := r.Buffered()
	if n == 0 {
		return c
	}
	early, _ := r.Peek(n) // what is buffered can be read
	return io.MultiReader(readerOf(early), c)
}
