package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/actiond/actiond/api"
)

// FileInfo describes a file in a sandbox.
type FileInfo struct {
	// Size is in bytes, -1 if it is unknown.
	Size int64
	// Mode has the permission bits.
	Mode fs.FileMode
	// SHA256 is the hash of the bytes in hexadecimal, or "" if the sandbox did not compute
	// it: OpenFile returns it for files of up to 16 MiB.
	SHA256 string
}

// WriteOptions are the options of [Client.WriteFile]. The zero value writes
// unconditionally.
type WriteOptions struct {
	// Mode has the permission bits; 0 keeps those of the file, or takes the default.
	Mode fs.FileMode
	// IfSHA256 is the hash that the file must have, and IfNew requires that the file does
	// not exist; otherwise the error is a *StatusError of 412 and nothing is changed.
	IfSHA256 string
	IfNew    bool
}

// OpenFile returns the bytes of a file, by its absolute path, from offset on. The caller must
// close it. ctx bounds the reading too.
func (c *Client) OpenFile(ctx context.Context, path string, offset int64) (io.ReadCloser, FileInfo, error) {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", "bytes="+strconv.FormatInt(offset, 10)+"-")
	}
	answer, err := c.send(ctx, header, http.MethodGet, filesPath(path), "", nil)
	if err != nil {
		return nil, FileInfo{}, err
	}
	return answer, fileInfo(answer.header), nil
}

// ReadFile returns all bytes of a file, at most Config.MaxResponse.
func (c *Client) ReadFile(ctx context.Context, path string) ([]byte, error) {
	return c.exchange(ctx, nil, http.MethodGet, filesPath(path), "", nil, c.maxResponse)
}

// StatFile describes a file, with its hash, for which the sandbox reads all of it. The error
// is a *StatusError of 404 if the file does not exist.
func (c *Client) StatFile(ctx context.Context, path string) (FileInfo, error) {
	answer, err := c.send(ctx, nil, http.MethodHead, filesPath(path), "", nil)
	if err != nil {
		return FileInfo{}, err
	}
	return fileInfo(answer.header), answer.Close()
}

// WriteFile replaces the content of a file, or creates it and its parent directories. It
// runs once, as [Client.Do] does: after the connection broke it is sent again if content is an
// io.Seeker, from the initial position.
func (c *Client) WriteFile(
	ctx context.Context, path string, content io.Reader, o WriteOptions,
) (api.FileObservation, error) {
	target := filesPath(path)
	if o.Mode != 0 {
		target += fmt.Sprintf("&mode=%04o", o.Mode.Perm())
	}
	again := repeated(content)
	return c.changeFile(ctx, o.conditions(), func(header http.Header) ([]byte, error) {
		if err := again(); err != nil {
			return nil, fmt.Errorf("writing %q: %w", path, err)
		}
		return c.exchange(ctx, header, http.MethodPut, target, "application/octet-stream", struct{ io.Reader }{content},
			maxSmall)
	})
}

// repeated returns a function that is called before content is sent, and from the second time on
// goes back to the initial position, where content is an io.Seeker.
func repeated(content io.Reader) func() error {
	seeker, seeks := content.(io.Seeker)
	begin := int64(0)
	if seeks {
		var err error
		if begin, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			seeks = false
		}
	}
	tries := 0
	return func() error {
		if tries++; tries == 1 {
			return nil
		}
		if !seeks {
			return errors.New("the connection broke, and the content cannot be read again: it may have been received")
		}
		_, err := seeker.Seek(begin, io.SeekStart)
		return err
	}
}

// UnpackOnce is [Client.Unpack] as an action that runs once, as [Client.WriteFile] does: the sandbox
// receives the whole archive, which its bound of uploads limits, before the first file is
// made. With create the directory is made where it is missing. Where a part was unpacked before
// an error, that is a *PartlyDoneError.
func (c *Client) UnpackOnce(
	ctx context.Context, directory string, archive io.Reader, create bool,
) (entries int, err error) {
	target := "/v1/unpack?" + url.Values{"path": {directory}, "create": {strconv.FormatBool(create)}}.Encode()
	again := repeated(archive)
	o, err := c.changeFile(ctx, nil, func(header http.Header) ([]byte, error) {
		if err := again(); err != nil {
			return nil, fmt.Errorf("unpacking in %q: %w", directory, err)
		}
		return c.exchange(ctx, header, http.MethodPost, target, "application/x-tar", struct{ io.Reader }{archive}, maxSmall)
	})
	if err == nil && o.Entries != nil {
		entries = *o.Entries
	}
	return entries, err
}

// RemoveFile removes a file or a symbolic link; with a hash, only a file with this hash. It
// runs once, as [Client.Do] does.
func (c *Client) RemoveFile(ctx context.Context, path, ifSHA256 string) (api.FileObservation, error) {
	return c.changeFile(ctx, WriteOptions{IfSHA256: ifSHA256}.conditions(), func(header http.Header) ([]byte, error) {
		return c.exchange(ctx, header, http.MethodDelete, filesPath(path), "", nil, maxSmall)
	})
}

// RemoveAll removes a directory with all that is in it, or a file or a symbolic link. It runs
// once, as [Client.Do] does. Where the sandbox removed a part before it failed, the error is a
// *PartlyDoneError.
func (c *Client) RemoveAll(ctx context.Context, path string) (api.FileObservation, error) {
	return c.changeTree(ctx, http.MethodDelete, "/v1/files", url.Values{"path": {path}, "recursive": {"true"}})
}

// PartlyDoneError reports that a change of several files failed after a part was done, or was
// cancelled.
type PartlyDoneError struct{ Observation api.ErrorObservation }

// Error returns the sandbox's text.
func (e *PartlyDoneError) Error() string { return e.Observation.Content }

// MakeDirectory makes a directory; a mode of 0 is the default. With parents those above it are
// made as well, and a directory that exists is no error. It runs once, as [Client.Do] does.
func (c *Client) MakeDirectory(
	ctx context.Context, path string, parents bool, mode fs.FileMode,
) (api.FileObservation, error) {
	query := url.Values{"path": {path}, "parents": {strconv.FormatBool(parents)}}
	if mode != 0 {
		query.Set("mode", fmt.Sprintf("%04o", mode.Perm()))
	}
	return c.changeTree(ctx, http.MethodPost, "/v1/files/mkdir", query)
}

// MoveFile gives a file or a directory another name on the same file system, which must be free
// unless replace is set. It runs once, as [Client.Do] does.
func (c *Client) MoveFile(ctx context.Context, from, to string, replace bool) (api.FileObservation, error) {
	return c.changeTree(ctx, http.MethodPost, "/v1/files/move",
		url.Values{"path": {from}, "to": {to}, "replace": {strconv.FormatBool(replace)}})
}

func (c *Client) changeTree(ctx context.Context, method, route string, query url.Values) (api.FileObservation, error) {
	return c.changeFile(ctx, nil, func(header http.Header) ([]byte, error) {
		return c.exchange(ctx, header, method, route+"?"+query.Encode(), "", nil, maxSmall)
	})
}

func (o WriteOptions) conditions() http.Header {
	header := http.Header{}
	if o.IfSHA256 != "" {
		header.Set("If-Match", `"`+o.IfSHA256+`"`)
	}
	if o.IfNew {
		header.Set("If-None-Match", "*")
	}
	return header
}

// changeFile sends an action that changes a file until it was answered.
func (c *Client) changeFile(
	ctx context.Context, conditions http.Header, send func(http.Header) ([]byte, error),
) (api.FileObservation, error) {
	var o api.Observation
	err := c.once(ctx, "", new(uint64), func(header http.Header) error {
		maps.Copy(header, conditions)
		data, err := send(header)
		if err == nil {
			o, err = api.DecodeObservation(data)
		}
		return err
	})
	if o, err = known(o, err); err != nil {
		return api.FileObservation{}, err
	}
	if failed, ok := o.(api.ErrorObservation); ok {
		return api.FileObservation{}, &PartlyDoneError{failed}
	}
	file, ok := o.(api.FileObservation)
	if !ok {
		return api.FileObservation{}, fmt.Errorf("changing a file: the answer is a %q observation", o.Kind())
	}
	return file, nil
}

func filesPath(path string) string { return "/v1/files?" + url.Values{"path": {path}}.Encode() }

// fileInfo reads the header of an answer about a file.
func fileInfo(h http.Header) FileInfo {
	info := FileInfo{Size: -1, SHA256: strings.Trim(h.Get("Etag"), `"`)}
	size := h.Get("Content-Length")
	if _, total, ok := strings.Cut(h.Get("Content-Range"), "/"); ok {
		size = total
	}
	if n, err := strconv.ParseInt(size, 10, 64); err == nil {
		info.Size = n
	}
	if mode, err := strconv.ParseUint(h.Get(api.ModeHeader), 8, 32); err == nil {
		info.Mode = fs.FileMode(mode).Perm()
	}
	return info
}
