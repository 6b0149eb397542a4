package gateway

import (
	"net/http"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// home is the page for browsers at the root.
var home = httpserver.Home{
	Title: "Actiond: a gateway",
	Text: "This server creates and manages sandboxes: it is for programs. Paths other than the first three need the key of the gateway, " +
		"in the header " + api.GatewayKeyHeader + " or as a bearer token.",
	Links: []httpserver.Link{
		{Path: "alive", Text: "whether requests are answered"},
		{Path: "readyz", Text: "whether sandboxes can be created"},
		{Path: "openapi.yaml", Text: "the description of all paths"},
		{Path: "v1/sandboxes", Text: "the sandboxes"},
		{Path: "metrics", Text: "metrics for Prometheus"},
	},
}

// noHome answers clients other than browsers as a path that does not exist.
func (g *Gateway) noHome(_ http.ResponseWriter, r *http.Request) error {
	if !g.operator(r) {
		return errForbidden
	}
	return api.NotFound("Not Found")
}
