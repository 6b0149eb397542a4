package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
)

// ready returns nil when an action can run.
func (s *Server) ready() error {
	if s.draining.Load() {
		return errStopping
	}
	if s.actions.Recovers() {
		return errors.New("the workspace, which a bisect left in another state")
	}
	return s.cfg.Executor.Ready()
}

// alive reports that clients may begin. Until then it answers 500, the only
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
	return writeJSON(w, http.StatusOK, api.Status{Status: "ready", Journal: s.cfg.Journal.Problem()})
}

// serverInfo answers with the uptime of the server, its idle time and its usage.
func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) error {
	lastAction := s.started.Add(time.Duration(s.last.Load()))
	capabilities := s.cfg.Executor.Capabilities()
	if capabilities == nil {
		capabilities = map[string]api.Capability{} // an object, not null
	}
	return writeJSON(w, http.StatusOK, api.ServerInfo{
		Uptime:       api.Float(time.Since(s.started).Seconds()),
		IdleTime:     api.Float(time.Since(lastAction).Seconds()),
		Resources:    s.usage.resources(),
		Version:      s.cfg.Version,
		WorkingDir:   s.cfg.WorkingDir,
		User:         s.cfg.User,
		Capabilities: capabilities,
		Changes:      s.changesInfo(),
	})
}

// vscodeToken says that there is no VS Code here.
func (s *Server) vscodeToken(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, api.ConnectionToken{})
}
