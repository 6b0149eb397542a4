package front

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/relay"
)

// ServeHTTP answers a request of a program.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.running.Begin() {
		panic(http.ErrAbortHandler)
	}
	defer f.running.Done()
	switch c := clientOf(r.Context()); {
	case c.refused != nil:
		f.refuse(w, c.refused)
	case r.Method == http.MethodConnect:
		f.connect(w, r)
	case r.URL.Host != "" && r.URL.Scheme == "http":
		f.forward(w, r)
	case r.URL.Host != "":
		f.refuse(w, &refusal{status: http.StatusBadRequest, text: "Use CONNECT for anything but http\n"})
	case r.Method == http.MethodGet && r.URL.Path == "/":
		f.showPolicy(w, r)
	default:
		f.refuse(w, &refusal{status: http.StatusNotFound, text: "This is the proxy of the sandbox. GET / answers with its network policy\n"})
	}
}

// refuse passes a refusal on.
func (f *Front) refuse(w http.ResponseWriter, r *refusal) {
	h := w.Header()
	h.Set("Connection", "close")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.denied != "" {
		h.Set(egress.HeaderDenied, r.denied)
	}
	if r.retryAfter != "" {
		h.Set("Retry-After", r.retryAfter)
	}
	w.WriteHeader(r.status)
	_, _ = io.WriteString(w, r.text) //nolint:gosec // plain text of the egress proxy; an error says that the client has gone
}

// open connects a client to a host. The error is a *refusal.
func (f *Front) open(ctx context.Context, c *client, host egress.Host, port uint16) (*tunnel, error) {
	if addrs := f.localAddrs(host, port); len(addrs) > 0 {
		return f.openLocal(ctx, addrs, host, port)
	}
	begun := time.Now()
	t, err := f.egress.connect(ctx, host.Join(port))
	if err == nil {
		f.metrics.Connected(time.Since(begun))
		if t.opened {
			f.noteOpened(c, t)
		}
		return t, nil
	}
	if refused := refusalOf(err); refused.denied != "" {
		f.deny(c, host.String(), port, refused.denied)
	} else {
		f.metrics.Failed(refused.status)
	}
	return nil, err
}

// connect answers a CONNECT request, and carries the bytes of the connection.
func (f *Front) connect(w http.ResponseWriter, r *http.Request) {
	// net/http would take a part of the target for a user's name, so it is read as it was sent.
	host, port, err := egress.ParseTarget(r.RequestURI)
	if err != nil {
		f.badRequest(w, err)
		return
	}
	c := clientOf(r.Context())
	// The request's context ends when the client has sent all.
	t, err := f.open(f.life, c, host, port) //nolint:contextcheck // see above
	if err != nil {
		f.refuse(w, refusalOf(err))
		return
	}
	defer func() { _ = t.Close() }()
	conn, early, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client has gone
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Time{}) // that of the header
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	f.carry(c, buffered(early.Reader, c), t, host, port)
}

func (f *Front) badRequest(w http.ResponseWriter, err error) {
	f.metrics.Failed(http.StatusBadRequest)
	f.refuse(w, &refusal{status: http.StatusBadRequest, text: err.Error() + "\n"})
}

// carry carries bytes until the connection ends. The policy may be the reason of an end that comes
// from the far side, also after the client has sent all, and the client, whose process is to be found,
// learns of the end afterwards.
func (f *Front) carry(c *client, early io.Reader, t *tunnel, host egress.Host, port uint16) {
	var broken atomic.Bool
	t.ended = func() {
		switch {
		case broken.Load() || t.local || f.life.Err() != nil:
			return
		case t.opened:
			f.collect()
			return
		}
		if reason := f.egress.denied(f.life, t.number); reason != "" {
			f.deny(c, host.String(), port, reason)
		}
	}
	r := relay.Relay{A: c, B: t, Idle: idleTime, Count: func(fromA bool, n int) error {
		if !t.local {
			f.metrics.Carried(fromA, n)
		}
		return nil
	}}
	r.FromA = &breaking{Reader: early, broken: func() { broken.Store(true) }}
	_ = r.Run(f.life) // the reason of an end is the egress proxy's to know
}

// breaking calls broken at the first error that is not the end of the data.
type breaking struct {
	io.Reader

	broken func()
}

func (e *breaking) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err != nil && err != io.EOF {
		e.broken()
	}
	return n, err
}

// forward passes a plain request on.
func (f *Front) forward(w http.ResponseWriter, r *http.Request) {
	host, port, err := targetOf(r)
	if err != nil {
		f.badRequest(w, err)
		return
	}
	r.URL.Host = host.Join(port)
	e := &exchange{client: clientOf(r.Context())}
	defer func() {
		if e.conn != nil { // which another request may use already
			e.conn.exchange.CompareAndSwap(e, nil)
		}
	}()
	ctx := httptrace.WithClientTrace(context.WithValue(r.Context(), exchangeKey{}, e), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { // called by the handler's goroutine
			if conn, ok := info.Conn.(*counted); ok {
				e.conn = conn
				conn.exchange.Store(e)
			}
		},
	})
	f.forwarder.ServeHTTP(w, r.WithContext(ctx))
}

// exchange is a plain request and its response.
type exchange struct {
	client *client
	conn   *counted                // that it uses; nil: none yet
	denied atomic.Pointer[refusal] // the policy ended its connection; nil: it did not
}

// exchangeKey is the context key of an exchange.
type exchangeKey struct{}

// targetOf returns the host of a request in absolute form.
func targetOf(r *http.Request) (egress.Host, uint16, error) {
	target := r.URL.Host
	if r.URL.Port() == "" && !strings.HasSuffix(target, ":") {
		target += ":80"
	}
	return egress.ParseTarget(target)
}

// rewrite leaves a request as it is.
func rewrite(p *httputil.ProxyRequest) {
	egress.KeepRequest(p)
	p.Out.Host = p.In.Host
}

// stripDenied removes the header of the egress proxy from the response of a host, which can deny nothing.
func stripDenied(res *http.Response) error {
	res.Header.Del(egress.HeaderDenied)
	return nil
}

// dial opens a connection for the transport.
func (f *Front) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := egress.ParseTarget(address)
	if err != nil {
		return nil, err
	}
	if !f.running.Begin() { // the transport's dials outlast their requests
		return nil, net.ErrClosed
	}
	defer f.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.life, cancel)() //nolint:contextcheck // ctx is of the transport
	t, err := f.open(ctx, clientOf(ctx), host, port)
	if err != nil {
		return nil, err
	}
	if t.local {
		return t, nil
	}
	conn := &counted{tunnel: t, metrics: f.metrics}
	t.ended = sync.OnceFunc(func() { f.lost(conn, host, port) })
	conn.ended = t.ended
	return conn, nil
}

// lost records the denial that ended the connection of a plain request, before its client learns of
// the end. A connection without a request is no client's.
func (f *Front) lost(conn *counted, host egress.Host, port uint16) {
	e := conn.exchange.Load()
	switch {
	case e == nil || f.life.Err() != nil:
		return
	case conn.opened: // whose denial is not of this request alone
		f.collect()
		return
	}
	if reason := f.egress.denied(f.life, conn.number); reason != "" {
		e.denied.Store(&refusal{status: http.StatusForbidden, denied: reason, text: egress.DeniedText(host.String(), port, reason) + "\n"})
		f.deny(e.client, host.String(), port, reason)
	}
}

// counted is a tunnel that counts its bytes.
type counted struct {
	*tunnel

	metrics  *egress.Metrics
	exchange atomic.Pointer[exchange] // that uses it, nil for none
	ended    func()                   // as the tunnel's; waits for it
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.tunnel.Read(p)
	c.metrics.Carried(false, n)
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.tunnel.Write(p)
	c.metrics.Carried(true, n)
	return n, err
}

// failed answers a plain request that got no response.
func (f *Front) failed(w http.ResponseWriter, r *http.Request, err error) {
	if e, ok := r.Context().Value(exchangeKey{}).(*exchange); ok && e.conn != nil && r.Context().Err() == nil {
		e.conn.ended() // a failed write is known before the end of the reads
		if denied := e.denied.Load(); denied != nil {
			err = denied
		}
	}
	f.refuse(w, refusalOf(err))
}

// showPolicy answers with the policy, in words.
func (f *Front) showPolicy(w http.ResponseWriter, r *http.Request) {
	policy, err := f.egress.policy(r.Context())
	if err != nil {
		f.refuse(w, refusalOf(err))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, words(policy)) // an error says that the client has gone
}

// words describes a policy for an agent.
func words(p egress.Summary) string {
	var b strings.Builder
	switch p.Mode {
	case egress.ModePublic:
		b.WriteString("This sandbox reaches public hosts, over TCP by this proxy.\n")
	case egress.ModeNoNetwork:
		b.WriteString("This sandbox has no network.\n")
	case egress.ModeAllowlist:
		b.WriteString("This sandbox reaches the allowed hosts alone, over TCP by this proxy.\n")
	}
	fmt.Fprintf(&b, "mode: %s\n", p.Mode)
	for _, r := range p.Allow {
		fmt.Fprintf(&b, "allow: %s\n", r)
	}
	for _, r := range p.Deny {
		fmt.Fprintf(&b, "deny: %s\n", r)
	}
	for _, name := range p.Secrets {
		fmt.Fprintf(&b, "secret: %s\n", name)
	}
	if p.MaxBytes > 0 {
		fmt.Fprintf(&b, "max_bytes: %d\n", p.MaxBytes)
	}
	return b.String()
}
