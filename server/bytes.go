package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	osfiles "github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/server/files"
)

// Incoming is the new content of a file, received before it takes the file's place. It is
// used by one goroutine at a time.
type Incoming interface {
	// Fill reads the whole content and brings it to the disk.
	Fill(content io.Reader) (sha256 string, size int64, err error)
	// Put gives it its place, and the mode where that is not nil.
	Put(ctx context.Context, c api.FileConditions, mode *fs.FileMode) (api.Observation, error)
	// Discard removes the received content, unless it was put in its place.
	Discard()
}

const (
	// maxTagged is the largest file that a GET hashes for a client that has no use for the
	// hash: it costs about as much as sending the file.
	maxTagged = 16 << 20
	// maxHashed is the largest file that is hashed at all: one of terabytes costs an agent
	// nothing, and the server hours. Without a tag, If-Match fails and If-Range sends all.
	maxHashed = 64 << 30
)

// queryPath returns a path in the query of a request. Of several the last counts.
func queryPath(r *http.Request, parameter string) (string, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", invalid("query: %v", err)
	}
	values := q[parameter]
	if len(values) == 0 {
		return "", invalid("query.%s: missing", parameter)
	}
	return values[len(values)-1], nil
}

// filePath returns the absolute path of a request for a file. A relative one is below the
// working directory.
func (s *Server) filePath(r *http.Request) (string, error) { return s.filePathIn(r, "path") }

func (s *Server) filePathIn(r *http.Request, parameter string) (string, error) {
	name, err := queryPath(r, parameter)
	if err == nil && name == "" { // not the working directory: a client may have lost a name
		err = refuse(http.StatusBadRequest, "Path must not be empty")
	}
	if err != nil {
		return "", err
	}
	name = s.absolute(name)
	return name, checkPath("Path", name)
}

// absolute returns a path that begins at the working directory where it is relative. It is not
// cleaned: only the kernel knows what .. means.
func (s *Server) absolute(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return s.cfg.WorkingDir + "/" + name
}

// readFile answers with the bytes of a file, or with ranges of them, or to HEAD without.
func (s *Server) readFile(w http.ResponseWriter, r *http.Request) error {
	name, err := s.filePath(r)
	if err != nil {
		return err
	}
	f, info, err := s.trees.OpenRegular(name)
	if err != nil {
		return files.Error(err, name)
	}
	defer f.Close()
	h := w.Header()
	if wantsTag(r, info.Size()) {
		tag, err := osfiles.SHA256(f, info.Size(), func() error { return context.Cause(r.Context()) })
		if err != nil {
			return files.Error(err, name)
		}
		h.Set("Etag", `"`+tag+`"`)
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set(api.ModeHeader, fmt.Sprintf("%04o", info.Mode().Perm()))
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}

// wantsTag reports whether a file is to be hashed before it is sent.
func wantsTag(r *http.Request, size int64) bool {
	h := r.Header
	asks := r.Method == http.MethodHead || h.Get("If-Match") != "" || h.Get("If-None-Match") != "" ||
		h.Get("If-Range") != ""
	return size <= maxTagged || asks && size <= maxHashed
}

// writeFile gives a file new content.
func (s *Server) writeFile(w http.ResponseWriter, r *http.Request) error {
	return s.changeFile(w, r, s.readContent)
}

// changeFile answers an action that read makes of a request, whose body is not read whole.
func (s *Server) changeFile(
	w http.ResponseWriter, r *http.Request, read func(r *http.Request, begun time.Time) (*call, error),
) error {
	c, leave, err := s.enterWith(r, func(begun time.Time) (*call, error) { return read(r, begun) })
	if err != nil {
		return err
	}
	return s.perform(w, r, c, leave)
}

// removeFile removes a file, or a directory with all that is in it.
func (s *Server) removeFile(w http.ResponseWriter, r *http.Request) error {
	return s.changeFile(w, r, func(r *http.Request, begun time.Time) (*call, error) {
		name, conditions, err := s.fileChange(r, begun)
		if err != nil {
			return nil, err
		}
		recursive, err := yes(r, "recursive")
		if err != nil {
			return nil, err
		}
		if recursive {
			return newFileCall(r, "remove_tree", name, "", func(ctx context.Context, w api.Watch) (api.Observation, error) {
				return s.cfg.RemoveTree(ctx, w, name, conditions)
			})
		}
		return newFileCall(r, "remove_file", name, "", func(ctx context.Context, _ api.Watch) (api.Observation, error) {
			return s.cfg.RemoveFile(ctx, name, conditions)
		})
	})
}

// fileChange reads the name, the conditions and the key that all requests that change a file have.
func (s *Server) fileChange(r *http.Request, begun time.Time) (name string, c api.FileConditions, err error) {
	if s.cfg.StageFile == nil || s.cfg.RemoveFile == nil {
		return "", c, refuse(http.StatusBadRequest, "Changing files by %s is disabled on this server", r.URL.Path)
	}
	if name, err = s.filePath(r); err != nil {
		return "", c, err
	}
	s.last.Store(int64(begun.Sub(s.started)))
	c.Match, err = entityTags(r, "If-Match", false)
	if err == nil {
		c.NoneMatch, err = entityTags(r, "If-None-Match", true)
	}
	return name, c, err
}

// entityTags returns the hashes in a header, nil without it. A weak tag matches only
// where weak says so.
func entityTags(r *http.Request, header string, weak bool) ([]string, error) {
	if len(r.Header.Values(header)) == 0 {
		return nil, nil
	}
	tags := []string{}
	for tag := range strings.SplitSeq(strings.Join(r.Header.Values(header), ","), ",") {
		tag = strings.TrimSpace(tag)
		strong := strings.TrimPrefix(tag, "W/")
		switch {
		case tag == "*":
			tags = append(tags, tag)
		case len(strong) < 2 || strong[0] != '"' || strong[len(strong)-1] != '"':
			return nil, invalid("header.%s: must be * or entity tags in quotes, got %s", header, api.Describe(tag))
		case weak || strong == tag:
			tags = append(tags, strong[1:len(strong)-1])
		}
	}
	return tags, nil
}

// readContent receives the content of a file. The journal's entry of the action is known
// only then; a body that is cut leaves none.
func (s *Server) readContent(r *http.Request, begun time.Time) (*call, error) {
	name, conditions, err := s.fileChange(r, begun)
	if err != nil {
		return nil, err
	}
	mode, err := fileMode(r)
	switch {
	case err != nil:
		return nil, err
	case r.Header.Get("Content-Range") != "" || r.Header.Get("Content-Encoding") != "":
		return nil, refuse(http.StatusBadRequest,
			"A file is written as a whole and as it is: Content-Range and Content-Encoding are not understood")
	case r.ContentLength > s.cfg.MaxUpload:
		return nil, unreadFile(r, &http.MaxBytesError{Limit: s.cfg.MaxUpload}, name)
	}
	before, err := s.actions.BeginBefore(r.Context()) // the content is received beside the file
	if err != nil {
		return nil, err
	}
	carried := false
	defer func() {
		if !carried {
			s.actions.LeaveBefore(before)
		}
	}()
	in, err := s.cfg.StageFile(r.Context(), name)
	if err != nil {
		return nil, err
	}
	httpserver.PatientBody(r) // the content may come from a pipe
	body := &source{Reader: http.MaxBytesReader(nil, r.Body, s.cfg.MaxUpload)}
	sum, size, err := in.Fill(body)
	if err != nil {
		in.Discard()
		if body.err != nil {
			err = unreadFile(r, body.err, name)
		}
		return nil, files.Error(err, name)
	}
	facts := fmt.Sprintf("%s %d %s", sum, size, r.URL.Query().Get("mode"))
	c, err := newFileCall(r, "write_file", name, facts, func(ctx context.Context, _ api.Watch) (api.Observation, error) {
		return in.Put(ctx, conditions, mode)
	})
	if err != nil {
		in.Discard()
		return nil, err
	}
	carried, c.Before = true, before
	c.unused = func() {
		in.Discard()
		s.actions.LeaveBefore(before)
	}
	put := c.Do
	c.Do = func(ctx context.Context, w api.Watch) (api.Observation, error) {
		defer in.Discard() // also where the action is cancelled before it begins
		return put(ctx, w)
	}
	return c, nil
}

// unreadFile is unreadBody for the content of a file.
func unreadFile(r *http.Request, err error, name string) error {
	err = unreadBody(r, err)
	if refusal, ok := errors.AsType[*api.Error](err); ok && refusal.Status == http.StatusRequestEntityTooLarge {
		refusal.Fault = api.Fault{Code: "file_too_large", Path: name}
	}
	return err
}

// fileMode returns the mode in the query, nil without one.
func fileMode(r *http.Request) (*fs.FileMode, error) {
	text := r.URL.Query().Get("mode")
	if text == "" {
		return nil, nil //nolint:nilnil // the file's own, or the default
	}
	bits, err := strconv.ParseUint(text, 8, 32)
	if err != nil || bits > uint64(fs.ModePerm) {
		return nil, invalid("query.mode: must be permission bits in octal, at most 0777, got %s", api.Describe(text))
	}
	return new(fs.FileMode(bits)), nil
}

// newFileCall makes the action of a request that changes a file. Facts are those of its
// body.
func newFileCall(
	r *http.Request, kind, name, facts string, change func(ctx context.Context, w api.Watch) (api.Observation, error),
) (*call, error) {
	asked, err := askedInHeader(r)
	if err != nil {
		return nil, err
	}
	c := newCall(api.Request{Action: api.WriteAction{Path: name}, Changes: asked}, kind, formAction)
	c.inHeader = true
	c.status = fileStatus
	c.Do = func(ctx context.Context, w api.Watch) (api.Observation, error) {
		if err := w.Begins(); err != nil {
			return nil, err
		}
		return change(ctx, w)
	}
	h := r.Header
	return c, c.identify(r, fmt.Appendf(nil, "%s %q %q %q %s", kind, name, h.Values("If-Match"), h.Values("If-None-Match"), facts))
}

// fileStatus is the status of an answer about a file, whose entity tag it sets.
func fileStatus(h http.Header, body []byte) int {
	o, err := api.DecodeObservation(body)
	file, ok := o.(api.FileObservation)
	if err != nil || !ok {
		return http.StatusOK
	}
	if file.SHA256 != "" {
		h.Set("Etag", `"`+file.SHA256+`"`)
	}
	if file.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}
