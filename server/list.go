package server

import (
	"net/http"

	"github.com/actiond/actiond/api"
)

// listFiles answers with the names in a directory, which is empty when there
// is no such directory: clients ask to find out.
func (s *Server) listFiles(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r, maxSmallBody)
	if err != nil {
		return err
	}
	path, err := api.DecodeListFiles(body)
	if err != nil {
		return err
	}
	names, err := s.trees.Names(s.absolute(path))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, names)
}
