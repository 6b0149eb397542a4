package gateway

import "github.com/actiond/actiond/docker"

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
func (g *Gateway) Pool() *docker.Pool { return g.cfg.Pool }
