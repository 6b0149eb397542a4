package server

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// downloadFiles streams a directory as a zip, or a zip with one file in it.
// Nothing is written to disk; the length is not known before the end.
func (s *Server) downloadFiles(w http.ResponseWriter, r *http.Request) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("query: %v", err)
	}
	if !q.Has("path") {
		return invalid("query.path: missing")
	}
	values := q["path"]
	name := values[len(values)-1]
	if err := checkPath("Path", name); err != nil {
		return err
	}
	p := packer{as: s.cfg.As, zip: zip.NewWriter(w), buf: make([]byte, 128<<10)}
	info, err := p.check(name)
	if err != nil {
		return fileError(err, name, http.StatusNotFound)
	}
	h := w.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Disposition", disposition(name))
	if info.IsDir() {
		err = p.directory(r.Context(), name, "")
	} else {
		err = p.file(r.Context(), name, path.Base(name))
	}
	if err != nil {
		return err
	}
	return p.close()
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

// packer writes a zip without packing: the files of a project are small, and
// the connection is local.
type packer struct {
	as      func(func() error) error
	zip     *zip.Writer
	buf     []byte
	skipped []string // what could not be read, with the reason
	missing int      // how much that is, also where the list is full
}

// check finds out before the first byte is sent whether there is something to
// send. What is neither file nor directory is not opened: a device might act
// on it.
func (p *packer) check(name string) (info fs.FileInfo, err error) {
	err = p.as(func() (err error) {
		if info, err = statFile(name); err != nil {
			return err
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return refuse(http.StatusBadRequest, "Path is neither a directory nor a file but %s", fileKind(info.Mode()))
		}
		f, err := openFile(name, os.O_RDONLY)
		if err != nil {
			return err
		}
		return f.Close()
	})
	return info, err
}

// directory writes the files below dir, under names that begin with prefix.
// Symbolic links to files are written as files, those to directories are not
// followed, and whatever is neither file nor directory is not opened.
func (p *packer) directory(ctx context.Context, dir, prefix string) error {
	var entries []fs.DirEntry
	err := p.as(func() (err error) {
		entries, err = os.ReadDir(dir)
		return err
	})
	if err != nil {
		p.skip(prefix, err) // with what could be read of it
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return fmt.Errorf("packing %q: %w", dir, ctx.Err())
		}
		full, name := filepath.Join(dir, e.Name()), prefix+e.Name()
		switch {
		case e.IsDir():
			err = p.directory(ctx, full, name+"/")
		case e.Type().IsRegular():
			err = p.file(ctx, full, name)
		case e.Type()&fs.ModeSymlink != 0:
			if info, statErr := p.stat(full); statErr != nil || !info.Mode().IsRegular() {
				continue
			}
			err = p.file(ctx, full, name)
		default:
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// file writes one file as it is now: what is added to it meanwhile is left
// out, so that a file that grows has an end.
func (p *packer) file(ctx context.Context, full, name string) error {
	f, info, err := p.open(full)
	if err != nil {
		p.skip(name, err)
		return nil
	}
	defer f.Close()
	header := &zip.FileHeader{Name: name, Method: zip.Store, Modified: info.ModTime()}
	header.SetMode(info.Mode())
	w, err := p.zip.CreateHeader(header)
	if err != nil {
		return fmt.Errorf("packing %q: %w", full, err)
	}
	for left := info.Size(); left > 0; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("packing %q: %w", full, err)
		}
		n, err := f.Read(p.buf[:min(left, int64(len(p.buf)))])
		left -= int64(n)
		if _, err := w.Write(p.buf[:n]); err != nil {
			return fmt.Errorf("packing %q: %w", full, err)
		}
		if err == io.EOF {
			return nil // it shrank
		}
		if err != nil {
			return fmt.Errorf("packing %q: %w", full, err)
		}
	}
	return nil
}

var errNotRegular = errors.New("is no regular file any more")

// open opens a regular file. It does not wait for what became a FIFO since it
// was listed.
func (p *packer) open(full string) (f *os.File, info fs.FileInfo, err error) {
	err = p.as(func() (err error) {
		if f, err = openFile(full, os.O_RDONLY); err != nil {
			return err
		}
		if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
			err = errNotRegular
		}
		if err != nil {
			err = errors.Join(err, f.Close())
		}
		return err
	})
	return f, info, err
}

func (p *packer) stat(name string) (info fs.FileInfo, err error) {
	err = p.as(func() (err error) {
		info, err = statFile(name)
		return err
	})
	return info, err
}

// skip remembers what is missing in the zip. What went away meanwhile is not
// missing.
func (p *packer) skip(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err // the name is enough
	}
	const most = 1000
	if p.missing++; p.missing <= most {
		p.skipped = append(p.skipped, fmt.Sprintf("%q: %v", name, err))
	}
}

// close ends the zip. Its comment lists what was skipped, as far as it goes.
func (p *packer) close() error {
	if p.missing > 0 {
		const longest = 65535 // of the format
		comment := fmt.Sprintf("Not readable, and left out: %d\n", p.missing) + strings.Join(p.skipped, "\n")
		if err := p.zip.SetComment(comment[:min(len(comment), longest)]); err != nil {
			return fmt.Errorf("ending zip: %w", err)
		}
	}
	if err := p.zip.Close(); err != nil {
		return fmt.Errorf("ending zip: %w", err)
	}
	return nil
}
