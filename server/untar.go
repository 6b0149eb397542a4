package server

import (
	"archive/tar"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"

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
		return fileError(err, name)
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
	}
	return unpackError(err, name)
}

// unpackError says what is wrong with an archive, or with the member that could not be unpacked.
func unpackError(err error, dir string) error {
	fault := api.Fault{Path: dir, Errno: files.Errno(err)}
	if member, ok := errors.AsType[*archive.MemberError](err); ok {
		fault.Path = path.Join(dir, member.Name)
	}
	switch {
	case errors.Is(err, archive.ErrExists):
		fault.Code = "already_exists"
	case errors.Is(err, archive.ErrFull):
		fault.Code = "no_space"
	case errors.Is(err, archive.ErrHostile), errors.Is(err, archive.ErrFormat):
		fault.Code = "invalid_argument"
	default:
		if _, ok := errors.AsType[*api.Error](fileError(err, dir)); !ok {
			return fmt.Errorf("unpacking in %s: %w", dir, err)
		}
		fault.Code = files.Code(err)
	}
	return api.FileError(fault, err.Error()) // which names the member
}
