package egress

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
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/relay"
)

// Headers between a sandbox and its proxy.
const (
	// HeaderConnection is the number by which the sandbox knows a connection.
	HeaderConnection = "Actiond-Connection"
	// HeaderDenied has the reason of a denial. No other refusal has it.
	HeaderDenied = "Actiond-Denied"
)

// denialError says that the policy refuses a connection.
type denialError struct{ reason string }

func (e *denialError) Error() string { return e.reason }

// connectError is an allowed connection that could not be made.
type connectError struct {
	status int
	text   string
}

func (e *connectError) Error() string { return e.text }

var (
	errNotReady = &connectError{http.StatusServiceUnavailable, "the proxy is not ready yet"}
	errTooMany  = &connectError{http.StatusServiceUnavailable, "this sandbox has too many connections"}
	errFull     = &connectError{http.StatusServiceUnavailable, "the sandboxes of this host have too many connections together"}
	errTooFast  = &connectError{http.StatusServiceUnavailable, "connections are opened too fast"}
	errHeld     = &connectError{http.StatusServiceUnavailable, "too many requests wait for hosts with secrets"}
	errGone     = &connectError{http.StatusServiceUnavailable, "the sandbox was disconnected"}
)

// connect answers a CONNECT request, and carries the bytes of the connection.
func (b *sandbox) connect(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	metrics := b.server.metrics
	// net/http would take a part of the target for a user's name, so it is read as it was sent.
	host, port, err := ParseTarget(r.RequestURI)
	if err != nil {
		metrics.Failed(http.StatusBadRequest)
		w.Header().Set("Connection", "close")
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	c := &connection{host: host, port: port, end: end, done: make(chan struct{})}
	c.number, _ = strconv.ParseInt(r.Header.Get(HeaderConnection), 10, 64) // 0: it has none
	defer close(c.done)

	var upstream net.Conn
	if err = b.admit(c); err == nil {
		httpserver.Trust(r) // or further connections would end this one while it waits for its host
		upstream, err = b.open(ctx, c)
	}
	if upstream != nil {
		defer func() { _ = upstream.Close() }()
	}
	defer b.left(c)
	if err != nil {
		httpserver.Distrust(r)
		b.refuse(ctx, w, c, err)
		return
	}
	httpserver.SetStall(r, idleTime) // a sandbox that reads late holds up its own connection
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the sandbox has gone
	}
	defer func() { _ = client.Close() }()
	defer context.AfterFunc(ctx, func() { _ = client.Close() })() // the sandbox may read nothing
	answer := "HTTP/1.1 200 OK\r\n\r\n"
	if c.intercepted {
		answer = "HTTP/1.1 200 OK\r\n" + HeaderIntercepted + ": unix\r\n\r\n"
	}
	if _, err := io.WriteString(client, answer); err != nil {
		return
	}
	metrics.Connected(time.Since(begun))
	sent := b.helloOf(ctx, c, client, buffered.Reader)
	if c.intercepted {
		b.intercept(ctx, c, client, sent, upstream)
		return
	}
	tunnel := relay.Relay{A: client, B: upstream, FromA: sent, Idle: idleTime, Count: func(fromA bool, n int) error {
		return b.denying(ctx, c, b.count(fromA, n))
	}}
	_ = tunnel.Run(ctx) // denials were recorded
}

// open connects to the admitted destination of c. The policy may change at any moment: it is asked once more when
// the connection is there.
func (b *sandbox) open(ctx context.Context, c *connection) (net.Conn, error) {
	addrs, err := b.addresses(ctx, c)
	if err != nil {
		return nil, err
	}
	conn, addr, err := b.dial(ctx, c, addrs)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.addr = addr
	return conn, b.check(c)
}

// admit counts a connection that the policy admits by its name.
func (b *sandbox) admit(c *connection) error {
	s := b.server
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.own.Load() == nil:
		return errNotReady
	case !b.limit.Allow():
		return errTooFast
	}
	if err := b.check(c); err != nil {
		return err
	}
	c.intercepted = c.port == secretPort && b.conf.injections[c.host] != nil
	if len(b.conns) >= maxOpenSandbox || c.intercepted && b.intercepted() >= maxIntercepted {
		return errTooMany
	}
	if !fair(int64(len(b.conns)+1), s.open.Add(1), int64(s.cfg.MaxOpen)) {
		s.open.Add(-1)
		return errFull
	}
	b.conns[c] = true
	return nil
}

// fair reports whether a sandbox may have one, where all sandboxes then have all and may have most: as much as
// is left, or a sixteenth of most. A few sandboxes that take all they can leave a share to the others.
func fair(one, all, most int64) bool { return all <= most && one <= max(most-all, most/16) }

// intercepted counts the connections whose TLS is opened. b.mu is held.
func (b *sandbox) intercepted() (n int) {
	for c := range b.conns {
		if c.intercepted {
			n++
		}
	}
	return n
}

func (b *sandbox) left(c *connection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns[c] {
		delete(b.conns, c)
		b.server.open.Add(-1)
	}
}

// addresses returns those that may be dialed, IPv4 first, which more networks have.
func (b *sandbox) addresses(ctx context.Context, c *connection) ([]netip.Addr, error) {
	all := []netip.Addr{c.host.addr}
	if !c.host.addr.IsValid() {
		var err error
		ctx, cancel := context.WithTimeout(ctx, resolveTime)
		defer cancel()
		if all, err = b.server.cfg.Resolve(ctx, c.host.name); err != nil {
			return nil, c.unreachable(ctx, err)
		}
	}
	var refused error
	var usable []netip.Addr
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, addr := range all {
		if err := b.checkAddress(addr, c.port); err != nil {
			refused = cmp.Or(refused, err)
			continue
		}
		usable = append(usable, addr.Unmap())
	}
	slices.SortStableFunc(usable, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	if len(usable) == 0 {
		return nil, cmp.Or(refused, c.unreachable(ctx, &net.DNSError{IsNotFound: true}))
	}
	return usable[:min(len(usable), maxAddresses)], nil
}

// dial connects to the first of the addresses that answers. Each has an equal part of the time.
func (b *sandbox) dial(ctx context.Context, c *connection, addrs []netip.Addr) (conn net.Conn, addr netip.Addr, err error) {
	dialer := &net.Dialer{Timeout: dialTime / time.Duration(len(addrs)), ControlContext: b.control}
	for _, addr = range addrs {
		if conn, err = b.server.cfg.Dial(ctx, dialer, netip.AddrPortFrom(addr, c.port)); err == nil {
			return conn, addr, nil
		}
		if denial, ok := errors.AsType[*denialError](err); ok {
			return nil, addr, denial
		}
	}
	return nil, addr, c.unreachable(ctx, err)
}

// control checks the address that the kernel is about to connect to.
func (b *sandbox) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checkAddress(to.Addr(), to.Port())
}

// unreachable returns an error in words for the sandbox, without addresses of the proxy's network.
// A policy that changed meanwhile is the cause of ctx.
func (c *connection) unreachable(ctx context.Context, err error) error {
	if denial, ok := errors.AsType[*denialError](context.Cause(ctx)); ok {
		return denial
	}
	status, text := http.StatusBadGateway, "the connection failed"
	timeout, _ := errors.AsType[net.Error](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	number, isNumber := errors.AsType[syscall.Errno](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), timeout != nil && timeout.Timeout():
		status, text = http.StatusGatewayTimeout, "it did not answer in time"
	case isDNS && dns.IsNotFound:
		text = "no such host"
	case isDNS:
		text = "the name servers failed"
	case isNumber:
		text = number.Error()
	}
	return &connectError{status, fmt.Sprintf("cannot reach %s: %s", c.host.Join(c.port), text)}
}

// helloOf returns a reader of the client's bytes, which checks a TLS hello on the way.
func (b *sandbox) helloOf(ctx context.Context, c *connection, client net.Conn, buffered *bufio.Reader) io.Reader {
	sent := io.Reader(client)
	if n := buffered.Buffered(); n > 0 {
		early, _ := buffered.Peek(n) // what is buffered can be read
		sent = io.MultiReader(strings.NewReader(string(early)), client)
	}
	return &helloReader{Reader: sent, deadline: client.SetReadDeadline, check: func(name string, readable bool) error {
		err := b.denying(ctx, c, b.hello(c, name, readable))
		if err != nil {
			_, _ = client.Write(AccessDenied) // it is told before the end
		}
		return err
	}}
}

// hello checks the server name of a TLS hello, which may be "".
func (b *sandbox) hello(c *connection, name string, readable bool) error {
	if !readable {
		return &denialError{reasonHello}
	}
	if name == "" && !c.intercepted {
		return nil
	}
	host, err := ParseHost(name)
	if err != nil {
		return &denialError{reasonServerName}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.name = host
	return b.checkName(c)
}

// denying records err if that is a denial, and returns it. A denial is recorded before its
// connection ends, after which the sandbox asks for it.
func (b *sandbox) denying(ctx context.Context, c *connection, err error) error {
	if denial, ok := errors.AsType[*denialError](err); ok {
		b.deny(ctx, c, denial.reason)
	}
	return err
}

// deny records a denial, the first one of a connection.
func (b *sandbox) deny(ctx context.Context, c *connection, reason string) {
	if c.denied.Swap(true) {
		return
	}
	b.server.metrics.Denied(reason)
	b.denials.add(Denial{Time: time.Now(), Host: c.host.String(), Port: c.port, Reason: reason, Connection: c.number})
	if b.log.Allow() {
		b.server.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "connection denied", slog.String("sandbox", b.id),
			slog.String("host", c.host.String()), slog.Int("port", int(c.port)), slog.String("reason", reason))
	}
}

// refuse answers a CONNECT request that opens no connection.
func (b *sandbox) refuse(ctx context.Context, w http.ResponseWriter, c *connection, err error) {
	w.Header().Set("Connection", "close")
	if denial, ok := errors.AsType[*denialError](err); ok {
		b.deny(ctx, c, denial.reason)
		w.Header().Set(HeaderDenied, denial.reason)
		http.Error(w, DeniedText(c.host.String(), c.port, denial.reason), http.StatusForbidden)
		return
	}
	failed, ok := errors.AsType[*connectError](err)
	if !ok {
		failed = &connectError{http.StatusBadGateway, "the connection failed"}
	}
	if failed.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	b.server.metrics.Failed(failed.status)
	http.Error(w, failed.text, failed.status)
}

// DeniedText is the text of a denial for the agent. It does not say how a policy is widened, which
// the agent cannot do.
func DeniedText(host string, port uint16, reason string) string {
	return fmt.Sprintf("Blocked by this sandbox's network policy: %s (%s). This is a rule, not a fault of the network: "+
		"retrying, other tools or addresses will not help. Go on without it, or say that access to %s is needed.",
		net.JoinHostPort(host, strconv.Itoa(int(port))), reason, host)
}
