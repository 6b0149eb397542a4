package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/gate"
	"github.com/actiond/actiond/internal/httpserver"
)

// HeaderIntercepted is in the answer to a CONNECT whose TLS the proxy opens. Requests inside may be
// denied, which the sandbox learns from GET /denied. It says where: "unix" is the same socket.
const HeaderIntercepted = "Actiond-Intercepted"

// Limits of intercepted connections. They bound the memory of each.
const (
	maxIntercepted  = 64        // connections of a sandbox
	maxRequest      = 64 << 10  // header
	maxResponse     = 256 << 10 // header
	maxUpstreams    = 4         // connections to the host, of one connection
	upstreamIdle    = 30 * time.Second
	clientBuffer    = 64 << 10  // of an HTTP/2 connection of the client, which is near
	upstreamBuffer  = 256 << 10 // of an HTTP/2 connection to the host, which may be far
	maxBuffered     = 8 << 20   // bytes of these buffers of a sandbox; further connections speak HTTP/1.1
	sharedBytes     = 32 << 10  // of them, and of requests, of all sandboxes, for each connection that may be open
	maxStreams      = 100
	copyBuffer      = 16 << 10
	requestBytes    = 40 << 10 // of a request whose response is not read: buffers, stacks
	maxHeld         = 8 << 20  // bytes of a sandbox's requests, with their headers
	fieldBytes      = 128      // that a field of a header takes beside its text
	reasonOtherHost = "other host in the request"
	reasonMethod    = "method not allowed with a secret"
	reasonUpgrade   = "upgrade not allowed with a secret"
)

// injection has the headers for requests to one host, and the values that must not be in its responses.
type injection struct {
	headers map[string]string // by canonical name
	forms   forms
}

// injections returns the injections of the secrets of p by their hosts.
func (p *Policy) injections() map[Host]*injection {
	all := map[Host]*injection{}
	for i := range p.Secrets {
		s := &p.Secrets[i]
		text, found := s.render()
		for _, host := range s.Hosts {
			if all[host] == nil {
				all[host] = &injection{headers: map[string]string{}}
			}
			all[host].headers[s.header()] = text
			all[host].forms = append(all[host].forms, found...)
		}
	}
	return all
}

// interception is a connection to a host with a secret. The proxy is the server of the client, by
// the sandbox's CA, and a client of the host, and passes requests and responses on.
type interception struct {
	sandbox   *sandbox
	conn      *connection
	transport *http.Transport
	h2        bool // room for the buffers of one connection at each side was reserved

	requests gate.Gate

	mu        sync.Mutex
	dialed    net.Conn // is used first
	upstreams map[*upstreamConn]bool
}

// intercept carries requests until the connection ends. upstream was dialed for the first of them.
func (b *sandbox) intercept(ctx context.Context, c *connection, client net.Conn, sent io.Reader, upstream net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(idleTime, cancel)
	defer idle.Stop()
	conn := &clientConn{Conn: client, from: sent, idle: idle, closed: make(chan struct{})}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	b.mu.Lock()
	authority, roots := b.conf.authority, cmp.Or(b.conf.Roots, b.server.cfg.Roots)
	b.mu.Unlock()
	if authority == nil {
		return // the secrets are gone, and their CA
	}
	i := &interception{sandbox: b, conn: c, dialed: upstream, upstreams: map[*upstreamConn]bool{}}
	config := authority.tls
	if i.h2 = b.buffer(clientBuffer + upstreamBuffer); i.h2 {
		defer b.buffer(-clientBuffer - upstreamBuffer)
	} else {
		config = config.Clone()
		config.NextProtos = []string{"http/1.1"}
	}
	session := tls.Server(conn, config)
	if err := handshake(ctx, session); err != nil {
		if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
			b.deny(ctx, c, reasonHello)
		}
		return
	}
	i.transport = &http.Transport{
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return i.dial(ctx) },
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: dialTime,
		ForceAttemptHTTP2: i.h2, DisableCompression: true, MaxResponseHeaderBytes: maxResponse,
		MaxConnsPerHost: maxUpstreams, IdleConnTimeout: upstreamIdle,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: upstreamBuffer, MaxReceiveBufferPerConnection: upstreamBuffer},
	}
	defer i.close()
	server := httpserver.NewServer(ctx, i, maxRequest, slog.New(slog.DiscardHandler)) // net/http would log what clients send
	server.IdleTimeout = idleTime
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: clientBuffer, MaxReceiveBufferPerConnection: clientBuffer}
	listener := net.Listener(&sessionListener{session: session, conn: conn})
	if session.ConnectionState().NegotiatedProtocol != "h2" {
		listener = httpserver.LimitListener(listener, 1) // bounds the lines of a header, as HTTP/2 does
	}
	_ = server.Serve(listener) // until conn is closed
}

func handshake(ctx context.Context, session *tls.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	return session.HandshakeContext(ctx)
}

// close ends all connections to the host, and waits for the requests.
func (i *interception) close() {
	i.requests.Close()
	i.mu.Lock()
	for conn := range i.upstreams {
		_ = conn.Conn.Close()
	}
	i.mu.Unlock()
	i.transport.CloseIdleConnections()
	i.requests.Wait()
}

// dial returns the connection that was dialed before, or connects anew to its address, which was
// looked up for this connection alone.
func (i *interception) dial(ctx context.Context) (net.Conn, error) {
	b, c := i.sandbox, i.conn
	i.mu.Lock()
	conn := i.dialed
	i.dialed = nil
	i.mu.Unlock()
	if conn != nil && !waits(conn) {
		_ = conn.Close()
		conn = nil
	}
	if conn == nil {
		b.mu.Lock()
		addr := c.addr
		b.mu.Unlock()
		var err error
		if conn, _, err = b.dial(ctx, c, []netip.Addr{addr}); err != nil {
			return nil, err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.requests.Begin() { // with mu held: close ends the connections that are known by then
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	defer i.requests.Done()
	further := i.h2 && len(i.upstreams) > 0
	if further && !b.buffer(upstreamBuffer) {
		_ = conn.Close()
		return nil, errHeld
	}
	counted := &upstreamConn{Conn: conn, owner: i, further: further, count: func(sent bool, n int) error {
		err := b.denying(ctx, c, b.count(sent, n))
		if err != nil {
			c.end(err)
		}
		return err
	}}
	i.upstreams[counted] = true
	return counted, nil
}

// waits reports whether a host waits for the TLS hello. Hosts close a connection whose client has no
// request for long.
func waits(conn net.Conn) bool {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	_, err := files.ReadNow(socket, make([]byte, 1))
	return errors.Is(err, syscall.EAGAIN)
}

// ServeHTTP passes a request on.
func (i *interception) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !i.requests.Begin() {
		panic(http.ErrAbortHandler)
	}
	defer i.requests.Done()
	httpserver.SetStall(r, idleTime) // a client that reads late holds up its own connection
	b, ctx := i.sandbox, r.Context()
	asked := &connection{host: i.conn.host, port: i.conn.port, number: i.conn.number} // each denial is recorded
	held := requestMemory(r)
	if !b.hold(held) {
		clear(r.Header) // the client may not read the answer
		*r.URL, r.RequestURI = url.URL{}, ""
		b.refuse(ctx, w, asked, errHeld)
		return
	}
	defer b.hold(-held)
	if err := i.check(r, asked); err != nil {
		b.refuse(ctx, w, asked, err)
		return
	}
	b.mu.Lock()
	inject := b.conf.injections[i.conn.host]
	b.mu.Unlock()
	if inject == nil {
		inject = &injection{} // the secret is gone, and a rule admits the host
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { inject.rewrite(p, i.conn.host) }, Transport: &scrubbing{i.transport, inject.forms},
		ModifyResponse: inject.scrub, BufferPool: bufferPool{},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { b.refuse(ctx, w, asked, i.failed(ctx, err)) },
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // it would have headers
	}
	proxy.ServeHTTP(w, r)
}

// requestMemory estimates the memory of a request, whose headers and one portion of whose response
// the proxy keeps. That of bodies is bounded by their connections.
func requestMemory(r *http.Request) int64 {
	n := int64(requestBytes + fieldBytes + 2*len(r.RequestURI))
	for name, values := range r.Header {
		for _, value := range values {
			n += int64(fieldBytes + len(name) + len(value))
		}
	}
	return n
}

// hold counts bytes of requests, which a client may have the proxy keep for as long as the host does
// not answer, or it does not read the answer. It returns false, and counts nothing, where there would
// be too many. Negative ones always can be.
func (b *sandbox) hold(n int64) bool { return b.reserve(n, &b.held, &b.server.held, maxHeld) }

// buffer does the same for the buffers of HTTP/2 connections, which are full where the client or the
// host sends bodies that the other does not read.
func (b *sandbox) buffer(n int64) bool {
	return b.reserve(n, &b.buffered, &b.server.buffered, maxBuffered)
}

func (b *sandbox) reserve(n int64, one, all *atomic.Int64, mostOne int64) bool {
	return reserve(n, one, all, mostOne, int64(b.server.cfg.MaxOpen)*sharedBytes)
}

// reserve adds n to the counts of one sandbox and of all, unless that exceeds a limit or is not fair.
func reserve(n int64, one, all *atomic.Int64, mostOne, mostAll int64) bool {
	if o, a := one.Add(n), all.Add(n); n < 0 || o <= mostOne && fair(o, a, mostAll) {
		return true
	}
	one.Add(-n)
	all.Add(-n)
	return false
}

// check returns the reason for which a request is refused. The host of a denial is the one that the
// request names.
func (i *interception) check(r *http.Request, asked *connection) error {
	target := r.Host
	if !strings.Contains(target, ":") {
		target += ":443"
	}
	host, port, err := ParseTarget(target)
	if err == nil {
		asked.host, asked.port = host, port
	}
	switch {
	case err != nil, host != i.conn.host, port != i.conn.port, r.URL.Opaque != "":
		return &denialError{reasonOtherHost}
	case strings.EqualFold(r.Method, http.MethodTrace), strings.EqualFold(r.Method, "TRACK"), strings.EqualFold(r.Method, http.MethodConnect):
		return &denialError{reasonMethod}
	}
	for _, upgrade := range r.Header.Values("Upgrade") {
		if !strings.EqualFold(upgrade, "websocket") {
			return &denialError{reasonUpgrade}
		}
	}
	return nil
}

// failed returns an error of the transport in words for the client.
func (i *interception) failed(ctx context.Context, err error) error {
	if denial, ok := errors.AsType[*denialError](err); ok {
		return denial
	}
	if failed, ok := errors.AsType[*connectError](err); ok {
		return failed
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &connectError{http.StatusBadGateway, "cannot reach " + i.conn.host.Join(i.conn.port) + ": its certificate is not valid"}
	}
	return i.conn.unreachable(ctx, err)
}

// KeepRequest restores the parts of a forwarded request that httputil removes: headers that a client
// may have meant for the host, and parts of a query that it does not understand. It removes a user
// from the URL.
func KeepRequest(p *httputil.ProxyRequest) {
	p.Out.URL.RawQuery, p.Out.URL.User = p.In.URL.RawQuery, nil
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = values
		}
	}
}

// rewrite leaves a request as it is, but for the headers of secrets.
func (in *injection) rewrite(p *httputil.ProxyRequest, host Host) {
	KeepRequest(p)
	out := p.Out
	out.URL.Scheme, out.URL.Host, out.Host = "https", host.String(), host.String()
	out.Header.Set("Accept-Encoding", "identity")
	for name, value := range in.headers {
		out.Header.Set(name, value)
	}
}

// scrub removes the values from a response, and the proxy's own words, which a host cannot say.
func (in *injection) scrub(res *http.Response) error {
	res.Header.Del(HeaderDenied)
	in.forms.scrub(res.Header)
	if res.StatusCode != http.StatusSwitchingProtocols {
		scrubBody(res, in.forms)
	}
	return nil
}

// scrubbing is a transport whose informational responses, which httputil passes on by itself, have no
// values.
type scrubbing struct {
	http.RoundTripper

	forms forms
}

// RoundTrip implements [http.RoundTripper].
func (s *scrubbing) RoundTrip(r *http.Request) (*http.Response, error) {
	// Of two traces, the later one is called first.
	return s.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			delete(header, HeaderDenied)
			s.forms.scrub(header)
			return nil
		},
	})))
}

var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// bufferPool implements [httputil.BufferPool].
type bufferPool struct{}

// Get returns a buffer.
func (bufferPool) Get() []byte { return copyBuffers.Get().(*[copyBuffer]byte)[:] } //nolint:forcetypeassert // the pool has no others

// Put takes a buffer of Get.
func (bufferPool) Put(buf []byte) { copyBuffers.Put((*[copyBuffer]byte)(buf)) }

// clientConn is the connection of a client, which reads the checked TLS hello first.
type clientConn struct {
	net.Conn

	from   io.Reader
	idle   *time.Timer
	once   sync.Once
	closed chan struct{}
}

func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.idle.Reset(idleTime)
	return n, err
}

func (c *clientConn) Write(p []byte) (int, error) {
	c.idle.Reset(idleTime)
	return c.Conn.Write(p)
}

// Close ends the server of the connection as well.
func (c *clientConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// sessionListener has one connection.
type sessionListener struct {
	session *tls.Conn
	conn    *clientConn
	given   bool
}

// Accept returns the session, and at the next call waits for its end.
func (l *sessionListener) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return l.session, nil
	}
	<-l.conn.closed
	return nil, net.ErrClosed
}

// Close does nothing: the session is closed by its server.
func (l *sessionListener) Close() error { return nil }

// Addr implements [net.Listener].
func (l *sessionListener) Addr() net.Addr { return l.conn.LocalAddr() }

// upstreamConn is a connection to the host, whose bytes are counted before they pass.
type upstreamConn struct {
	net.Conn

	owner   *interception
	further bool // room for its buffer was reserved; see h2
	count   func(sent bool, n int) error
}

func (c *upstreamConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		if err := c.count(false, n); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (c *upstreamConn) Write(p []byte) (int, error) {
	if err := c.count(true, len(p)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close forgets the connection.
func (c *upstreamConn) Close() error {
	c.owner.mu.Lock()
	if c.further && c.owner.upstreams[c] {
		c.owner.sandbox.buffer(-upstreamBuffer)
	}
	delete(c.owner.upstreams, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
