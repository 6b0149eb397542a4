package gateway

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// routes is the table of the routes of the gateway itself. Requests below proxyPrefix are
// passed on, with a check of their own keys.
func (g *Gateway) routes() []httpserver.Route {
	return []httpserver.Route{
		httpserver.Open(http.MethodGet, "/", home.Handler(g.noHome)),
		httpserver.Open(http.MethodGet, "/alive", g.alive),
		httpserver.Open(http.MethodGet, "/readyz", g.readyz),
		httpserver.Keyed(http.MethodGet, "/metrics", g.metrics.Serve),
		httpserver.Open(http.MethodGet, "/openapi.yaml", httpserver.Document(api.GatewayOpenAPI)),

		httpserver.Keyed(http.MethodGet, "/v1/sandboxes", g.listSandboxes),
		httpserver.Keyed(http.MethodPost, "/v1/sandboxes", g.createSandbox),
		httpserver.Keyed(http.MethodGet, "/v1/sandboxes/{id}", g.getSandbox),
		httpserver.Keyed(http.MethodDelete, "/v1/sandboxes/{id}", g.deleteSandbox),
		httpserver.Keyed(http.MethodPost, "/v1/sandboxes/{id}/renew", g.renewSandbox),
		httpserver.Keyed(http.MethodPost, "/v1/sandboxes/{id}/stop", g.stopSandbox),
		httpserver.Keyed(http.MethodPost, "/v1/sandboxes/{id}/start", g.startSandbox),
		httpserver.Keyed(http.MethodPost, "/v1/sandboxes/{id}/pause", g.pauseSandbox),
		httpserver.Keyed(http.MethodPost, "/v1/sandboxes/{id}/resume", g.resumeSandbox),
		httpserver.Keyed(http.MethodPost, "/v1/sandboxes/{id}/ports/{port}/url", g.signPreview),
		httpserver.Keyed(http.MethodGet, "/v1/sandboxes/{id}/network", g.getNetwork),
		httpserver.Keyed(http.MethodPut, "/v1/sandboxes/{id}/network", g.putNetwork),
		httpserver.Keyed(http.MethodPatch, "/v1/sandboxes/{id}/network", g.patchNetwork),
		httpserver.Keyed(http.MethodGet, "/v1/sandboxes/{id}/network/denied", g.listDenied),

		// The runtime API of OpenHands.
		httpserver.Keyed(http.MethodPost, "/start", g.openhandsStart),
		httpserver.Keyed(http.MethodGet, "/sessions/{session_id}", g.openhandsSession),
		httpserver.Keyed(http.MethodGet, "/runtime/{runtime_id}", g.openhandsRuntime),
		httpserver.Keyed(http.MethodPost, "/stop", g.openhandsStop),
		httpserver.Keyed(http.MethodPost, "/pause", g.openhandsPause),
		httpserver.Keyed(http.MethodPost, "/resume", g.openhandsResume),
	}
}

// router puts the table behind the middlewares. The order matters: every request is
// counted, including panics; and the key is checked before the routes, so that an
// unauthenticated client learns nothing about them.
func (g *Gateway) router() http.Handler {
	routes := g.routes()
	mux := httpserver.NewRouter(routes, g.protocol(), g.authenticate(routes), g.buildsNothing)
	pass := httpserver.Answer(g.pass, g.fail)
	previewHost := httpserver.Answer(g.previewHost, g.fail)
	split := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.preview.has(r.Host) {
			r.Pattern = previewPattern
			previewHost.ServeHTTP(w, r)
			return
		}
		// The encoded path: the sandbox decodes it.
		if strings.HasPrefix(r.URL.EscapedPath(), proxyPrefix) {
			r.Pattern = proxyPrefix + "{id}"
			pass.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	return g.metrics.Observe(g.log)(httpserver.Recover(g.fail)(httpserver.Bodies(split, g.metrics.Received)))
}

// protocol defines how the gateway refuses requests.
func (g *Gateway) protocol() httpserver.Protocol {
	return httpserver.Protocol{Fail: g.fail, Refuse: refuse, CheckQuery: api.CheckQuery}
}

// previewPattern is the pattern of requests to preview hosts.
const previewPattern = "preview"

// errForbidden does not say which key was wrong, or whether its sandbox exists.
var errForbidden = &api.Error{Status: http.StatusForbidden, Detail: "Invalid API Key"}

// authenticate requires the gateway's key on every path that is not open.
func (g *Gateway) authenticate(routes []httpserver.Route) func(http.Handler) http.Handler {
	open := httpserver.IsOpen(routes)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			operator, sessions, err := g.keys(r)
			if operator {
				httpserver.Trust(r)
			} else {
				w.Header().Set("Connection", "close") // an unauthenticated client does not keep a connection
				if !open(r) {
					err = cmp.Or(err, error(errForbidden))
					path, below := strings.CutPrefix(r.URL.Path, "/v1/sandboxes/")
					id, _, _ := strings.Cut(path, "/")
					if ended := g.known.ended(id, false, sessions); below && ended != nil {
						err = ended
					}
					g.fail(w, r, err)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// operator reports whether a request has the gateway's key.
func (g *Gateway) operator(r *http.Request) bool {
	operator, _, _ := g.keys(r)
	return operator
}

// keys reports whether a request has the gateway's key, and returns its session keys. A bearer
// token is the one or the other if the request has none of their headers, and refused with
// status 401 if it is in none of those that it has.
func (g *Gateway) keys(r *http.Request) (operator bool, sessions []string, err error) {
	sessions = r.Header.Values(api.KeyHeader)
	sent := slices.Concat(r.Header.Values(api.GatewayKeyHeader), sessions)
	token := httpserver.Bearer(r)
	switch {
	case token == "":
		return g.operatorHeader(r), sessions, nil
	case len(sent) > 0:
		if !slices.ContainsFunc(sent, func(key string) bool { return httpserver.SameKey(key, token) }) {
			return false, nil, refuse(http.StatusUnauthorized, httpserver.DifferentKeys)
		}
		return g.operatorHeader(r), sessions, nil
	case sameKey(token, g.key):
		return true, nil, nil
	}
	return false, []string{token}, nil
}

// operatorHeader reports whether a request has the gateway's key in the header for it.
func (g *Gateway) operatorHeader(r *http.Request) bool {
	sent := r.Header.Values(api.GatewayKeyHeader)
	return len(sent) == 1 && sameKey(sent[0], g.key)
}

// sameKey compares hashes in constant time: they have one length, and the comparison
// reveals nothing about either key.
func sameKey(sent string, want [sha256.Size]byte) bool {
	got := sha256.Sum256([]byte(sent))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
