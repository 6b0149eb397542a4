package files

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// Zip is a directory, or one file, that is written as a zip without packing: the files of a project are small, and
// the connection is local. It is used by one goroutine.
type Zip struct {
	as      func(func() error) error
	f       *os.File
	info    fs.FileInfo
	out     *zip.Writer
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

// OpenZip opens the file or directory at a path, and finds out before the first byte whether it is within
// the bounds. A path to something else than a file or a directory is not opened: a device
// might act on it. The caller closes the result.
func (t *Trees) OpenZip(ctx context.Context, name string) (*Zip, error) {
	z := &Zip{as: t.cfg.As, buf: make([]byte, 128<<10)}
	err := z.as(func() (err error) {
		check := func() error {
			if err == nil && !z.info.IsDir() && !z.info.Mode().IsRegular() {
				return refuse(http.StatusBadRequest, "Path is neither a directory nor a file but %s", kind(z.info.Mode()))
			}
			return err
		}
		z.info, err = os.Stat(name)
		if err := check(); err != nil {
			return err
		}
		if z.f, err = Open(name); err != nil {
			return err
		}
		z.info, err = z.f.Stat()
		if err := check(); err != nil || !z.info.IsDir() {
			return err
		}
		if err := z.count(ctx, z.f, "", 1); err != nil {
			return err
		}
		_, err = z.f.Seek(0, io.SeekStart)
		return err
	})
	if err != nil {
		if z.f != nil {
			_ = z.f.Close()
		}
		return nil, LegacyError(err, name, http.StatusNotFound)
	}
	return z, nil
}

// Close closes the directory or file.
func (z *Zip) Close() { _ = z.f.Close() } // it was only read

// ListBytes returns how many bytes the list of the members takes. Measured, the library has 200 bytes and the name of each, and
// leaves 60 and the name once more as garbage when it writes the list.
func (z *Zip) ListBytes() int64 { return int64(z.members*300 + z.named*2) }

// Write writes the zip, with what could not be read in its comment. It is called once.
func (z *Zip) Write(ctx context.Context, w io.Writer) (err error) {
	z.out, z.members, z.named = zip.NewWriter(w), 0, 0
	if z.info.IsDir() {
		err = z.directory(ctx, z.f, "", 1)
	} else {
		err = z.file(ctx, z.f, z.info, path.Base(z.f.Name()))
	}
	if err != nil {
		return err
	}
	return z.end()
}

// count fails where the files below a directory are beyond the bounds.
func (z *Zip) count(ctx context.Context, dir *os.File, prefix string, depth int) error {
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
					err = z.count(ctx, below, name+"/", depth+1)
					_ = below.Close()
				}
			case e.Type().IsRegular() || e.Type()&fs.ModeSymlink != 0:
				err = z.add(name)
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
func (z *Zip) add(name string) error {
	z.members++
	if z.named += len(name); z.members > maxPacked || z.named > maxPackedBytes {
		return refuse(http.StatusRequestEntityTooLarge,
			"More than %d files, or very long paths, are below the directory: download parts of it", maxPacked)
	}
	return nil
}

// directory writes the files below dir, under names that begin with prefix.
// Symbolic links to files are written as files, those to directories are not
// followed, and whatever is neither file nor directory is not opened.
func (z *Zip) directory(ctx context.Context, dir *os.File, prefix string, depth int) error {
	for last := false; !last; {
		var entries []fs.DirEntry
		err := z.as(func() (err error) {
			entries, last, err = readPortion(dir)
			return err
		})
		if err != nil {
			z.skip(prefix, err) // with the rest of it
			last = true
		}
		for _, e := range entries {
			if err := z.entry(ctx, dir, prefix, depth, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// entry writes an entry of dir.
func (z *Zip) entry(ctx context.Context, dir *os.File, prefix string, depth int, e fs.DirEntry) error {
	if ctx.Err() != nil {
		return fmt.Errorf("packing %q: %w", dir.Name(), ctx.Err())
	}
	name := prefix + e.Name()
	switch {
	case e.IsDir() && depth == maxDepth:
		z.skip(name, errTooDeep)
		return nil
	case e.IsDir():
		var below *os.File
		err := z.as(func() (err error) { below, err = openBelow(dir, e.Name()); return err })
		if err != nil {
			z.skip(name+"/", err)
			return nil
		}
		defer below.Close()
		return z.directory(ctx, below, name+"/", depth+1)
	case e.Type()&fs.ModeSymlink != 0:
		if !z.isRegular(dir, e.Name()) {
			return nil
		}
	case !e.Type().IsRegular():
		return nil
	}
	if err := z.add(name); err != nil { // there are more than there were
		return err
	}
	f, info, err := z.open(dir, e.Name())
	if err != nil {
		z.skip(name, err)
		return nil
	}
	defer f.Close()
	return z.file(ctx, f, info, name)
}

// file writes one file as it is now: bytes that are added meanwhile are left
// out, so that a file that grows has an end.
func (z *Zip) file(ctx context.Context, f *os.File, info fs.FileInfo, name string) error {
	header := &zip.FileHeader{Name: name, Method: zip.Store, Modified: info.ModTime()}
	header.SetMode(info.Mode())
	w, err := z.out.CreateHeader(header)
	if err != nil {
		return fmt.Errorf("packing %q: %w", f.Name(), err)
	}
	for left := info.Size(); left > 0; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("packing %q: %w", f.Name(), err)
		}
		n, err := f.Read(z.buf[:min(left, int64(len(z.buf)))])
		left -= int64(n)
		if _, err := w.Write(z.buf[:n]); err != nil {
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
func (z *Zip) open(dir *os.File, name string) (f *os.File, info fs.FileInfo, err error) {
	err = z.as(func() (err error) {
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
func (z *Zip) isRegular(dir *os.File, name string) bool {
	var stat unix.Stat_t
	err := z.as(func() error { return unix.Fstatat(int(dir.Fd()), name, &stat, 0) })
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG
}

// skip remembers a file that is missing in the zip. A file that was removed meanwhile is
// not missing.
func (z *Zip) skip(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err // the name is enough
	}
	const most = 1000
	if z.missing++; z.missing <= most {
		z.skipped = append(z.skipped, fmt.Sprintf("%q: %v", name, err))
	}
}

// end ends the zip. Its comment lists the skipped files, as far as it goes.
func (z *Zip) end() error {
	if z.missing > 0 {
		const longest = 65535 // of the format
		comment := fmt.Sprintf("Not readable, and left out: %d\n", z.missing) + strings.Join(z.skipped, "\n")
		if err := z.out.SetComment(comment[:min(len(comment), longest)]); err != nil {
			return fmt.Errorf("ending zip: %w", err)
		}
	}
	if err := z.out.Close(); err != nil {
		return fmt.Errorf("ending zip: %w", err)
	}
	return nil
}
