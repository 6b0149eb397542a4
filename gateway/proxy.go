package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/sandbox"
)

// proxyPrefix is before the id in the path of a request that is for a sandbox.
const proxyPrefix = "/sandboxes/"

// upgradeStall is how long the client of a WebSocket to a port may read nothing. The
// server in the sandbox ends an idle tunnel as early.
const upgradeStall = time.Hour

// tunnelPath matches the tunnels to ports among the paths of a sandbox.
const tunnelPath = "v1/ports/*/tunnel"

// trustToPort trusts a request to a port that showed a right key or signature. The client
// of a WebSocket may read late: it holds up that port alone.
func trustToPort(r *http.Request) {
	httpserver.Trust(r)
	if r.Header.Get("Upgrade") != "" {
		httpserver.SetStall(r, upgradeStall)
	}
}

// pass hands a request on to the server of a sandbox. The id or name decides alone
// where it goes; what comes after it is the sandbox's to understand, and the
// sandbox gets its own key whatever keys were sent.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request) error {
	id, rest, slash := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), proxyPrefix), "/")
	if port, ok := strings.CutPrefix(rest, portsPath); ok {
		return g.previewPath(w, r, id, port)
	}
	operator, sessions := g.keys(r)
	to, err := g.admitTo(r, id, operator, sessions)
	if plain, _ := url.PathUnescape(rest); err == nil && "/"+strings.Trim(plain, "/") == api.UpgradePath && !operator {
		err = refuse(http.StatusForbidden, "The key of a session does not upgrade its server: send the gateway's")
	}
	if err != nil {
		w.Header().Set("Connection", "close") // most are unauthenticated
		return err
	}
	if tunnel, _ := path.Match(tunnelPath, rest); tunnel {
		trustToPort(r)
	} else {
		httpserver.Trust(r)
	}
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return refuse(http.StatusMethodNotAllowed, "Method Not Allowed")
	case !slash:
		return refuse(http.StatusNotFound, "The paths of a sandbox begin with %s%s/", proxyPrefix, id)
	case leadsUp(rest):
		return refuse(http.StatusBadRequest, "The path must not have . or .. between its slashes")
	}
	if err := g.resumeFor(r.Context(), to.current(), rest); err != nil {
		return err
	}
	return g.forward(w, r, g.proxy, &destination{to: to, path: "/" + rest, prefix: g.below + id})
}

// forward sends a request to a sandbox that takes requests.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, proxy *httputil.ReverseProxy, d *destination) error {
	if err := takesRequests(d.to.current()); err != nil {
		return err
	}
	ctx := context.WithValue(r.Context(), destinationKey{}, d)
	_ = http.NewResponseController(w).EnableFullDuplex() // an answer may begin before the body ends; tests have no connection
	g.metrics.passing.Inc()
	defer g.metrics.passing.Dec()
	proxy.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// admitTo gives the sandbox of an id or a name to a request that has a key for it: the
// gateway's, or one of the sessions. Another client does not learn whether there is
// such a sandbox.
func (g *Gateway) admitTo(r *http.Request, id string, operator bool, sessions []string) (*entry, error) {
	if !operator && len(sessions) != 1 {
		return nil, errForbidden
	}
	if !sandbox.IsName(id) {
		if operator {
			return nil, errNoSandbox(id)
		}
		return nil, errForbidden
	}
	to, err := g.known.find(r.Context(), id, operator)
	if !operator && (errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrAmbiguous)) {
		return nil, errForbidden
	}
	if err != nil {
		return nil, err
	}
	// A key of another sandbox is wrong even beside the gateway's: who sends it
	// means that other sandbox.
	switch len(sessions) {
	case 0:
		return to, nil
	case 1:
		right, err := to.keeps(sessions[0])
		if errors.Is(err, fs.ErrNotExist) { // another caller removed it
			g.known.changed(to.current().ID)
			err = nil
		}
		if err != nil || right {
			return to, err
		}
	}
	return nil, errForbidden
}

// leadsUp tells whether a path that is still encoded has segments that a proxy or
// client could take for "." or "..".
func leadsUp(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "." || plain == ".." {
			return true
		}
	}
	return false
}

// takesRequests says why a sandbox cannot be spoken to, as far as is known.
func takesRequests(s *sandbox.Sandbox) error {
	switch s.State {
	case sandbox.Ready, sandbox.Busy, sandbox.Idle, sandbox.Unknown: // the last may be reached
		return nil
	case sandbox.Paused:
		return unavailable("Sandbox %s is paused; resume it", s.ID)
	case sandbox.Stopped:
		return unavailable("Sandbox %s is stopped; start it", s.ID)
	case sandbox.Gone:
		return errNoSandbox(s.ID)
	}
	return unavailable("Sandbox %s is %s", s.ID, s.State)
}

// destinationKey is the key of a destination in a context.
type destinationKey struct{}

// destination is the server in a sandbox, or one of the sandbox's ports.
type destination struct {
	to     *entry
	path   string // encoded, begins with a slash
	prefix string // before it in what the client sees

	// Of a preview.
	port   uint16
	onHost bool // the host form
	keyed  bool // it came with a key, which clients send wherever a redirect leads
	public bool // it came with nothing that admits it but the port's being public
	scheme string
	host   string // that the client names
}

func destinationOf(ctx context.Context) *destination {
	d, _ := ctx.Value(destinationKey{}).(*destination)
	return d
}

// newProxy returns a proxy without its hooks. failed returns the error to answer with where
// a destination did not answer.
func (g *Gateway) newProxy(failed func(r *http.Request, err error) error) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { g.fail(w, r, failed(r, err)) },
		ErrorLog:     slog.NewLogLogger(g.log.Handler(), slog.LevelDebug), // most are clients that left
		BufferPool:   &buffers{sync.Pool{New: func() any { return new([copySize]byte) }}},
	}
}

func (g *Gateway) newServerProxy() *httputil.ReverseProxy {
	p := g.newProxy(g.notPassed)
	p.Rewrite, p.Transport, p.ModifyResponse = rewrite, toSandbox{}, stripResponseHeaders
	return p
}

// rewrite makes the request that the sandbox gets. ReverseProxy has removed the
// hop-by-hop headers. Credentials for a proxy in front of the gateway are not passed on.
func rewrite(p *httputil.ProxyRequest) {
	d := destinationOf(p.In.Context())
	out := p.Out
	path, _ := url.PathUnescape(d.path) // leadsUp looked
	out.URL = &url.URL{Scheme: "http", Host: "sandbox", Path: path, RawPath: d.path, RawQuery: p.In.URL.RawQuery}
	out.Host = p.In.Host // with it the sandbox tells its own pages from others
	for _, name := range []string{api.GatewayKeyHeader, api.KeyHeader, "Authorization", "Cookie"} {
		out.Header.Del(name)
	}
	out.Header.Set(api.PrefixHeader, d.prefix)
	if key, err := d.to.sessionKey(); err == nil {
		out.Header.Set(api.KeyHeader, key)
		out.Header.Set("Authorization", "Bearer "+key) // MCP's second look
	}
}

// stripResponseHeaders takes from an answer what would count for the whole host and not for
// the sandbox, and refuses a redirect: most clients send their keys, which
// are in headers of ours, wherever it leads. The server in a sandbox sends none.
func stripResponseHeaders(r *http.Response) error {
	stripHostHeaders(r)
	r.Header.Del("Set-Cookie")
	r.Header.Del("Service-Worker-Allowed")
	if r.StatusCode/100 == 3 && r.StatusCode != http.StatusNotModified {
		return fmt.Errorf("it answered with a redirect (%d), which is not passed on", r.StatusCode)
	}
	return nil
}

// stripHostHeaders takes from an answer what no sandbox may say to a client, and all
// trailers: a client may take them for headers.
func stripHostHeaders(r *http.Response) {
	for _, name := range []string{"Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To", "Set-Cookie2", api.KeyHeader} {
		r.Header.Del(name)
	}
	if r.StatusCode != http.StatusSwitchingProtocols { // whose body is a connection
		r.Trailer = nil // which announces them
		r.Body = &withoutTrailers{r.Body, r}
	}
}

// withoutTrailers is the body of an answer whose trailers are not passed on.
type withoutTrailers struct {
	io.ReadCloser
	of *http.Response
}

// Close drops the trailers, which have come by now.
func (b *withoutTrailers) Close() error {
	err := b.ReadCloser.Close()
	b.of.Trailer = nil
	return err
}

// toSandbox sends a request over the connections of its destination. It sends
// nothing twice that the sandbox could have begun, and follows no redirect.
type toSandbox struct{}

// RoundTrip implements http.RoundTripper.
func (toSandbox) RoundTrip(r *http.Request) (*http.Response, error) {
	d := destinationOf(r.Context())
	return d.to.transport.RoundTrip(withoutHooks(r)) //nolint:contextcheck // its context ends with the other
}

// withoutHooks returns a request without the values of its context. The proxy's hook for
// answers of the class 1xx is one of them, and where there is a hook the transport does
// not limit how many a sandbox sends; without it a handful is an error.
func withoutHooks(r *http.Request) *http.Request {
	return r.WithContext(sandbox.WithoutValues(r.Context()))
}

// notPassed is the refusal of a request that a sandbox did not answer; one that is
// identified runs once, however often it is sent. 503 makes
// clients send it again, so that is only for what was not sent at all.
func (g *Gateway) notPassed(r *http.Request, err error) error {
	ctx := r.Context()
	s := destinationOf(ctx).to.current()
	if errors.Is(context.Cause(ctx), errStopping) {
		status := http.StatusInternalServerError
		if r.Header.Get(api.IdentityHeader) != "" {
			status = http.StatusBadGateway // on which a client asks again, through another gateway
		}
		return refuse(status, "The gateway is shutting down and did not wait for the outcome, which is unknown")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, unsent := errors.AsType[*dialError](err); unsent {
		g.known.changed(s.ID)
		now, findErr := g.known.find(ctx, s.ID, true)
		if findErr != nil {
			return findErr
		}
		if stateErr := takesRequests(now.current()); stateErr != nil {
			return stateErr
		}
		return refuse(http.StatusBadGateway, "Sandbox %s cannot be reached, nothing was sent: %v", s.ID, err)
	}
	return refuse(http.StatusBadGateway, "Sandbox %s did not answer as it should, the outcome is unknown: %.256v", s.ID, err)
}

// copySize is that of httputil, whose buffers are made anew for each answer.
const copySize = 32 << 10

// buffers lends the memory that answers are copied through.
type buffers struct{ pool sync.Pool }

// Get lends a buffer.
func (b *buffers) Get() []byte { return b.pool.Get().(*[copySize]byte)[:] } //nolint:forcetypeassert // the pool has nothing else

// Put takes it back.
func (b *buffers) Put(p []byte) { b.pool.Put((*[copySize]byte)(p)) }
