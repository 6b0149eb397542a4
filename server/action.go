package server

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/reply"
)

// maxSmallBody bounds the bodies that hold a path or a list of programs.
const maxSmallBody = 1 << 20

// executeAction answers an action with its observation.
func (s *Server) executeAction(w http.ResponseWriter, r *http.Request) error {
	begun := time.Now()
	name, observation, err := s.act(r, begun)
	s.metrics.action(r, name, err, time.Since(begun))
	if err != nil {
		return err
	}
	reply.Body(w, http.StatusOK, reply.JSON, observation)
	return nil
}

// act runs the action in a request and returns its name, as far as it got to
// be known, and the encoded observation.
func (s *Server) act(r *http.Request, begun time.Time) (name string, observation []byte, err error) {
	leave, err := s.enter()
	if err != nil {
		return unread, nil, err
	}
	defer leave()
	req, err := s.readAction(r, begun)
	if err != nil {
		return unread, nil, err
	}
	name = req.Action.Kind()
	o, err := s.cfg.Executor.Do(r.Context(), req)
	if err != nil {
		return name, nil, err
	}
	observation, err = api.EncodeObservation(o)
	return name, observation, err
}

// readAction reads the action in a request.
func (s *Server) readAction(r *http.Request, begun time.Time) (api.Request, error) {
	body, err := readJSON(r, s.cfg.MaxBody)
	if err != nil {
		return api.Request{}, err
	}
	req, err := api.DecodeRequest(body)
	if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != http.StatusUnprocessableEntity {
		s.last.Store(int64(begun.Sub(s.started))) // an envelope with an action in it is well-formed
	}
	return req, err
}

// enter takes one of the places for actions in flight; leave gives it back. It
// comes before the body is read, so that it bounds the memory that bodies take
// as well.
func (s *Server) enter() (leave func(), err error) {
	if s.draining.Load() {
		return nil, refuse(http.StatusTooManyRequests, "The server is shutting down; nothing was done")
	}
	select {
	case s.actions <- struct{}{}:
		s.life.begin()
		return func() {
			s.life.end()
			s.release.Reset(releaseTime)
			<-s.actions
		}, nil
	default:
		return nil, refuse(http.StatusTooManyRequests, "%d actions are in flight already; nothing was done, try again", s.cfg.MaxActions)
	}
}

// wantJSON refuses bodies that do not say they are JSON: a browser sends no
// such body to another origin without asking first.
func wantJSON(r *http.Request) error {
	sent := r.Header.Get("Content-Type")
	if sent == reply.JSON {
		return nil
	}
	kind, _, err := mime.ParseMediaType(sent)
	if err == nil && (kind == reply.JSON || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return nil
	}
	return invalid("header.Content-Type: must be application/json, got %q", sent)
}

// readJSON reads a whole body of at most limit bytes that says it is JSON.
func readJSON(r *http.Request, limit int64) ([]byte, error) {
	if err := wantJSON(r); err != nil {
		return nil, err
	}
	return readBody(r, limit)
}

// readBody reads a whole body of at most limit bytes.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, reply.UnreadBody(r, &http.MaxBytesError{Limit: limit})
	}
	// What is announced is believed up to a bound: it may never come.
	const most = 1 << 20
	buf := bytes.NewBuffer(make([]byte, 0, max(0, min(r.ContentLength, most))+bytes.MinRead))
	if _, err := buf.ReadFrom(http.MaxBytesReader(nil, r.Body, limit)); err != nil {
		return nil, reply.UnreadBody(r, err)
	}
	return buf.Bytes(), nil
}

// listSessions answers with the sessions that are open.
func (s *Server) listSessions(w http.ResponseWriter, _ *http.Request) error {
	sessions := s.cfg.Executor.Sessions()
	if sessions == nil {
		sessions = []api.Session{} // a list, not null
	}
	return reply.Value(w, http.StatusOK, api.SessionList{Sessions: sessions})
}

// getSession answers with one session.
func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	name, err := sessionName(r)
	if err != nil {
		return err
	}
	for _, session := range s.cfg.Executor.Sessions() {
		if session.Name == name {
			return reply.Value(w, http.StatusOK, session)
		}
	}
	return refuse(http.StatusNotFound, "There is no session %q", name)
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

// sessionName returns the name in the path. chi hands out the path as it was
// sent where that differs from its usual encoding.
func sessionName(r *http.Request) (string, error) {
	name := r.PathValue("name")
	if r.URL.RawPath == "" {
		return name, nil
	}
	name, err := url.PathUnescape(name)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "The name of the session: %v", err)
	}
	return name, nil
}
