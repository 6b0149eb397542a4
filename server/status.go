package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
)

// ready returns nil when an action can run.
func (s *Server) ready() error {
	if err := s.takes(); err != nil {
		return err
	}
	return s.cfg.Executor.Ready()
}

// takes returns nil when an action may begin, to wait for the first shell if it needs one.
func (s *Server) takes() error {
	if s.draining.Load() {
		return errStopping
	}
	if s.actions.Recovers() {
		return errors.New("the workspace, whose restore the end of a server broke off")
	}
	return nil
}

// alive reports that clients may begin. Until then it answers 500, the only
// status that every client takes for "not yet".
func (s *Server) alive(w http.ResponseWriter, _ *http.Request) error {
	if err := s.ready(); err != nil {
		return refuse(http.StatusInternalServerError, "not initialized: %v", err)
	}
	return writeJSON(w, http.StatusOK, api.Status{Status: "ok"})
}

// health reports that calls are taken. Clients of OpenHands' execution protocol look four times a
// second: an answer that waited for the first shell would cost them a quarter of a second.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	if err := s.takes(); err != nil {
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
