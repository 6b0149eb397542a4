package server

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
)

// writeJSON answers with a value of api.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := api.Encode(v)
	if err != nil {
		return fmt.Errorf("encoding answer: %w", err)
	}
	writeBody(w, status, jsonType, body)
	return nil
}

// ready returns nil when an action can run.
func (s *Server) ready() error {
	if s.draining.Load() {
		return errStopping
	}
	return s.cfg.Executor.Ready()
}

// alive tells clients that they may begin. Until then it answers 500, the only
// status that every client takes for "not yet".
func (s *Server) alive(w http.ResponseWriter, _ *http.Request) error {
	if err := s.ready(); err != nil {
		return refuse(http.StatusInternalServerError, "not initialized: %v", err)
	}
	return writeJSON(w, http.StatusOK, api.Status{Status: "ok"})
}

// healthz says that the process answers.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, api.Status{Status: "ok"})
}

// readyz says whether an action can run, with the status that orchestrators
// know.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	if err := s.ready(); err != nil {
		return writeJSON(w, http.StatusServiceUnavailable, api.Status{Status: "starting", WaitingFor: err.Error()})
	}
	return writeJSON(w, http.StatusOK, api.Status{Status: "ready"})
}

// serverInfo says how long the server is up and idle, and what it uses.
func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) error {
	lastAction := s.started.Add(time.Duration(s.last.Load()))
	capabilities := s.cfg.Executor.Capabilities()
	if capabilities == nil {
		capabilities = map[string]api.Capability{} // an object, not null
	}
	return writeJSON(w, http.StatusOK, api.ServerInfo{
		Uptime:       time.Since(s.started).Seconds(),
		IdleTime:     time.Since(lastAction).Seconds(),
		Resources:    s.usage.resources(),
		Version:      s.cfg.Version,
		Capabilities: capabilities,
	})
}

// vscodeToken says that there is no VS Code here.
func (s *Server) vscodeToken(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, api.ConnectionToken{})
}

// openAPITag changes when the document does.
var openAPITag = fmt.Sprintf(`"%x"`, sha256.Sum256(api.OpenAPI))

// openAPI answers with the description of this server, unless the client has
// it already.
func (s *Server) openAPI(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Etag", openAPITag)
	for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == openAPITag {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	writeBody(w, http.StatusOK, "application/yaml", api.OpenAPI)
	return nil
}
