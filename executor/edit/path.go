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
)

// maxLinks is how many symbolic links one path may lead through, as in the kernel.
const maxLinks = 40

// cleanPath drops repeated and trailing slashes and single dots, as Python's pathlib does. Two dots stay: through a
// symbolic link they mean something that only the file system knows.
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

// absolutePath names a path that may be relative to dir.
func absolutePath(dir, path string) string {
	if strings.HasPrefix(path, "/") {
		return cleanPath(path)
	}
	return cleanPath(dir + "/" + path)
}

// resolve follows every symbolic link of an absolute path, the last one too, and says where the path leads, whether there
// is something or not: what is missing at the end is taken as written. It fails with EINVAL on a NUL, with ELOOP, with
// ENOENT where the way leads up again from something missing, and with what Lstat says.
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

// place is where a command works: a path, what it leads to, and what is there. Whoever holds a place holds the lock of
// its real path.
type place struct {
	dialect Dialect
	want    hash // what the file must be, "" for anything

	shown string      // as texts name it
	real  string      // without symbolic links
	info  fs.FileInfo // nil where nothing is there
	err   error       // why the path leads nowhere, where it does not even lead to a gap that a file could fill
}

func (p place) exists() bool { return p.info != nil }

func (p place) isDir() bool { return p.info != nil && p.info.IsDir() }

// enter finds the place of an absolute path and locks it. The caller calls leave when it is done with it, also on error.
// It fails where the rights do not suffice to look.
func (e *Editor) enter(path string) (p place, leave func(), err error) {
	p = place{shown: path}
	err = e.as(func() (err error) {
		p.real, err = resolve(path)
		return err
	})
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		p.err = err // a name that nothing can have is a name of nothing
		return p, func() {}, nil
	case err != nil:
		return p, func() {}, unreadable(path, err)
	}
	leave = e.locks.lock(p.real)
	if p.info, err = e.stat(p.real); err != nil {
		return p, leave, unreadable(path, err)
	}
	if key := p.inode(); key != "" {
		// Its other names have locks of their own. This one is always taken after those of paths.
		inode, path := e.locks.lock(key), leave
		leave = func() { inode(); path() }
	}
	return p, leave, nil
}

// stat looks at what is at a real path; nil is nothing.
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
		return nil, nil //nolint:nilnil // nothing is there, which is no error
	}
	return info, err
}

// inode is the key of the lock for a file of several names, "" for any other.
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
