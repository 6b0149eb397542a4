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
	"strings"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/internal/files"
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
	p := packer{as: s.cfg.As, zip: zip.NewWriter(w), buf: make([]byte, 128<<10)}
	f, info, err := p.check(r.Context(), name)
	if err != nil {
		return legacyFileError(err, name, http.StatusNotFound)
	}
	defer f.Close()
	taken, err := s.shares.Take(r.Context(), p.listSize())
	if err != nil {
		return err
	}
	defer s.shares.Give(taken)
	p.members, p.named = 0, 0
	h := w.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Disposition", disposition(name))
	if info.IsDir() {
		err = p.directory(r.Context(), f, "", 1)
	} else {
		err = p.file(r.Context(), f, info, path.Base(name))
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
	skipped []string // files that could not be read, with the reason
	missing int      // how much that is, also where the list is full
	members int      // files so far
	named   int      // bytes of their names
}

// Bounds of a download. The list of its members is held in memory until the end,
// where the format wants it.
const (
	maxPacked      = 100_000  // files
	maxPackedBytes = 16 << 20 // of their names
	// maxDepth bounds the nesting of directories, each of which is open while those
	// in it are packed.
	maxDepth = 256
)

// check opens the file or directory to send, and finds out before the first byte whether it is within
// the bounds. A path to something else than a file or a directory is not opened: a device
// might act on it.
func (p *packer) check(ctx context.Context, name string) (f *os.File, info fs.FileInfo, err error) {
	err = p.as(func() (err error) {
		kind := func() error {
			if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
				return refuse(http.StatusBadRequest, "Path is neither a directory nor a file but %s", fileKind(info.Mode()))
			}
			return err
		}
		info, err = os.Stat(name)
		if err := kind(); err != nil {
			return err
		}
		if f, err = openFile(name); err != nil {
			return err
		}
		info, err = f.Stat()
		if err := kind(); err != nil || !info.IsDir() {
			return err
		}
		if err := p.count(ctx, f, "", 1); err != nil {
			return err
		}
		_, err = f.Seek(0, io.SeekStart)
		return err
	})
	if err != nil && f != nil {
		_ = f.Close()
	}
	return f, info, err
}

// listSize returns the size of the list of the members, as large bodies count, on which the work takes
// [actions.EncodedPart] times their bytes. Measured, the library has 200 bytes and the name of each, and
// leaves 60 and the name once more as garbage when it writes the list.
func (p *packer) listSize() int64 { return int64(p.members*300+p.named*2) / actions.EncodedPart }

// count fails where the files below a directory are beyond the bounds.
func (p *packer) count(ctx context.Context, dir *os.File, prefix string, depth int) error {
	for last := false; !last; {
		entries, ended, err := readPortion(dir)
		for _, e := range entries {
			name := prefix + e.Name()
			if ctx.Err() != nil {
				return fmt.Errorf("packing %q: %w", dir.Name(), ctx.Err())
			}
			var err error
			switch {
			case e.IsDir() && depth < maxDepth:
				if below, failed := openBelow(dir, e.Name()); failed == nil {
					err = p.count(ctx, below, name+"/", depth+1)
					_ = below.Close()
				}
			case e.Type().IsRegular() || e.Type()&fs.ModeSymlink != 0:
				err = p.add(name)
			}
			if err != nil {
				return err
			}
		}
		last = ended || err != nil // unreadable directories are left out
	}
	return nil
}

// openBelow opens a directory in another one, and follows no link to one.
func openBelow(dir *os.File, name string) (*os.File, error) {
	return files.OpenAt(dir, name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unixFlags)
}

// add counts a member.
func (p *packer) add(name string) error {
	p.members++
	if p.named += len(name); p.members > maxPacked || p.named > maxPackedBytes {
		return refuse(http.StatusRequestEntityTooLarge,
			"More than %d files, or very long paths, are below the directory: download parts of it", maxPacked)
	}
	return nil
}

// directory writes the files below dir, under names that begin with prefix.
// Symbolic links to files are written as files, those to directories are not
// followed, and whatever is neither file nor directory is not opened.
func (p *packer) directory(ctx context.Context, dir *os.File, prefix string, depth int) error {
	for last := false; !last; {
		var entries []fs.DirEntry
		err := p.as(func() (err error) {
			entries, last, err = readPortion(dir)
			return err
		})
		if err != nil {
			p.skip(prefix, err) // with the rest of it
			last = true
		}
		for _, e := range entries {
			if err := p.entry(ctx, dir, prefix, depth, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// entry writes an entry of dir.
func (p *packer) entry(ctx context.Context, dir *os.File, prefix string, depth int, e fs.DirEntry) error {
	if ctx.Err() != nil {
		return fmt.Errorf("packing %q: %w", dir.Name(), ctx.Err())
	}
	name := prefix + e.Name()
	switch {
	case e.IsDir() && depth == maxDepth:
		p.skip(name, errTooDeep)
		return nil
	case e.IsDir():
		var below *os.File
		err := p.as(func() (err error) { below, err = openBelow(dir, e.Name()); return err })
		if err != nil {
			p.skip(name+"/", err)
			return nil
		}
		defer below.Close()
		return p.directory(ctx, below, name+"/", depth+1)
	case e.Type()&fs.ModeSymlink != 0:
		if !p.isRegular(dir, e.Name()) {
			return nil
		}
	case !e.Type().IsRegular():
		return nil
	}
	if err := p.add(name); err != nil { // there are more than there were
		return err
	}
	f, info, err := p.open(dir, e.Name())
	if err != nil {
		p.skip(name, err)
		return nil
	}
	defer f.Close()
	return p.file(ctx, f, info, name)
}

// file writes one file as it is now: bytes that are added meanwhile are left
// out, so that a file that grows has an end.
func (p *packer) file(ctx context.Context, f *os.File, info fs.FileInfo, name string) error {
	header := &zip.FileHeader{Name: name, Method: zip.Store, Modified: info.ModTime()}
	header.SetMode(info.Mode())
	w, err := p.zip.CreateHeader(header)
	if err != nil {
		return fmt.Errorf("packing %q: %w", f.Name(), err)
	}
	for left := info.Size(); left > 0; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("packing %q: %w", f.Name(), err)
		}
		n, err := f.Read(p.buf[:min(left, int64(len(p.buf)))])
		left -= int64(n)
		if _, err := w.Write(p.buf[:n]); err != nil {
			return fmt.Errorf("packing %q: %w", f.Name(), err)
		}
		if err == io.EOF {
			return nil // it shrank
		}
		if err != nil {
			return fmt.Errorf("packing %q: %w", f.Name(), err)
		}
	}
	return nil
}

var (
	errNotRegular = errors.New("is no longer a regular file")
	errTooDeep    = fmt.Errorf("has more than %d directories above it", maxDepth)
)

// open opens a regular file of a directory. It does not wait for a file that became a FIFO since it
// was listed.
func (p *packer) open(dir *os.File, name string) (f *os.File, info fs.FileInfo, err error) {
	err = p.as(func() (err error) {
		if f, err = files.OpenAt(dir, name, os.O_RDONLY|unixFlags); err != nil {
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

// isRegular reports whether a link in a directory leads to a regular file.
func (p *packer) isRegular(dir *os.File, name string) bool {
	var stat unix.Stat_t
	err := p.as(func() error { return unix.Fstatat(int(dir.Fd()), name, &stat, 0) })
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG
}

// skip remembers a file that is missing in the zip. A file that was removed meanwhile is
// not missing.
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

// close ends the zip. Its comment lists the skipped files, as far as it goes.
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
