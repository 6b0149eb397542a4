package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
)

// decodeEntered decodes a small body of JSON once the request has acquired the semaphore of actions in flight, which
// leave releases.
func decodeEntered[T any](s *Server, r *http.Request, decode func([]byte) (T, error)) (req T, leave func(), err error) {
	if leave, err = s.enter(); err != nil {
		return req, nil, err
	}
	if req, err = decodeJSON(r, decode); err != nil {
		leave()
	}
	return req, leave, err
}

// restore brings the workspace back to an earlier state.
func (s *Server) restore(w http.ResponseWriter, r *http.Request) error {
	req, leave, err := decodeEntered(s, r, api.DecodeRestore)
	if err != nil {
		return err
	}
	defer leave()
	paths, err := s.relativePaths("body.paths", req.Paths)
	if err != nil {
		return err
	}
	restored, err := s.actions.Restore(r.Context(), req, paths)
	if err != nil {
		return inMember("body.to", err)
	}
	return writeJSON(w, http.StatusOK, restored)
}

// relativePaths returns the paths of a member relative to the workspace, nil for all of it.
func (s *Server) relativePaths(member string, sent []api.FilePath) ([]string, error) {
	var paths []string
	for i, path := range sent {
		relative, err := s.workspacePath(fmt.Sprintf("%s[%d]", member, i), string(path))
		if err != nil {
			return nil, err
		}
		paths = append(paths, relative)
	}
	if slices.Contains(paths, ".") {
		return nil, nil
	}
	return paths, nil
}

// makeCheckpoint gives the present state a name.
func (s *Server) makeCheckpoint(w http.ResponseWriter, r *http.Request) error {
	req, leave, err := decodeEntered(s, r, api.DecodeCheckpoint)
	if err != nil {
		return err
	}
	defer leave()
	checkpoint, err := s.actions.Checkpoint(r.Context(), req)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, checkpoint)
}

func (s *Server) listCheckpoints(w http.ResponseWriter, r *http.Request) error {
	if err := s.actions.Known(r.Context()); err != nil { // those of an earlier server are read with the first state
		return err
	}
	return writeJSON(w, http.StatusOK, api.Checkpoints{Checkpoints: s.actions.Checkpoints()})
}

func (s *Server) removeCheckpoint(w http.ResponseWriter, r *http.Request) error {
	name, err := pathValue(r, "name")
	if err == nil {
		err = s.actions.Known(r.Context())
	}
	if err == nil {
		err = s.actions.RemoveCheckpoint(name)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// makeAttempt answers an action as postAction does, which can be discarded.
func (s *Server) makeAttempt(w http.ResponseWriter, r *http.Request) error {
	return s.answerAction(w, r, func(begun time.Time) (*call, error) {
		c, err := s.readAction(r, begun, formAction)
		if err != nil {
			return nil, err
		}
		if err := s.actions.BeginAttempt(r.Context(), c.ID); err != nil {
			return nil, err
		}
		c.Attempt, c.unused = true, func() { s.actions.LeaveAttempt(c.ID) }
		return c, nil
	})
}

func (s *Server) listAttempts(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, api.Attempts{Attempts: s.actions.Attempts()})
}

func (s *Server) keepAttempt(w http.ResponseWriter, r *http.Request) error {
	id, err := attemptIn(r)
	if err != nil {
		return err
	}
	kept, err := s.actions.KeepAttempt(id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, kept)
}

// attemptIn returns the id in the path of a request without members in its body.
func attemptIn(r *http.Request) (id string, err error) {
	if r.ContentLength != 0 {
		body, err := readJSON(r, maxSmallBody)
		if err == nil {
			err = api.DecodeNothing(body)
		}
		if err != nil {
			return "", err
		}
	}
	return pathValue(r, "id")
}

// discardAttempt restores the state before an attempt.
func (s *Server) discardAttempt(w http.ResponseWriter, r *http.Request) error {
	id, err := attemptIn(r)
	if err != nil {
		return err
	}
	force, err := yes(r, "force")
	if err != nil {
		return err
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	restored, err := s.actions.DiscardAttempt(r.Context(), id, force)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, restored)
}

// bisect answers with the events of a bisect as they come, as lines of JSON unless the request accepts another form.
func (s *Server) bisect(w http.ResponseWriter, r *http.Request) error {
	req, leave, err := decodeEntered(s, r, api.DecodeBisect)
	if err != nil {
		return err
	}
	defer leave()
	ctx, giveUp := context.WithCancelCause(r.Context())
	defer giveUp(nil)
	begun, err := s.actions.NewBisect(ctx, req)
	if err != nil {
		return err
	}
	defer s.onHangUp(giveUp)()
	out := &events{w: w, form: cmp.Or(streamForm(r), linesType), giveUp: giveUp}
	out.begin()
	defer sync.OnceFunc(out.beat(s.heartbeat, func() *api.Waiting { return nil }))() // also of a panic
	begun.Run(ctx, func(e api.BisectEvent) error {
		line, err := api.Encode(e)
		if err != nil {
			return err
		}
		return out.write(e.Event, 0, line)
	})
	return nil // it was reported in the stream
}

// onHangUp gives up once the server ends, until stop.
func (s *Server) onHangUp(giveUp context.CancelCauseFunc) (stop func()) {
	return channel.Go(func(over <-chan struct{}) {
		select {
		case <-s.hungUp:
			giveUp(errStopping)
		case <-over:
		}
	})
}
