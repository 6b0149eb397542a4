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

// proxyPrefix is the prefix of the paths of sandboxes; the id follows.
const proxyPrefix = "/sandboxes/"

// upgradeStall is how long the client of a WebSocket to a port may read nothing. The
// server in the sandbox ends an idle tunnel after the same time.
const upgradeStall = time.Hour

// tunnelPath matches the tunnels to ports among the paths of a sandbox.
const tunnelPath = "v1/ports/*/tunnel"

// trustToPort trusts the connection of a request with a valid key or signature for a port.
// The client of a WebSocket may read late: only its own port waits for it.
func trustToPort(r *http.Request) {
	httpserver.Trust(r)
	if r.Header.Get("Upgrade") != "" {
		httpserver.SetStall(r, upgradeStall)
	}
}

// pass sends a request on to the server of a sandbox. Only the id or name selects the
// sandbox; the server interprets the rest of the path. The server always receives its
// own key, whichever keys the client sent.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request) error {
	id, rest, slash := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), proxyPrefix), "/")
	if port, ok := strings.CutPrefix(rest, portsPath); ok {
		return g.previewPath(w, r, id, port)
	}
	operator, sessions, err := g.keys(r)
	var to *entry
	if err == nil {
		to, err = g.admitTo(r, id, operator, sessions)
	}
	plain, _ := url.PathUnescape(rest)
	plain = "/" + strings.Trim(plain, "/")
	if err == nil && plain == "/v1/upgrade" { // by which servers of 0.1 replace their program, with root's rights
		err = refuse(http.StatusNotFound, "Not Found")
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
	d := &destination{to: to, path: "/" + rest, prefix: g.below + id}
	if plain == "/v1/renew" && r.Method == http.MethodPost {
		return g.renewServer(w, r, d, operator)
	}
	return g.forward(w, r, g.proxy, d)
}

// forward sends a request to a sandbox that takes requests.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, proxy *httputil.ReverseProxy, d *destination) error {
	if err := g.takesRequests(r, d.to); err != nil {
		return err
	}
	ctx := context.WithValue(r.Context(), destinationKey{}, d)
	_ = http.NewResponseController(w).EnableFullDuplex() // an answer may begin before the body ends; tests have no connection
	g.metrics.passing.Inc()
	defer g.metrics.passing.Dec()
	proxy.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// admitTo returns the sandbox of an id or a name for a request with a key of it: the
// gateway's, or one of the sessions. Other clients do not learn whether the sandbox
// exists, or existed.
func (g *Gateway) admitTo(r *http.Request, id string, operator bool, sessions []string) (*entry, error) {
	to, err := g.admitToLiving(r, id, operator, sessions)
	if (errors.Is(err, errForbidden) || errors.Is(err, sandbox.ErrNotFound)) && native(r) {
		if ended := g.known.ended(id, operator, sessions); ended != nil {
			return nil, ended
		}
	}
	return to, err
}

func (g *Gateway) admitToLiving(r *http.Request, id string, operator bool, sessions []string) (*entry, error) {
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
	// A key of another sandbox is wrong even beside the gateway's: its sender means that
	// other sandbox.
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

// leadsUp reports whether an encoded path has segments that a proxy or client could take
// for "." or "..".
func leadsUp(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "." || plain == ".." {
			return true
		}
	}
	return false
}

// takesRequests returns nil for a sandbox in a state in which it may answer requests.
func (g *Gateway) takesRequests(r *http.Request, to *entry) error {
	switch s := to.current(); s.State {
	case sandbox.Ready, sandbox.Busy, sandbox.Idle, sandbox.Unknown: // the last may be reached
		return nil
	case sandbox.Paused:
		return unavailable("paused", "Sandbox %s is paused; resume it", s.ID)
	case sandbox.Stopped, sandbox.Gone:
		return g.over(r, to)
	default:
		return unavailable("starting", "Sandbox %s is %s", s.ID, s.State)
	}
}

// destinationKey is the key of a destination in a context.
type destinationKey struct{}

// destination is the server in a sandbox, or one of the sandbox's ports.
type destination struct {
	to     *entry
	path   string // encoded, begins with a slash
	prefix string // of the path that the client sees

	// Of a preview.
	port   uint16
	onHost bool // the host form
	keyed  bool // the request has a key, which clients also send to the target of a redirect
	public bool // the request is admitted only because the port is public
	scheme string
	host   string // in the client's request
}

func destinationOf(ctx context.Context) *destination {
	d, _ := ctx.Value(destinationKey{}).(*destination)
	return d
}

// newProxy returns a proxy without its hooks. failed returns the error for a request that
// the destination did not answer.
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

// rewrite makes the request to the server. ReverseProxy has removed the hop-by-hop
// headers. Credentials for a proxy in front of the gateway are not passed on.
func rewrite(p *httputil.ProxyRequest) {
	d := destinationOf(p.In.Context())
	out := p.Out
	path, _ := url.PathUnescape(d.path) // leadsUp has checked it
	out.URL = &url.URL{Scheme: "http", Host: "sandbox", Path: path, RawPath: d.path, RawQuery: p.In.URL.RawQuery}
	out.Host = p.In.Host // by which the server recognizes its own pages
	for _, name := range []string{api.GatewayKeyHeader, api.KeyHeader, "Authorization", "Cookie"} {
		out.Header.Del(name)
	}
	out.Header.Set(api.PrefixHeader, d.prefix)
	if key, err := d.to.sessionKey(); err == nil {
		out.Header.Set(api.KeyHeader, key)
		out.Header.Set("Authorization", "Bearer "+key) // for the second check of MCP
	}
}

// stripResponseHeaders removes headers that would apply to the whole host, and refuses a
// redirect: most clients send their keys, which are in headers of ours, to its target.
// The server in a sandbox sends no redirect.
func stripResponseHeaders(r *http.Response) error {
	if r.StatusCode == http.StatusForbidden && r.Header.Get(api.UnclaimedHeader) != "" {
		return errUnclaimed
	}
	stripHostHeaders(r)
	r.Header.Del("Set-Cookie")
	r.Header.Del("Service-Worker-Allowed")
	if r.StatusCode/100 == 3 && r.StatusCode != http.StatusNotModified {
		return fmt.Errorf("it answered with a redirect (%d), which is not passed on", r.StatusCode)
	}
	return nil
}

// errUnclaimed reports that a server does not know the key of its sandbox, which was restarted without its driver.
var errUnclaimed = errors.New("it has no owner")

// stripHostHeaders removes the headers that no sandbox may send to a client, and all
// trailers: a client may take them for headers.
func stripHostHeaders(r *http.Response) {
	for _, name := range []string{"Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To", "Set-Cookie2", api.KeyHeader} {
		r.Header.Del(name)
	}
	if r.StatusCode != http.StatusSwitchingProtocols { // whose body is a connection
		r.Trailer = nil // removes their announcement
		r.Body = &withoutTrailers{r.Body, r}
	}
}

// withoutTrailers is the body of an answer whose trailers are not passed on.
type withoutTrailers struct {
	io.ReadCloser
	of *http.Response
}

// Close drops the trailers, which have arrived by now.
func (b *withoutTrailers) Close() error {
	err := b.ReadCloser.Close()
	b.of.Trailer = nil
	return err
}

// toSandbox sends a request over the connections of its destination. It does not repeat
// a request that the sandbox could have begun, and follows no redirect.
type toSandbox struct{}

// RoundTrip implements http.RoundTripper.
func (toSandbox) RoundTrip(r *http.Request) (*http.Response, error) {
	d := destinationOf(r.Context())
	return d.to.transport.RoundTrip(withoutHooks(r))
}

// withoutHooks returns a request without the values of its context. The proxy's hook for
// answers of the class 1xx is one of them, and where there is a hook the transport does
// not limit how many a sandbox sends; without it a handful is an error.
func withoutHooks(r *http.Request) *http.Request {
	return r.WithContext(sandbox.WithoutValues(r.Context()))
}

// notPassed returns the refusal of a request that a sandbox did not answer. An action with
// an id runs once, however often it is sent. Clients send a request again after status 503,
// so that status is only for requests that were not sent at all.
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
	if errors.Is(err, errUnclaimed) {
		return unavailable("unclaimed", "Sandbox %s was restarted by hand, and its server has no owner: start it by POST /v1/sandboxes/%[1]s/start or 'runtimectl start %[1]s'", s.ID)
	}
	if _, unsent := errors.AsType[*dialError](err); unsent {
		g.known.changed(s.ID)
		now, findErr := g.known.find(ctx, s.ID, true)
		ended := g.known.ended(s.ID, true, nil)
		switch {
		case findErr != nil && ended != nil && native(r):
			return ended
		case findErr != nil:
			return findErr
		case s.Overdue(time.Now()) != "" && native(r): // its platform will say so in a moment
			return errEnded(s.ID, sandbox.EndDeadline)
		}
		if stateErr := g.takesRequests(r, now); stateErr != nil {
			return stateErr
		}
		return coded("unreachable", http.StatusBadGateway, "Sandbox %s cannot be reached, nothing was sent: %v", s.ID, err)
	}
	return coded("no_answer", http.StatusBadGateway, "Sandbox %s sent no valid answer, the outcome is unknown: %.256v", s.ID, err)
}

// copySize is that of httputil, which allocates a buffer for each answer.
const copySize = 32 << 10

// buffers is a pool of buffers for copying answers.
type buffers struct{ pool sync.Pool }

// Get takes a buffer from the pool.
func (b *buffers) Get() []byte { return b.pool.Get().(*[copySize]byte)[:] } //nolint:forcetypeassert // the pool has nothing else

// Put returns a buffer to the pool.
func (b *buffers) Put(p []byte) { b.pool.Put((*[copySize]byte)(p)) }
