package server

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/actiond/actiond/api"
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
