package server

import (
	"net/http"
	"net/url"

	"github.com/actiond/actiond/api"
)

// listSessions answers with the sessions that are open.
func (s *Server) listSessions(w http.ResponseWriter, _ *http.Request) error {
	sessions := s.cfg.Executor.Sessions()
	if sessions == nil {
		sessions = []api.Session{} // a list, not null
	}
	return writeJSON(w, http.StatusOK, api.SessionList{Sessions: sessions})
}

// getSession answers with one session.
func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	name, err := sessionName(r)
	if err != nil {
		return err
	}
	for _, session := range s.cfg.Executor.Sessions() {
		if session.Name == name {
			return writeJSON(w, http.StatusOK, session)
		}
	}
	return refuse(http.StatusNotFound, "session %q does not exist", name)
}

// closeSession ends one session.
func (s *Server) closeSession(w http.ResponseWriter, r *http.Request) error {
	name, err := sessionName(r)
	if err != nil {
		return err
	}
	if err := s.cfg.Executor.CloseSession(r.Context(), name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// sessionName returns the name in the path.
func sessionName(r *http.Request) (string, error) { return pathValue(r, "name") }

// pathValue returns a part of the path. chi hands out the path as it was sent where
// that differs from its usual encoding.
func pathValue(r *http.Request, name string) (string, error) {
	value := r.PathValue(name)
	if r.URL.RawPath == "" {
		return value, nil
	}
	value, err := url.PathUnescape(value)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "The %s in the path: %v", name, err)
	}
	return value, nil
}
