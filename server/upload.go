package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/files"
)

// maxParts bounds the fields of a form; one is wanted, and clients add few.
const maxParts = 16

// uploadFile puts a file, or the members of a zip, into a directory.
//
// The whole body is in a file of our own before the destination is opened,
// because the two may be the same file on the client's side.
func (s *Server) uploadFile(w http.ResponseWriter, r *http.Request) error {
	result, err := uploadQuery(r)
	if err != nil {
		return err
	}
	asked, err := askedInHeader(r)
	if err != nil {
		return err
	}
	buffer, err := s.newBuffer()
	if err != nil {
		return err
	}
	defer buffer.Close()
	size, err := s.receive(r, buffer, &result)
	if err != nil {
		return err
	}
	changed, err := s.actions.Beside(r.Context(), api.CauseUpload, asked != "", func() error { //nolint:contextcheck // it has the one of the request
		if strings.HasSuffix(result.Filename, ".zip") {
			return s.trees.Unzip(r.Context(), buffer, size, result.Destination)
		}
		return s.trees.Put(r.Context(), result.Destination, []files.Incoming{{
			Name: result.Filename, Size: size, Follow: true,
			Open: func() (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(buffer, 0, size)), nil
			},
		}})
	})
	if err != nil {
		return err
	}
	if asked != "" && changed != nil {
		w.Header().Set(api.ChangesHeader, changed.Header())
	}
	return writeJSON(w, http.StatusOK, result)
}

// uploadQuery reads where to and how an upload goes. Of a parameter that came
// several times the last counts.
func uploadQuery(r *http.Request) (api.UploadResult, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return api.UploadResult{}, invalid("query: %v", err)
	}
	result := api.UploadResult{Destination: "/"}
	if v := q["destination"]; len(v) > 0 {
		result.Destination = v[len(v)-1]
	}
	if v := q["recursive"]; len(v) > 0 {
		if result.Recursive, err = parseBool(v[len(v)-1]); err != nil {
			return api.UploadResult{}, err
		}
	}
	if err := checkPath("Destination", result.Destination); err != nil {
		return api.UploadResult{}, err
	}
	return result, nil
}

// parseBool knows the words that the reference knows.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "1", "yes", "on", "t", "y":
		return true, nil
	case "false", "0", "no", "off", "f", "n":
		return false, nil
	}
	return false, invalid("query.recursive: must be true or false, got %q", s)
}

// checkPath refuses a text that is not an absolute path. what names the parameter.
func checkPath(what, path string) error {
	if !filepath.IsAbs(path) {
		return refuse(http.StatusBadRequest, "%s must be an absolute path", what)
	}
	if strings.ContainsRune(path, 0) {
		return refuse(http.StatusBadRequest, "%s must not hold a NUL character", what)
	}
	return nil
}

// newBuffer returns an empty file without a name, so that nothing is left of it
// whatever happens.
func (s *Server) newBuffer() (*os.File, error) {
	fd, err := unix.Open(s.cfg.TempDir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "the buffer of an upload"), nil
	}
	f, err := os.CreateTemp(s.cfg.TempDir, "upload-*") // not every file system can make such files
	if err != nil {
		return nil, fmt.Errorf("buffering upload: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("buffering upload: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}

// receive reads the whole form, puts the content of its one file into buffer
// and returns its size; the name goes into result.
func (s *Server) receive(r *http.Request, buffer *os.File, result *api.UploadResult) (size int64, err error) {
	if r.ContentLength > s.cfg.MaxUpload {
		return 0, unreadBody(r, &http.MaxBytesError{Limit: s.cfg.MaxUpload})
	}
	r.Body = http.MaxBytesReader(nil, r.Body, s.cfg.MaxUpload)
	form, err := r.MultipartReader()
	if err != nil {
		return 0, invalid("body: must be multipart/form-data with a file in the field \"file\": %v", err)
	}
	found := false
	for range maxParts {
		part, err := form.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) && !found:
			return 0, invalid("body.file: missing")
		case errors.Is(err, io.EOF):
			return size, nil
		case err != nil:
			return 0, formError(r, err)
		case part.FormName() != "file":
			continue // NextRawPart reads over its content
		case found:
			return 0, invalid("body.file: came twice")
		}
		found = true
		if result.Filename, err = fileName(part, result.Recursive); err != nil {
			return 0, err
		}
		if size, err = fill(r, buffer, part); err != nil {
			return 0, err
		}
	}
	return 0, invalid("body: has more than %d fields", maxParts)
}

// formError distinguishes a broken connection from a broken form.
func formError(r *http.Request, err error) error {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	if tooLarge || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.ErrUnexpectedEOF) || r.Context().Err() != nil {
		return unreadBody(r, err)
	}
	return invalid("body: %v", err)
}

// fileName returns the name of a form's file as it was sent, unlike
// part.FileName, which takes the last element of whatever path came.
func fileName(part *multipart.Part, recursive bool) (string, error) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", invalid("body.file: content disposition: %v", err)
	}
	name, ok := params["filename"]
	switch {
	case !ok:
		return "", invalid("body.file: must be a file with a file name")
	case name == "", name == ".", name == "..", strings.ContainsAny(name, "/\x00"):
		return "", refuse(http.StatusBadRequest, "The file name must be a name without directories, got %q", name)
	case recursive && !strings.HasSuffix(name, ".zip"):
		return "", refuse(http.StatusBadRequest, "Recursive uploads must be zip files")
	}
	return name, nil
}

// fill copies a part into the buffer and returns its size.
func fill(r *http.Request, buffer *os.File, part io.Reader) (int64, error) {
	source := &source{Reader: part}
	n, err := io.Copy(buffer, source)
	switch {
	case source.err != nil:
		return 0, formError(r, source.err)
	case err != nil:
		return 0, files.LegacyError(err, "the buffer of the upload", http.StatusInternalServerError)
	}
	return n, nil
}

// source remembers that it was the reading that failed, and not the writing.
type source struct {
	io.Reader
	err error
}

// Read reads on.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != io.EOF {
		s.err = err
	}
	return n, err
}
