package server

import (
	"archive/tar"
	"errors"
	"fmt"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/httpserver"
)

// unpackArchive puts the files of a tar archive into a directory as they come.
// Each file is opened with the rights of the sandbox's user, never with others: the
// archive may be for a path that an agent has made lead elsewhere.
func (s *Server) unpackArchive(w http.ResponseWriter, r *http.Request) error {
	name, err := s.filePath(r)
	if err != nil {
		return err
	}
	var dir *os.File
	err = s.cfg.As(func() (err error) {
		dir, err = files.Open(name, os.O_RDONLY|unix.O_DIRECTORY|unixFlags, 0)
		return err
	})
	if err != nil {
		return fileError(err, name, http.StatusNotFound)
	}
	defer dir.Close()
	// The archive may come from a pipe whose other side takes its time.
	httpserver.PatientBody(r)
	body := &source{Reader: r.Body}
	u := &archive.Unpacker{Root: dir, AllLinks: true, DirMode: newDirectory, As: s.cfg.As}
	n, err := u.Unpack(tar.NewReader(body), nil)
	switch {
	case err == nil:
		return writeJSON(w, http.StatusOK, api.Unpacked{Entries: n})
	case body.err != nil:
		return unreadBody(r, body.err)
	case errors.Is(err, archive.ErrExists):
		return refuse(http.StatusConflict, "%v", err)
	case errors.Is(err, archive.ErrFull):
		return refuse(http.StatusInsufficientStorage, "%v", err)
	case errors.Is(err, archive.ErrHostile), errors.Is(err, archive.ErrFormat):
		return refuse(http.StatusBadRequest, "%v", err)
	}
	if refusal, ok := errors.AsType[*api.Error](fileError(err, name, http.StatusNotFound)); ok {
		return refuse(refusal.Status, "%v", err) // which names the member
	}
	return fmt.Errorf("unpacking in %s: %w", name, err)
}
