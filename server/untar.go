package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/archive"
	osfiles "github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/server/files"
)

// unpackArchive puts the files of a tar archive into a directory: as they come, or with an
// id as an action, once the whole archive is here.
// Each file is opened with the rights of the sandbox's user, never with others: the
// archive may be for a path that an agent has made lead elsewhere.
func (s *Server) unpackArchive(w http.ResponseWriter, r *http.Request) error {
	if len(r.Header[api.IdentityHeader]) == 0 {
		return s.working(s.unpackStream)(w, r)
	}
	return s.changeFile(w, r, s.readArchive)
}

// unpackTarget is the directory in the query of a request.
func (s *Server) unpackTarget(r *http.Request) (name string, create bool, err error) {
	if name, err = s.filePath(r); err == nil {
		create, err = yes(r, "create")
	}
	return name, create, err
}

func (s *Server) unpackStream(w http.ResponseWriter, r *http.Request) error {
	name, create, err := s.unpackTarget(r)
	if err != nil {
		return err
	}
	// The archive may come from a pipe whose other side takes its time.
	httpserver.PatientBody(r)
	body := &source{Reader: r.Body}
	n := 0
	_, err = s.actions.Beside(r.Context(), api.CauseUpload, false, func() (err error) {
		n, err = s.trees.Untar(name, create, body)
		return err
	})
	switch {
	case err == nil:
		return writeJSON(w, http.StatusOK, api.Unpacked{Entries: n})
	case body.err != nil:
		return unreadBody(r, body.err)
	}
	return unpackError(err, name)
}

// readArchive receives an archive whole, so that a body that is cut does nothing, and its hash
// reports whether it is the one that came with the id before.
func (s *Server) readArchive(r *http.Request, begun time.Time) (*call, error) {
	name, create, err := s.unpackTarget(r)
	if err != nil {
		return nil, err
	}
	s.last.Store(int64(begun.Sub(s.started)))
	if r.ContentLength > s.cfg.MaxUpload {
		return nil, unreadFile(r, &http.MaxBytesError{Limit: s.cfg.MaxUpload}, name)
	}
	buffer, err := s.newBuffer()
	if err != nil {
		return nil, err
	}
	discard := sync.OnceFunc(func() { _ = buffer.Close() }) // it has no name
	httpserver.PatientBody(r)
	body, hash := &source{Reader: http.MaxBytesReader(nil, r.Body, s.cfg.MaxUpload)}, sha256.New()
	_, err = io.Copy(io.MultiWriter(buffer, hash), body)
	switch {
	case body.err != nil:
		err = unreadFile(r, body.err, name)
	case err != nil:
		err = files.Error(err, "the buffer of the archive")
	}
	var c *call
	if err == nil {
		facts := fmt.Sprintf("%x %t", hash.Sum(nil), create)
		c, err = newFileCall(r, "unpack", name, facts, func(context.Context, api.Watch) (api.Observation, error) {
			return s.unpackBuffer(name, create, buffer)
		})
	}
	if err != nil {
		discard()
		return nil, err
	}
	c.unused = discard
	unpack := c.Do
	c.Do = func(ctx context.Context, w api.Watch) (api.Observation, error) {
		defer discard() // also where the action is cancelled before it begins
		return unpack(ctx, w)
	}
	return c, nil
}

// unpackBuffer unpacks an archive in a file. Where a part was unpacked before an error, the
// observation says so.
func (s *Server) unpackBuffer(name string, create bool, buffer *os.File) (api.Observation, error) {
	if _, err := buffer.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the buffer of an archive: %w", err)
	}
	entries, err := s.trees.Untar(name, create, buffer)
	if err == nil {
		return api.FileObservation{Path: name, Directory: true, Entries: &entries}, nil
	}
	err = unpackError(err, name)
	if refusal, ok := errors.AsType[*api.Error](err); ok && entries > 0 {
		text := fmt.Sprintf("%d entries of the archive were unpacked, and then: %s", entries, refusal.Detail)
		return api.ErrorObservation{Content: text, Code: refusal.Fault.Code}, nil
	}
	return nil, err
}

// unpackError returns the error of an archive, or of the member that could not be unpacked.
func unpackError(err error, dir string) error {
	fault := api.Fault{Path: dir, Errno: osfiles.Errno(err)}
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
		refusal, ok := errors.AsType[*api.Error](files.Error(err, dir))
		if !ok {
			return fmt.Errorf("unpacking in %s: %w", dir, err)
		}
		if fault.Path == dir { // it is about the directory itself
			return refusal
		}
		fault.Code = osfiles.Code(err)
	}
	return api.FileError(fault, err.Error()) // which names the member
}
