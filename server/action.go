package server

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// maxSmallBody bounds the bodies that hold a path or a list of programs.
const maxSmallBody = 1 << 20

// executeAction answers an action with its observation, by the rules of the legacy
// protocol.
func (s *Server) executeAction(w http.ResponseWriter, r *http.Request) error {
	return s.serveAction(w, r, formLegacy)
}

// serveAction answers an action in one piece.
func (s *Server) serveAction(w http.ResponseWriter, r *http.Request, want form) error {
	c, leave, err := s.enterWith(r, func(begun time.Time) (*call, error) { return s.readAction(r, begun, want) })
	if err != nil {
		return err
	}
	return s.perform(w, r, c, leave)
}

// enterWith takes a place, which leave gives back once, and reads the action in a
// request.
func (s *Server) enterWith(r *http.Request, read func(begun time.Time) (*call, error)) (c *call, leave func(), err error) {
	begun := time.Now()
	if leave, err = s.enter(); err == nil {
		leave = sync.OnceFunc(leave)
		if c, err = read(begun); err == nil {
			return c, leave, nil
		}
		leave()
	}
	s.metrics.action(r.Context(), unread, err, time.Since(begun))
	return nil, nil, err
}

// readAction reads the action in a request, with the defaults of /v1/actions or of the
// legacy protocol.
func (s *Server) readAction(r *http.Request, begun time.Time, want form) (*call, error) {
	body, err := readJSON(r, s.cfg.MaxBody)
	if err != nil {
		return nil, err
	}
	req, err := api.DecodeRequest(body)
	if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != http.StatusUnprocessableEntity {
		s.last.Store(int64(begun.Sub(s.started))) // an envelope with an action in it is well-formed
	}
	if err != nil {
		return nil, err
	}
	if want == formAction {
		req = req.Native()
	}
	if run, ok := req.Action.(api.RunAction); ok && run.Hidden && want == formLegacy {
		want = formHidden
	}
	c := &call{req: req, kind: req.Action.Kind(), form: want}
	c.run = func(ctx context.Context, w api.Watch) ([]byte, error) {
		o, err := s.cfg.Executor.Watch(ctx, req, w)
		if err != nil {
			return nil, err
		}
		return api.EncodeObservation(o)
	}
	return c, c.identify(r, body)
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
	if sent == httpserver.JSON {
		return nil
	}
	kind, _, err := mime.ParseMediaType(sent)
	if err == nil && (kind == httpserver.JSON || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
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
		return nil, httpserver.UnreadBody(r, &http.MaxBytesError{Limit: limit})
	}
	// What is announced is believed up to a bound: it may never come.
	const most = 1 << 20
	buf := bytes.NewBuffer(make([]byte, 0, max(0, min(r.ContentLength, most))+bytes.MinRead))
	if _, err := buf.ReadFrom(http.MaxBytesReader(nil, r.Body, limit)); err != nil {
		return nil, httpserver.UnreadBody(r, err)
	}
	return buf.Bytes(), nil
}

// listSessions answers with the sessions that are open.
func (s *Server) listSessions(w http.ResponseWriter, _ *http.Request) error {
	sessions := s.cfg.Executor.Sessions()
	if sessions == nil {
		sessions = []api.Session{} // a list, not null
	}
	return httpserver.WriteJSON(w, http.StatusOK, api.SessionList{Sessions: sessions})
}

// getSession answers with one session.
func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	name, err := sessionName(r)
	if err != nil {
		return err
	}
	for _, session := range s.cfg.Executor.Sessions() {
		if session.Name == name {
			return httpserver.WriteJSON(w, http.StatusOK, session)
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
