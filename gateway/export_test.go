package gateway

import (
	"github.com/actiond/actiond/sandbox"
)

// Route is a line of the table.
type Route struct {
	Method, Path string
	Open         bool
}

// Routes returns the table.
func (g *Gateway) Routes() []Route {
	var routes []Route
	for _, rt := range g.routes() {
		routes = append(routes, Route{rt.Method, rt.Path, rt.Open})
	}
	return routes
}

// Pool is that of the configuration.
func (g *Gateway) Pool() *sandbox.Pool { return g.cfg.Pool }

// PublicConns is the share of clients without a key.
const PublicConns = publicConns

// MaxEnds is how many ends are remembered.
const MaxEnds = maxEnds

// Forget has the gateway see a sandbox come and go.
func (g *Gateway) Forget(s *sandbox.Sandbox) {
	g.known.put(s)
	g.known.forget(s.ID)
}

// Changed makes the gateway look again at a sandbox before it uses it.
func (g *Gateway) Changed(id string) { g.known.changed(id) }
