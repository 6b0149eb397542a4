//go:build linux

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// openNoLinks opens a directory by its absolute path, no component of which may be a
// symbolic link, "." or "..".
func openNoLinks(dir string) (*os.File, error) {
	at, err := os.Open("/")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if name == "" {
			continue
		}
		next, err := openChild(at, name)
		_ = at.Close() // it was only looked through
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// openChild opens a directory in a directory. It does not follow links.
func openChild(dir *os.File, name string) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	if name == "." || name == ".." {
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.EINVAL}
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// MkdirNoFollow opens a directory whose path has no links, and makes those of its
// components that are missing, for this process's user alone. It returns these,
// outermost first, and the directory.
func MkdirNoFollow(dir string) (made []*os.File, at *os.File, err error) {
	if at, err = openNoLinks("/"); err != nil {
		return nil, nil, err
	}
	for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if name == "" {
			continue
		}
		next, err := openChild(at, name)
		isNew := errors.Is(err, fs.ErrNotExist)
		if isNew {
			if err = unix.Mkdirat(int(at.Fd()), name, 0o700); err == nil {
				next, err = openChild(at, name)
			}
		}
		if len(made) == 0 || made[len(made)-1] != at {
			_ = at.Close() // it was only looked through
		}
		if err != nil {
			return made, nil, err
		}
		if at = next; isNew {
			made = append(made, at)
		}
	}
	return made, at, nil
}

// UnlinkNoFollow removes a file, or an empty directory with AT_REMOVEDIR in flags. No
// component of the path is followed as a link: the agent may own the directories above
// and replace them meanwhile.
func UnlinkNoFollow(path string, flags int) error {
	dir, err := openNoLinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Unlinkat(int(dir.Fd()), filepath.Base(path), flags); err != nil {
		return &os.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}
