package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
)

// makeDirectory makes a directory.
func (s *Server) makeDirectory(w http.ResponseWriter, r *http.Request) error {
	return s.changeTree(w, r, func(name string) (*call, error) {
		parents, err := yes(r, "parents")
		if err != nil {
			return nil, err
		}
		mode, err := fileMode(r)
		if err != nil {
			return nil, err
		}
		facts := fmt.Sprintf("%t %s", parents, r.URL.Query().Get("mode"))
		return newFileCall(r, "make_directory", name, facts, func(ctx context.Context, _ api.Watch) (api.Observation, error) {
			return s.cfg.MakeDirectory(ctx, name, parents, mode)
		})
	})
}

// moveFile gives a file or a directory another name.
func (s *Server) moveFile(w http.ResponseWriter, r *http.Request) error {
	return s.changeTree(w, r, func(name string) (*call, error) {
		to, err := s.filePathIn(r, "to")
		if err != nil {
			return nil, err
		}
		replace, err := yes(r, "replace")
		if err != nil {
			return nil, err
		}
		facts := fmt.Sprintf("%q %t", to, replace)
		return newFileCall(r, "move_file", name, facts, func(ctx context.Context, _ api.Watch) (api.Observation, error) {
			return s.cfg.MoveFile(ctx, name, to, replace)
		})
	})
}

// changeTree answers the action of a request without conditions.
func (s *Server) changeTree(w http.ResponseWriter, r *http.Request, read func(name string) (*call, error)) error {
	return s.changeFile(w, r, func(r *http.Request, begun time.Time) (*call, error) {
		name, conditions, err := s.fileChange(r, begun)
		switch {
		case err != nil:
			return nil, err
		case conditions.Match != nil || conditions.NoneMatch != nil:
			return nil, refuse(http.StatusBadRequest, "%s understands no If-Match and no If-None-Match", r.URL.Path)
		}
		return read(name)
	})
}
