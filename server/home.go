package server

import (
	"net/http"

	"github.com/actiond/actiond/internal/httpserver"
)

// home is the page for browsers at the root.
var home = httpserver.Home{
	Title: "Actiond: a sandbox",
	Text: "This server carries out the actions of an agent: it is for programs. Paths other than the first four need the key of the sandbox, " +
		"in the header X-Session-API-Key or as a bearer token.",
	Links: []httpserver.Link{
		{Path: "alive", Text: "whether actions are answered"},
		{Path: "readyz", Text: "what the sandbox waits for"},
		{Path: "server_info", Text: "version, resources, capabilities"},
		{Path: "openapi.yaml", Text: "the description of all paths"},
		{Path: "v1/status", Text: "whether something runs, and for how long the sandbox lives"},
		{Path: "v1/sessions", Text: "its shells and kernels"},
		{Path: "metrics", Text: "metrics for Prometheus"},
	},
}

// noHome answers clients other than browsers as on any path that does not exist.
func (s *Server) noHome(_ http.ResponseWriter, r *http.Request) error {
	if err := s.admits(r); err != nil {
		return err
	}
	return refuse(http.StatusNotFound, "Not Found")
}
