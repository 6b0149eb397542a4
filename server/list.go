package server

import (
	"cmp"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/reply"
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
	if !filepath.IsAbs(path) {
		path = s.cfg.WorkingDir + "/" + path // not cleaned: what .. means is for the kernel to say
	}
	return reply.Value(w, http.StatusOK, s.names(path))
}

// names returns the entries of a directory: directories with a slash at their
// end, then everything else, each in the order of their lower-case letters.
// Symbolic links count as what they point to, and not at all when that is
// missing.
func (s *Server) names(dir string) []string {
	directories, others := []string{}, []string{}
	// An error leaves the list empty.
	_ = s.cfg.As(func() error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			isDir := e.IsDir()
			if e.Type()&os.ModeSymlink != 0 {
				target, err := statFile(filepath.Join(dir, e.Name()))
				if err != nil {
					continue
				}
				isDir = target.IsDir()
			}
			if isDir {
				directories = append(directories, e.Name()+"/")
			} else {
				others = append(others, e.Name())
			}
		}
		return nil
	})
	slices.SortFunc(directories, compareFolded)
	slices.SortFunc(others, compareFolded)
	return append(directories, others...)
}

// compareFolded orders without regard to case, and by it where only it differs.
func compareFolded(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}
