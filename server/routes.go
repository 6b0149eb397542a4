package server

import (
	"net/http"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// routes is the table of everything this server answers.
func (s *Server) routes() []httpserver.Route {
	return []httpserver.Route{
		httpserver.Open(http.MethodGet, "/", home.Handler(s.noHome)),
		httpserver.Open(http.MethodGet, "/alive", s.alive),
		httpserver.Open(http.MethodGet, "/healthz", s.healthz),
		httpserver.Open(http.MethodGet, "/readyz", s.readyz),
		httpserver.Open(http.MethodGet, "/server_info", s.serverInfo),
		httpserver.Open(http.MethodPost, "/v1/claim", s.claim),
		httpserver.Keyed(http.MethodGet, "/v1/status", s.status),
		httpserver.Keyed(http.MethodGet, "/v1/usage", s.usedResources),
		httpserver.Keyed(http.MethodPost, "/v1/renew", s.renew),

		httpserver.Keyed(http.MethodPost, "/execute_action", s.executeAction),
		httpserver.Keyed(http.MethodPost, "/v1/actions", s.streamAction),
		httpserver.Keyed(http.MethodGet, "/v1/actions", s.listActions),
		httpserver.Keyed(http.MethodGet, "/v1/actions/{id}", s.getAction),
		httpserver.Keyed(http.MethodDelete, "/v1/actions/{id}", s.cancelAction),
		httpserver.Keyed(http.MethodGet, "/v1/actions/{id}/events", s.actionEvents),
		httpserver.Keyed(http.MethodGet, "/v1/actions/{id}/output", s.actionOutput),
		httpserver.Keyed(http.MethodPost, "/v1/actions/{id}/input", s.working(s.writeInput)),
		httpserver.Keyed(http.MethodPost, "/v1/actions/{id}/resize", s.resizeProgram),
		httpserver.Keyed(http.MethodPost, "/v1/actions/{id}/signal", s.signalProgram),
		httpserver.Keyed(http.MethodGet, "/v1/tools", s.listTools),
		httpserver.Keyed(http.MethodPost, "/v1/tools/call", s.callTool),
		httpserver.Keyed(http.MethodPost, "/v1/tools/translate", s.translateTool),
		httpserver.Keyed(http.MethodGet, "/v1/sessions", s.listSessions),
		httpserver.Keyed(http.MethodGet, "/v1/sessions/{name}", s.getSession),
		httpserver.Keyed(http.MethodDelete, "/v1/sessions/{name}", s.closeSession),
		httpserver.Keyed(http.MethodGet, "/v1/sessions/{name}/terminal", s.terminal),
		httpserver.Keyed(http.MethodGet, "/v1/ports", s.listPorts),
		httpserver.Keyed(http.MethodGet, "/v1/ports/{port}/tunnel", s.tunnel),

		httpserver.Keyed(http.MethodGet, "/v1/files", s.working(s.readFile)),
		httpserver.Keyed(http.MethodHead, "/v1/files", s.working(s.readFile)),
		httpserver.Keyed(http.MethodPut, "/v1/files", s.writeFile),
		httpserver.Keyed(http.MethodDelete, "/v1/files", s.removeFile),
		httpserver.Keyed(http.MethodPost, "/upload_file", s.working(s.uploadFile)),
		httpserver.Keyed(http.MethodPost, "/v1/unpack", s.working(s.unpackArchive)),
		httpserver.Keyed(http.MethodGet, "/v1/pack", s.working(s.packFiles)),
		httpserver.Keyed(http.MethodGet, "/download_files", s.working(s.downloadFiles)),
		httpserver.Keyed(http.MethodPost, "/list_files", s.listFiles),

		httpserver.Keyed(http.MethodPost, "/update_mcp_server", s.updateMCPServer),
		httpserver.Keyed(http.MethodGet, "/mcp"+eventsPath, s.working(s.twiceKeyed(s.mcpEvents))),
		httpserver.Keyed(http.MethodPost, "/mcp"+messagesPath, s.working(s.twiceKeyed(s.mcpMessage))),
		httpserver.Keyed(http.MethodGet, eventsPath, s.working(s.twiceKeyed(s.mcpEvents))),
		httpserver.Keyed(http.MethodPost, messagesPath, s.working(s.twiceKeyed(s.mcpMessage))),
		httpserver.Keyed(http.MethodPost, toolsPath, s.offerTools),
		httpserver.Keyed(http.MethodGet, "/vscode/connection_token", s.vscodeToken),

		httpserver.Keyed(http.MethodGet, "/metrics", s.metrics.Serve),
		httpserver.Keyed(http.MethodGet, "/openapi.yaml", httpserver.Document(api.OpenAPI)),
	}
}

// router puts the table behind what every request goes through. The order
// matters: whatever happens is counted, also a panic; and the key comes before
// the routes, so that an unauthenticated client learns nothing about them.
func (s *Server) router() http.Handler {
	routes := s.routes()
	return httpserver.NewRouter(routes, s.fail, s.metrics.Observe(s.log), httpserver.Recover(s.fail), s.boundBodies, s.authenticate(routes), s.sameOrigin)
}
