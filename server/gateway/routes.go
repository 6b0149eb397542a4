package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/bound"
	"github.com/actiond/actiond/server/reply"
	"github.com/actiond/actiond/server/router"
)

// routes is the table of everything the gateway itself answers. What is below
// proxyPrefix is passed on, after a look at its own keys.
func (g *Gateway) routes() []router.Route {
	return []router.Route{
		router.Open(http.MethodGet, "/alive", g.alive),
		router.Open(http.MethodGet, "/readyz", g.readyz),
		router.Keyed(http.MethodGet, "/metrics", g.metrics.serve),
		router.Keyed(http.MethodGet, "/openapi.yaml", reply.Description(api.GatewayOpenAPI)),

		router.Keyed(http.MethodGet, "/v1/sandboxes", g.listSandboxes),
		router.Keyed(http.MethodPost, "/v1/sandboxes", g.createSandbox),
		router.Keyed(http.MethodGet, "/v1/sandboxes/{id}", g.getSandbox),
		router.Keyed(http.MethodDelete, "/v1/sandboxes/{id}", g.deleteSandbox),
		router.Keyed(http.MethodPost, "/v1/sandboxes/{id}/renew", g.renewSandbox),
		router.Keyed(http.MethodPost, "/v1/sandboxes/{id}/stop", g.stopSandbox),
		router.Keyed(http.MethodPost, "/v1/sandboxes/{id}/start", g.startSandbox),
		router.Keyed(http.MethodPost, "/v1/sandboxes/{id}/pause", g.pauseSandbox),
		router.Keyed(http.MethodPost, "/v1/sandboxes/{id}/resume", g.resumeSandbox),

		// The runtime API of OpenHands.
		router.Keyed(http.MethodPost, "/start", g.openhandsStart),
		router.Keyed(http.MethodGet, "/sessions/{session_id}", g.openhandsSession),
		router.Keyed(http.MethodGet, "/runtime/{runtime_id}", g.openhandsRuntime),
		router.Keyed(http.MethodPost, "/stop", g.openhandsStop),
		router.Keyed(http.MethodPost, "/pause", g.openhandsPause),
		router.Keyed(http.MethodPost, "/resume", g.openhandsResume),
		router.Keyed(http.MethodGet, "/registry_prefix", g.registryPrefix),
		router.Keyed(http.MethodGet, "/image_exists", g.imageExists),
		router.Keyed(http.MethodPost, "/build", g.build),
		router.Keyed(http.MethodGet, "/build_status", g.buildStatus),
	}
}

// router puts the table behind what every request goes through. The order
// matters: whatever happens is counted, also a panic; and the key comes before
// the routes, so that a stranger learns nothing about them.
func (g *Gateway) router() http.Handler {
	routes := g.routes()
	mux := router.New(routes, g.fail, g.authenticate(routes))
	pass := router.Answer(g.pass, g.fail)
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

// errForbidden says nothing about which key was wrong, or what it is for.
var errForbidden = &api.Error{Status: http.StatusForbidden, Detail: "Invalid API Key"}

// authenticate asks for the gateway's key on every path that is not open.
func (g *Gateway) authenticate(routes []router.Route) func(http.Handler) http.Handler {
	open := router.IsOpen(routes)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if g.operator(r) {
				bound.Trust(r)
			} else {
				w.Header().Set("Connection", "close") // strangers keep none of the places for connections
				if !open(r) {
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
