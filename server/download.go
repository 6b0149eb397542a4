package server

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/actiond/actiond/actions"
)

// downloadFiles streams a directory as a zip, or a zip with one file in it.
// Nothing is written to disk; the length is not known before the end.
func (s *Server) downloadFiles(w http.ResponseWriter, r *http.Request) error {
	name, err := queryPath(r, "path")
	if err == nil {
		err = checkPath("Path", name)
	}
	if err != nil {
		return err
	}
	z, err := s.trees.OpenZip(r.Context(), name)
	if err != nil {
		return err
	}
	defer z.Close()
	taken, err := s.shares.Take(r.Context(), z.ListBytes()/actions.EncodedPart)
	if err != nil {
		return err
	}
	defer s.shares.Give(taken)
	h := w.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Disposition", disposition(name))
	return z.Write(r.Context(), w)
}

// disposition names the download after the last element of a path, of which
// there is none behind a slash, as the reference does.
func disposition(name string) string {
	base := name[strings.LastIndexByte(name, '/')+1:] + ".zip"
	if escaped := url.PathEscape(base); escaped != base {
		return "attachment; filename*=utf-8''" + escaped
	}
	return `attachment; filename="` + base + `"`
}
