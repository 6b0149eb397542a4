package edit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// maxLinks bounds the symbolic links in one path, as the kernel does.
const maxLinks = 40

// cleanPath drops repeated and trailing slashes and single dots, as Python's pathlib does. Two dots stay: behind a
// symbolic link only the file system knows their meaning.
func cleanPath(path string) string {
	parts := strings.Split(path, "/")
	kept := parts[:0]
	for _, part := range parts {
		if part != "" && part != "." {
			kept = append(kept, part)
		}
	}
	joined := strings.Join(kept, "/")
	if strings.HasPrefix(path, "/") {
		return "/" + joined
	}
	if joined == "" {
		return "."
	}
	return joined
}

// absolutePath makes a path absolute that may be relative to dir.
func absolutePath(dir, path string) string {
	if strings.HasPrefix(path, "/") {
		return cleanPath(path)
	}
	return cleanPath(dir + "/" + path)
}

// resolve follows every symbolic link of an absolute path, the last one included, and returns the real path. Missing
// names at its end are taken as written. It fails with EINVAL for a NUL byte, with ELOOP, with ENOENT if two dots
// follow a missing name, and with errors of Lstat.
func resolve(path string) (string, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return "", unix.EINVAL
	}
	real, rest, links := "/", strings.Split(path, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			real = filepath.Dir(real)
			continue
		}
		next := filepath.Join(real, part)
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			if slices.Contains(rest, "..") {
				return "", unix.ENOENT
			}
			return filepath.Join(next, filepath.Join(rest...)), nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", unix.ELOOP
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(target, "/") {
			real = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return real, nil
}

// place is the path that a command works on and the file there. The holder of a place holds the lock of its real path.
type place struct {
	dialect Dialect
	want    hash // the hash that the file must have, "" for any
	// unrecorded keeps the change out of the undo history.
	unrecorded bool
	native     bool // the diff of the change is a patch, in the form of no dialect

	shown string      // as messages name it
	real  string      // without symbolic links
	info  fs.FileInfo // nil if no file exists
	err   error       // why no file can exist at the path, nil if one can
}

func (p place) exists() bool { return p.info != nil }

func (p place) isDir() bool { return p.info != nil && p.info.IsDir() }

// enter resolves an absolute path and locks it. The caller must call leave afterwards, also on error. It fails if the
// user lacks the rights to look.
func (e *Editor) enter(path string) (p place, leave func(), err error) {
	p = place{shown: path}
	err = e.as(func() (err error) {
		if p.real, err = resolve(path); err == nil && p.real != path {
			return throughDescriptor(path)
		}
		return err
	})
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		p.err = err // no file can have this name
		return p, func() {}, nil
	case err != nil:
		return p, func() {}, unreadable(path, err)
	}
	leave = e.locks.lock(p.real)
	if p.info, err = e.stat(p.real); err != nil {
		return p, leave, unreadable(path, err)
	}
	if key := p.inode(); key != "" {
		// The file's other names have their own locks. The lock of an inode is always taken after those of paths.
		inode, path := e.locks.lock(key), leave
		leave = func() { inode(); path() }
	}
	return p, leave, nil
}

// enterFor is enter with the dialect and the wanted hash of a command.
func (e *Editor) enterFor(c Command) (p place, leave func(), err error) {
	p, leave, err = e.enter(c.Path)
	if c.Dialect == Strands && errors.Is(p.err, unix.ENOENT) {
		// Two dots follow a missing name: this dialect cleans the path as text.
		p, leave, err = e.enter(filepath.Clean(c.Path))
		p.shown = c.Path
	}
	if err != nil {
		return p, leave, err
	}
	if c.slash && !p.exists() && slices.Contains([]string{"", "create", "write", "replace"}, c.Name) {
		return p, leave, directoryName(p.shown)
	}
	p.dialect, p.want, p.unrecorded, p.native = c.Dialect, hash(strings.ToLower(c.IfSHA256)), c.unrecorded, c.Native
	if p.want != "" && !p.exists() {
		return p, leave, refuse(CodeConflict, "The file %s does not exist, so it is not the one that was read. Nothing was changed.", p.shown)
	}
	return p, leave, nil
}

// directoryName refuses to make a file where a path that ends with a slash names a directory.
func directoryName(shown string) *Error {
	return refuse(CodeIsDirectory, "The path %s/ ends with a slash, so it names a directory, which does not exist. Give the name of a file.", shown)
}

// throughDescriptor fails with ELOOP for a path through a descriptor of this process, such as /dev/fd/3, as
// [files.Open] does: resolved, it is the path of a file that the client did not name.
func throughDescriptor(path string) error {
	f, err := files.Open(path, unix.O_PATH, 0)
	if err == nil {
		_ = f.Close()
	} else if errors.Is(err, unix.ELOOP) {
		return unix.ELOOP
	}
	return nil
}

// stat describes the file at a real path; nil if none exists.
func (e *Editor) stat(path string) (info fs.FileInfo, err error) {
	err = e.as(func() (err error) {
		info, err = lookAt(path)
		return err
	})
	return info, err
}

func lookAt(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil //nolint:nilnil // a missing file is not an error
	}
	return info, err
}

// inode returns the lock key of a file with several names, "" for any other file.
func (p place) inode() string {
	if p.info == nil || !p.info.Mode().IsRegular() {
		return ""
	}
	stat, ok := p.info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink < 2 {
		return ""
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
