package server

import (
	"net/http"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/reply"
	"github.com/actiond/actiond/server/router"
)

// routes is the table of everything this server answers.
func (s *Server) routes() []router.Route {
	return []router.Route{
		router.Open(http.MethodGet, "/alive", s.alive),
		router.Open(http.MethodGet, "/healthz", s.healthz),
		router.Open(http.MethodGet, "/readyz", s.readyz),
		router.Open(http.MethodGet, "/server_info", s.serverInfo),
		router.Open(http.MethodPost, "/v1/claim", s.claim),
		router.Keyed(http.MethodGet, "/v1/status", s.status),
		router.Keyed(http.MethodPost, "/v1/renew", s.renew),

		router.Keyed(http.MethodPost, "/execute_action", s.executeAction),
		router.Keyed(http.MethodPost, "/v1/actions", s.streamAction),
		router.Keyed(http.MethodGet, "/v1/tools", s.listTools),
		router.Keyed(http.MethodPost, "/v1/tools/call", s.callTool),
		router.Keyed(http.MethodPost, "/v1/tools/translate", s.translateTool),
		router.Keyed(http.MethodGet, "/v1/sessions", s.listSessions),
		router.Keyed(http.MethodGet, "/v1/sessions/{name}", s.getSession),
		router.Keyed(http.MethodDelete, "/v1/sessions/{name}", s.closeSession),
		router.Keyed(http.MethodGet, "/v1/sessions/{name}/terminal", s.terminal),

		router.Keyed(http.MethodPost, "/upload_file", s.working(s.uploadFile)),
		router.Keyed(http.MethodGet, "/download_files", s.working(s.downloadFiles)),
		router.Keyed(http.MethodPost, "/list_files", s.listFiles),

		router.Keyed(http.MethodPost, "/update_mcp_server", s.updateMCPServer),
		router.Keyed(http.MethodGet, "/mcp"+eventsPath, s.working(s.twiceKeyed(s.mcpEvents))),
		router.Keyed(http.MethodPost, "/mcp"+messagesPath, s.working(s.twiceKeyed(s.mcpMessage))),
		router.Keyed(http.MethodGet, eventsPath, s.working(s.twiceKeyed(s.mcpEvents))),
		router.Keyed(http.MethodPost, messagesPath, s.working(s.twiceKeyed(s.mcpMessage))),
		router.Keyed(http.MethodPost, toolsPath, s.offerTools),
		router.Keyed(http.MethodGet, "/vscode/connection_token", s.vscodeToken),

		router.Keyed(http.MethodGet, "/metrics", s.metrics.serve),
		router.Keyed(http.MethodGet, "/openapi.yaml", reply.Description(api.OpenAPI)),
	}
}

// router puts the table behind what every request goes through. The order
// matters: whatever happens is counted, also a panic; and the key comes before
// the routes, so that a stranger learns nothing about them.
func (s *Server) router() http.Handler {
	routes := s.routes()
	return router.New(routes, s.fail, s.observe, reply.Recover(s.fail), s.boundBodies, s.authenticate(routes), s.sameOrigin)
}
