package server

import (
	"archive/tar"
	"fmt"
	"net/http"
	"path"

	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/server/files"
)

// maxLeftOut bounds the number of missing files that the archive of a download names.
const maxLeftOut = 1000

// packFiles streams a file, a link or a directory with all that is in it as a tar
// archive. It opens each with the rights of the sandbox's user and follows no link
// below the directory that has the first one.
func (s *Server) packFiles(w http.ResponseWriter, r *http.Request) error {
	name, err := s.filePath(r)
	if err != nil {
		return err
	}
	name = path.Clean(name)
	dir, base := path.Dir(name), path.Base(name)
	if name == "/" {
		base = "."
	}
	parent, err := s.trees.OpenParent(dir, base)
	if err != nil {
		return files.Error(err, name)
	}
	defer parent.Close()
	out := tar.NewWriter(w)
	p := &archive.Packer{Out: out, As: s.cfg.As, Exclude: files.KernelFiles}
	var leftOut []string
	missing := 0
	p.LeftOut = func(text string) {
		if missing++; missing <= maxLeftOut {
			leftOut = append(leftOut, text)
		}
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := p.Pack(parent, base, base); err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	if missing > maxLeftOut {
		leftOut = append(leftOut, fmt.Sprintf("%d more", missing-maxLeftOut))
	}
	for _, text := range leftOut {
		if err := p.NoteLeftOut(text); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	return nil
}
