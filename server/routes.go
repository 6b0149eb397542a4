package server

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/actiond/actiond/api"
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

// routes is the table of everything this server answers.
func (s *Server) routes() []route {
	const open, keyed = true, false
	return []route{
		{http.MethodGet, "/alive", open, s.alive},
		{http.MethodGet, "/healthz", open, s.healthz},
		{http.MethodGet, "/readyz", open, s.readyz},
		{http.MethodGet, "/server_info", open, s.serverInfo},
		{http.MethodPost, "/v1/claim", open, s.claim},
		{http.MethodGet, "/v1/status", keyed, s.status},
		{http.MethodPost, "/v1/renew", keyed, s.renew},

		{http.MethodPost, "/execute_action", keyed, s.executeAction},
		{http.MethodPost, "/v1/actions", keyed, s.streamAction},
		{http.MethodGet, "/v1/tools", keyed, s.listTools},
		{http.MethodPost, "/v1/tools/call", keyed, s.callTool},
		{http.MethodPost, "/v1/tools/translate", keyed, s.translateTool},
		{http.MethodGet, "/v1/sessions", keyed, s.listSessions},
		{http.MethodGet, "/v1/sessions/{name}", keyed, s.getSession},
		{http.MethodDelete, "/v1/sessions/{name}", keyed, s.closeSession},
		{http.MethodGet, "/v1/sessions/{name}/terminal", keyed, s.terminal},

		{http.MethodPost, "/upload_file", keyed, s.working(s.uploadFile)},
		{http.MethodGet, "/download_files", keyed, s.working(s.downloadFiles)},
		{http.MethodPost, "/list_files", keyed, s.listFiles},

		{http.MethodPost, "/update_mcp_server", keyed, s.updateMCPServer},
		{http.MethodGet, "/mcp" + eventsPath, keyed, s.working(s.twiceKeyed(s.mcpEvents))},
		{http.MethodPost, "/mcp" + messagesPath, keyed, s.working(s.twiceKeyed(s.mcpMessage))},
		{http.MethodGet, eventsPath, keyed, s.working(s.twiceKeyed(s.mcpEvents))},
		{http.MethodPost, messagesPath, keyed, s.working(s.twiceKeyed(s.mcpMessage))},
		{http.MethodPost, toolsPath, keyed, s.offerTools},
		{http.MethodGet, "/vscode/connection_token", keyed, s.vscodeToken},

		{http.MethodGet, "/metrics", keyed, s.metrics.serve},
		{http.MethodGet, "/openapi.yaml", keyed, reply.Description(api.OpenAPI)},
	}
}

// router puts the table behind what every request goes through. The order
// matters: whatever happens is counted, also a panic; and the key comes before
// the routes, so that a stranger learns nothing about them.
func (s *Server) router() http.Handler {
	routes := s.routes()
	mux := chi.NewRouter()
	mux.Use(s.observe, reply.Recover(s.fail), s.boundBodies, s.authenticate(routes), s.sameOrigin)
	for _, rt := range routes {
		mux.Method(rt.method, rt.path, s.answer(rt.handle))
	}
	mux.NotFound(s.answer(func(http.ResponseWriter, *http.Request) error {
		return &api.Error{Status: http.StatusNotFound, Detail: "Not Found"}
	}))
	mux.MethodNotAllowed(s.answer(func(w http.ResponseWriter, r *http.Request) error {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			if mux.Match(chi.NewRouteContext(), method, r.URL.Path) {
				w.Header().Add("Allow", method)
			}
		}
		return &api.Error{Status: http.StatusMethodNotAllowed, Detail: "Method Not Allowed"}
	}))
	return mux
}

// answer makes an http.Handler of a handler.
func (s *Server) answer(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	}
}
