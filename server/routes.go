package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/httpserver"
)

// routes is the table of everything this server answers.
func (s *Server) routes() []httpserver.Route {
	return []httpserver.Route{
		httpserver.Open(http.MethodGet, "/", home.Handler(s.noHome)),
		httpserver.Open(http.MethodGet, "/alive", s.alive),
		httpserver.Open(http.MethodGet, "/healthz", s.healthz),
		httpserver.Open(http.MethodGet, "/health", s.health), // of OpenHands' execution protocol
		httpserver.Open(http.MethodGet, "/readyz", s.readyz),
		httpserver.Open(http.MethodGet, "/server_info", s.serverInfo),
		httpserver.Open(http.MethodPost, "/v1/claim", s.claim),
		httpserver.Keyed(http.MethodGet, "/v1/status", s.status),
		httpserver.Keyed(http.MethodGet, "/v1/usage", s.usedResources),
		httpserver.Keyed(http.MethodGet, "/v1/network", s.showNetwork),
		httpserver.Keyed(http.MethodPost, "/v1/renew", s.renew),

		httpserver.Keyed(http.MethodPost, "/execute_action", s.executeAction),
		httpserver.Keyed(http.MethodPost, "/api/execution/tools", s.executeTool),
		httpserver.Keyed(http.MethodPost, "/v1/actions", s.postAction),
		httpserver.Keyed(http.MethodGet, "/v1/actions", s.listActions),
		httpserver.Keyed(http.MethodGet, "/v1/actions/{id}", s.getAction),
		httpserver.Keyed(http.MethodDelete, "/v1/actions/{id}", s.cancelAction),
		httpserver.Keyed(http.MethodGet, "/v1/actions/{id}/events", s.actionEvents),
		httpserver.Keyed(http.MethodGet, "/v1/actions/{id}/output", s.actionOutput),
		httpserver.Keyed(http.MethodPost, "/v1/actions/{id}/input", s.working(s.writeInput)),
		httpserver.Keyed(http.MethodPost, "/v1/actions/{id}/resize", s.resizeProgram),
		httpserver.Keyed(http.MethodPost, "/v1/actions/{id}/signal", s.signalProgram),
		httpserver.Keyed(http.MethodGet, "/v1/changes", s.changes),
		httpserver.Keyed(http.MethodGet, "/v1/changes/log", s.changeLog),
		httpserver.Keyed(http.MethodPost, "/v1/restore", s.restore),
		httpserver.Keyed(http.MethodPost, "/v1/checkpoints", s.makeCheckpoint),
		httpserver.Keyed(http.MethodGet, "/v1/checkpoints", s.listCheckpoints),
		httpserver.Keyed(http.MethodDelete, "/v1/checkpoints/{name}", s.removeCheckpoint),
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
		httpserver.Keyed(http.MethodPost, "/v1/files/mkdir", s.makeDirectory),
		httpserver.Keyed(http.MethodPost, "/v1/files/move", s.moveFile),
		httpserver.Keyed(http.MethodGet, "/v1/list", s.working(s.listDirectory)),
		httpserver.Keyed(http.MethodPost, "/upload_file", s.working(s.uploadFile)),
		httpserver.Keyed(http.MethodPost, "/v1/unpack", s.unpackArchive),
		httpserver.Keyed(http.MethodGet, "/v1/pack", s.working(s.packFiles)),
		httpserver.Keyed(http.MethodGet, "/download_files", s.working(s.downloadFiles)),
		httpserver.Keyed(http.MethodPost, "/list_files", s.listFiles),

		httpserver.Keyed(http.MethodPost, "/update_mcp_server", s.updateMCPServer),
		httpserver.Keyed(http.MethodGet, "/mcp"+eventsPath, s.working(s.requireBearer(s.mcpEvents))),
		httpserver.Keyed(http.MethodPost, "/mcp"+messagesPath, s.working(s.requireBearer(s.mcpMessage))),
		httpserver.Keyed(http.MethodGet, eventsPath, s.working(s.requireBearer(s.mcpEvents))),
		httpserver.Keyed(http.MethodPost, messagesPath, s.working(s.requireBearer(s.mcpMessage))),
		httpserver.Keyed(http.MethodPost, toolsPath, s.offerTools),
		httpserver.Keyed(http.MethodGet, "/vscode/connection_token", s.vscodeToken),

		httpserver.Keyed(http.MethodGet, "/metrics", s.metrics.Serve),
		httpserver.Open(http.MethodGet, "/openapi.yaml", httpserver.Document(api.OpenAPI)),
	}
}

// router puts the table behind the middlewares that every request passes. The order
// matters: every request is counted, including panics; and the key comes before
// the routes, so that an unauthenticated client learns nothing about them.
func (s *Server) router() http.Handler {
	routes := s.routes()
	protocol := httpserver.Protocol{Fail: s.fail, Refuse: refuse, CheckQuery: api.CheckQuery}
	return httpserver.NewRouter(routes, protocol, s.metrics.Observe(s.log), httpserver.Recover(s.fail), s.boundBodies,
		s.authenticate(routes), s.sameOrigin)
}

// boundBodies bounds the time between the parts of a body, counts the bytes, and gives the
// memory of large requests back.
func (s *Server) boundBodies(next http.Handler) http.Handler {
	bounded := httpserver.Bodies(next, s.metrics.Received)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bounded.ServeHTTP(w, r)
		s.reclaim.after()
	})
}

// authenticate asks for the key on every path that is not open.
func (s *Server) authenticate(routes []httpserver.Route) func(http.Handler) http.Handler {
	open := httpserver.IsOpen(routes)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := s.admits(r)
			switch {
			case err == nil:
				httpserver.Trust(r)
			case !open(r):
				s.fail(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// admits returns nil for a request that has the key, or needs none.
func (s *Server) admits(r *http.Request) error {
	if !s.locked() {
		return nil
	}
	keys := r.Header.Values(api.KeyHeader)
	if token := httpserver.Bearer(r); token != "" {
		keys = append(slices.Clip(keys), token)
	}
	if len(keys) == 0 {
		return s.owner.check("")
	}
	for _, other := range keys[1:] {
		if !httpserver.SameKey(keys[0], other) {
			return refuse(http.StatusUnauthorized, httpserver.DifferentKeys)
		}
	}
	return s.owner.check(keys[0])
}

// locked reports whether there is a key to ask for, or will be.
func (s *Server) locked() bool { return s.cfg.Key != "" || s.cfg.Claim }

// sameOrigin refuses requests that a foreign web page makes a browser send. Without a
// key nothing else would keep a page that is open on the same machine from
// uploading files here, and one whose name was made to mean this machine would be
// of the same origin. A foreign page reads no answer of a GET, but learns whether there is one, and may keep a
// place of a limited number. Clients other than browsers are unaffected.
func (s *Server) sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	refused := &api.Error{Status: http.StatusForbidden, Detail: "This request comes from a web page of another origin; send it without a browser"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r
		if !s.locked() {
			asked = &http.Request{Method: http.MethodPost, Host: r.Host, Header: r.Header, URL: r.URL} // reads are refused, too
		}
		switch {
		case protection.Check(asked) != nil:
			s.fail(w, r, refused)
		case !s.locked() && fromBrowser(r) && renamed(r):
			s.fail(w, r, refuse(http.StatusForbidden, "A server without a key answers browsers by no other name of this machine than localhost, and not by %q", r.Host))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// fromBrowser reports whether a browser may have sent a request: all of them send
// Accept-Language, whatever a page's script asks for.
func fromBrowser(r *http.Request) bool {
	return len(r.Header["Accept-Language"]) > 0 || len(r.Header["Origin"]) > 0
}

// renamed reports whether a request came over the loopback interface to another name
// than localhost, as after a web page had its name changed to mean this machine.
func renamed(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	host := hostOf(r)
	return ok && local.IP.IsLoopback() && host != "" && !strings.EqualFold(host, "localhost") && net.ParseIP(host) == nil
}

// hostOf is the host that a request names, without a port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	return host
}

// fail answers with an error; verdict is the only place that turns errors into
// statuses. A refusal has its own status. A wait that was ended from outside
// says so. Everything else is ours: it is logged with its chain under an id,
// and the caller gets the id and none of the chain.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	if httpserver.Begun(w) {
		if ctx.Err() == nil {
			s.log.ErrorContext(ctx, "answer broke off", "path", r.URL.Path, "error", err)
		}
		panic(http.ErrAbortHandler) // so that half an answer does not look whole
	}
	h := w.Header()
	h.Del("Content-Disposition")
	refusal, id := s.verdict(r, err)
	switch refusal.Status {
	case http.StatusTooManyRequests:
		h.Set("Retry-After", "1")
	case http.StatusForbidden:
		if refusal.Code == unclaimed {
			h.Set(api.UnclaimedHeader, "1")
		}
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", api.Challenge(refusal))
	}
	httpserver.WriteBody(w, refusal.Status, httpserver.JSON, api.EncodeRefusal(refusal, r.URL.Path, id))
}

// verdict returns the answer for an error, and the id under which the log has the
// rest where the server is to blame.
func (s *Server) verdict(r *http.Request, err error) (told *api.Error, id string) {
	if refusal, ok := errors.AsType[*api.Error](err); ok {
		return refusal, ""
	}
	ctx := r.Context()
	if channel.EndedBy(ctx, err) {
		return unanswered(ctx), ""
	}
	id = httpserver.LogBroken(s.log, r, err)
	return &api.Error{
		Status: http.StatusInternalServerError,
		Detail: "Internal server error: the server's log says more under " + id,
	}, id
}

// unanswered says why no client waited for the end of a request.
func unanswered(ctx context.Context) *api.Error {
	if errors.Is(context.Cause(ctx), errStopping) {
		return &api.Error{
			Status: http.StatusInternalServerError, // 503 would make a client start the sandbox again
			Detail: "The server is shutting down and did not wait for the outcome, which is unknown",
		}
	}
	return &api.Error{
		Status: httpserver.ClientGone,
		Detail: "The client closed the connection before the response; the action continues",
	}
}

// writeJSON answers with a value of package api.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	return httpserver.WriteJSON(w, status, v, api.Encode)
}

// unreadBody turns an error from reading a body into a refusal, or into the cause that
// ended the request's context.
func unreadBody(r *http.Request, err error) error {
	if refusal, ok := errors.AsType[*api.Error](err); ok { // of wholeBody
		return refusal
	}
	return httpserver.UnreadBody(r, err, refuse)
}

// refuse returns a refusal with a status.
func refuse(status int, format string, args ...any) error {
	return &api.Error{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// invalid returns the refusal of a malformed request.
func invalid(format string, args ...any) error {
	return api.Invalid(fmt.Sprintf(format, args...))
}
