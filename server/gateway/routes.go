package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/bound"
	"github.com/actiond/actiond/server/reply"
)

// handler answers a request, or returns why it did not; fail turns that into
// an answer.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is one thing that can be asked for.
type route struct {
	method, path string
	open         bool // needs no key
	handle       handler
}

// routes is the table of everything the gateway itself answers. What is below
// proxyPrefix is passed on, after a look at its own keys.
func (g *Gateway) routes() []route {
	const open, keyed = true, false
	return []route{
		{http.MethodGet, "/alive", open, g.alive},
		{http.MethodGet, "/readyz", open, g.readyz},
		{http.MethodGet, "/metrics", keyed, g.metrics.serve},
		{http.MethodGet, "/openapi.yaml", keyed, reply.Description(api.GatewayOpenAPI)},

		{http.MethodGet, "/v1/sandboxes", keyed, g.listSandboxes},
		{http.MethodPost, "/v1/sandboxes", keyed, g.createSandbox},
		{http.MethodGet, "/v1/sandboxes/{id}", keyed, g.getSandbox},
		{http.MethodDelete, "/v1/sandboxes/{id}", keyed, g.deleteSandbox},
		{http.MethodPost, "/v1/sandboxes/{id}/renew", keyed, g.renewSandbox},
		{http.MethodPost, "/v1/sandboxes/{id}/stop", keyed, g.stopSandbox},
		{http.MethodPost, "/v1/sandboxes/{id}/start", keyed, g.startSandbox},
		{http.MethodPost, "/v1/sandboxes/{id}/pause", keyed, g.pauseSandbox},
		{http.MethodPost, "/v1/sandboxes/{id}/resume", keyed, g.resumeSandbox},

		// The runtime API of OpenHands.
		{http.MethodPost, "/start", keyed, g.openhandsStart},
		{http.MethodGet, "/sessions/{session_id}", keyed, g.openhandsSession},
		{http.MethodGet, "/runtime/{runtime_id}", keyed, g.openhandsRuntime},
		{http.MethodPost, "/stop", keyed, g.openhandsStop},
		{http.MethodPost, "/pause", keyed, g.openhandsPause},
		{http.MethodPost, "/resume", keyed, g.openhandsResume},
		{http.MethodGet, "/registry_prefix", keyed, g.registryPrefix},
		{http.MethodGet, "/image_exists", keyed, g.imageExists},
		{http.MethodPost, "/build", keyed, g.build},
		{http.MethodGet, "/build_status", keyed, g.buildStatus},
	}
}

// router puts the table behind what every request goes through. The order
// matters: whatever happens is counted, also a panic; and the key comes before
// the routes, so that a stranger learns nothing about them.
func (g *Gateway) router() http.Handler {
	routes := g.routes()
	mux := chi.NewRouter()
	mux.Use(g.authenticate(routes))
	for _, rt := range routes {
		mux.Method(rt.method, rt.path, g.answer(rt.handle))
	}
	mux.NotFound(g.answer(func(http.ResponseWriter, *http.Request) error {
		return refuse(http.StatusNotFound, "Not Found")
	}))
	mux.MethodNotAllowed(g.answer(func(w http.ResponseWriter, r *http.Request) error {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			if mux.Match(chi.NewRouteContext(), method, r.URL.Path) {
				w.Header().Add("Allow", method)
			}
		}
		return refuse(http.StatusMethodNotAllowed, "Method Not Allowed")
	}))
	pass := g.answer(g.pass)
	split := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// As it was sent: what is encoded in it is the sandbox's to decode.
		if strings.HasPrefix(r.URL.EscapedPath(), proxyPrefix) {
			r.Pattern = proxyPrefix + "{id}"
			pass.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	return g.observe(reply.Recover(g.fail)(bound.Bodies(split, func(n int64) { g.metrics.received.Add(float64(n)) })))
}

// answer makes an http.Handler of a handler.
func (g *Gateway) answer(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			g.fail(w, r, err)
		}
	}
}

// errForbidden says nothing about which key was wrong, or what it is for.
var errForbidden = &api.Error{Status: http.StatusForbidden, Detail: "Invalid API Key"}

// authenticate asks for the gateway's key on every path that is not open. Paths
// are compared as they were sent: an open path in disguise is not open.
func (g *Gateway) authenticate(routes []route) func(http.Handler) http.Handler {
	open := map[string]bool{}
	for _, rt := range routes {
		if rt.open {
			open[rt.path] = true
		}
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !g.operator(r) {
				w.Header().Set("Connection", "close") // strangers keep none of the places for connections
				if r.URL.RawPath != "" || !open[r.URL.Path] {
					g.fail(w, r, errForbidden)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// operator tells whether a request has the gateway's key.
func (g *Gateway) operator(r *http.Request) bool {
	sent := r.Header.Values(api.GatewayKeyHeader)
	return len(sent) == 1 && sameKey(sent[0], g.key)
}

// sameKey compares hashes: they have one length, and comparing them tells
// nothing about either key.
func sameKey(sent string, want [sha256.Size]byte) bool {
	got := sha256.Sum256([]byte(sent))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
