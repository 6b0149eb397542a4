//go:build linux

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrProtected reports a directory that is not moved or removed: the root directory, or the
// working directory or one above it.
var ErrProtected = errors.New("the root directory, the working directory and those above it stay")

// ErrMoved reports a directory that another process moved while its contents were removed.
var ErrMoved = errors.New("moved by another process while it was being removed")

// inode names a file for as long as it is open.
type inode struct{ dev, ino uint64 }

func inodeOf(stat *unix.Stat_t) inode { return inode{stat.Dev, stat.Ino} }

func inodeAt(fd int) (inode, error) {
	var stat unix.Stat_t
	err := unix.Fstat(fd, &stat)
	return inodeOf(&stat), err
}

// Named is a name in an open directory.
type Named struct {
	Dir  *os.File // the parent
	Base string
	Path string
}

// Parent opens the directory that has the last component of an absolute path. Links on the way
// to it are followed with the rights of the thread, the last component is not. The error is
// ErrProtected for a path that ends in "." or "..", or is "/".
func Parent(path string) (Named, error) {
	trimmed := strings.TrimRight(path, "/")
	dir, base := filepath.Split(trimmed)
	if base == "" || base == "." || base == ".." {
		return Named{}, &fs.PathError{Op: "open", Path: path, Err: ErrProtected}
	}
	f, err := Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return Named{}, err
	}
	return Named{f, base, trimmed}, nil
}

// Close closes the directory.
func (n Named) Close() error { return n.Dir.Close() }

func (n Named) fd() int { return int(n.Dir.Fd()) }

func (n Named) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: n.Path, Err: err}
}

// Stat looks at the file. It does not follow a link.
func (n Named) Stat() (unix.Stat_t, error) {
	var stat unix.Stat_t
	err := unix.Fstatat(n.fd(), n.Base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return stat, n.fail("stat", err)
}

// Mkdir makes a directory, with the exact mode where that is not nil.
func (n Named) Mkdir(mode *fs.FileMode) error {
	if mode == nil {
		return n.fail("mkdir", unix.Mkdirat(n.fd(), n.Base, 0o777))
	}
	if err := unix.Mkdirat(n.fd(), n.Base, 0o700); err != nil {
		return n.fail("mkdir", err)
	}
	dir, err := openChild(n.Dir, n.Base)
	if err == nil {
		err = errors.Join(n.fail("chmod", unix.Fchmod(int(dir.Fd()), uint32(*mode&ModeBits))), dir.Close())
	}
	if err != nil {
		_ = unix.Unlinkat(n.fd(), n.Base, unix.AT_REMOVEDIR)
	}
	return err
}

// Rename gives the file another name, which takes the place of another file where replace is
// set, and otherwise is free.
func (n Named) Rename(to Named, replace bool) error { return n.renameTo(to, replace, unix.Renameat2) }

func (n Named) renameTo(to Named, replace bool, renameat2 func(oldDir int, old string, newDir int, name string, flags uint) error) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	err := renameat2(n.fd(), n.Base, to.fd(), to.Base, flags)
	if !replace && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS)) {
		err = n.renameToFree(to)
	}
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: "rename", Old: n.Path, New: to.Path, Err: err}
}

// renameToFree is Rename on a file system that cannot rename without replacing, such as NFS. A file that has
// the new name, or gets it meanwhile, stays: a directory can only take the place of an empty one,
// which is made here, and a second name of another file is no replacement either.
func (n Named) renameToFree(to Named) error {
	stat, err := n.Stat()
	if err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := unix.Mkdirat(to.fd(), to.Base, 0o700); err != nil {
			return err
		}
		if err := unix.Renameat(n.fd(), n.Base, to.fd(), to.Base); err != nil {
			_ = unix.Unlinkat(to.fd(), to.Base, unix.AT_REMOVEDIR)
			return err
		}
		return nil
	}
	if err := unix.Linkat(n.fd(), n.Base, to.fd(), to.Base, 0); err != nil {
		return err
	}
	return unix.Unlinkat(n.fd(), n.Base, 0)
}

// Protected are the directories that [Named.Guard] and [Removal] refuse.
type Protected []inode

// Protect returns the root directory, a directory and those above it.
func Protect(dir string) (Protected, error) {
	root, err := Open("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	id, err := inodeAt(int(root.Fd()))
	_ = root.Close()
	if err != nil {
		return nil, err
	}
	all := Protected{id}
	at, err := Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	for err == nil {
		if id, err = inodeAt(int(at.Fd())); err != nil || slices.Contains(all, id) {
			break
		}
		all = append(all, id)
		var fd int
		if fd, err = unix.Openat(int(at.Fd()), "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			_ = at.Close() // it was only looked through
			at = os.NewFile(uintptr(fd), "..")
		}
	}
	if at != nil {
		_ = at.Close()
	}
	return all, err
}

// Guard returns ErrProtected for a protected directory, and the error of Stat.
func (n Named) Guard(p Protected) (unix.Stat_t, error) {
	stat, err := n.Stat()
	if err == nil && slices.Contains(p, inodeOf(&stat)) {
		err = n.fail("change", ErrProtected)
	}
	return stat, err
}

// Removal removes a directory with all that is in it. It follows no link and enters no mount. A
// directory that it has entered is left by "..", and only to the directory from which it was
// entered: an agent that moves directories or puts links in their place meanwhile leads it nowhere
// else. It holds two directories open, and memory of 16 bytes for each level.
type Removal struct {
	Protected Protected
	// Ended returns the error that ends the work; nil never ends it.
	Ended func() error
	// Removed counts the names.
	Removed int64

	buf [4 << 10]byte
}

// maxDepth bounds the levels of a tree that is removed.
const maxDepth = 1 << 18

// Remove removes the tree at a name. The number of names removed before an error is in r.Removed; the
// error has the path of the file that stays.
func (r *Removal) Remove(n Named) error {
	err := n.fail("remove", unix.Unlinkat(n.fd(), n.Base, unix.AT_REMOVEDIR))
	if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
		return r.count(err)
	}
	at, id, err := r.enter(n.Dir, n.Base)
	if err != nil {
		return n.fail("remove", err)
	}
	defer func() { _ = at.Close() }()
	levels := []inode{id}
	for len(levels) > 0 {
		child, err := r.empty(at)
		if err != nil {
			return err
		}
		if child != "" {
			next, id, err := r.enter(at, child)
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
				continue // it is no longer that directory: look again
			case err == nil && len(levels) == maxDepth:
				err = errors.Join(unix.ENAMETOOLONG, next.Close())
			}
			if err != nil {
				return r.fail(at, child, err)
			}
			levels = append(levels, id)
			_ = at.Close() // it was only read
			at = next
			continue
		}
		if levels = levels[:len(levels)-1]; len(levels) == 0 {
			break
		}
		fd, err := unix.Openat(int(at.Fd()), "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return r.fail(at, "..", err)
		}
		_ = at.Close() // it was only read
		at = os.NewFile(uintptr(fd), n.Path)
		id, err := inodeAt(fd)
		if err == nil && id != levels[len(levels)-1] {
			err = ErrMoved
		}
		if err != nil {
			return n.fail("remove", err)
		}
	}
	return r.count(n.fail("remove", unix.Unlinkat(n.fd(), n.Base, unix.AT_REMOVEDIR)))
}

func (r *Removal) count(err error) error {
	if err == nil {
		r.Removed++
	}
	return err
}

// enter opens a directory that is not protected.
func (r *Removal) enter(dir *os.File, name string) (*os.File, inode, error) {
	if err := r.ended(); err != nil {
		return nil, inode{}, err
	}
	f, err := openChild(dir, name)
	if err != nil {
		return nil, inode{}, errors.Unwrap(err)
	}
	id, err := inodeAt(int(f.Fd()))
	if err == nil && slices.Contains(r.Protected, id) {
		err = ErrProtected
	}
	if err != nil {
		_ = f.Close()
		return nil, inode{}, err
	}
	return f, id, nil
}

func (r *Removal) ended() error {
	if r.Ended == nil {
		return nil
	}
	return r.Ended()
}

// fail is an error about a name in an open directory.
func (r *Removal) fail(dir *os.File, name string, err error) error {
	path, unknown := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if unknown != nil {
		path = dir.Name()
	}
	return &fs.PathError{Op: "remove", Path: filepath.Join(path, name), Err: err}
}

// empty removes the entries of an open directory, up to the first directory that is not empty, which
// it returns; "" once nothing is left.
func (r *Removal) empty(dir *os.File) (child string, err error) {
	const passes = 4 // of names that are all gone: removing the directory says more
	for idle := 0; idle < passes; idle++ {
		if _, err := unix.Seek(int(dir.Fd()), 0, 0); err != nil {
			return "", r.fail(dir, ".", err)
		}
		seen := false
		for {
			if err := r.ended(); err != nil {
				return "", r.fail(dir, ".", err)
			}
			n, err := unix.ReadDirent(int(dir.Fd()), r.buf[:])
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return "", r.fail(dir, ".", err)
			}
			if n <= 0 {
				break
			}
			_, _, names := unix.ParseDirent(r.buf[:n], -1, nil)
			for _, name := range names {
				seen = true
				before := r.Removed
				full, err := r.unlink(dir, name)
				switch {
				case err != nil:
					return "", r.fail(dir, name, err)
				case full:
					return name, nil // the names behind it are read again afterwards
				case r.Removed > before:
					idle = -1
				}
			}
		}
		if !seen {
			return "", nil
		}
	}
	return "", nil
}

// unlink removes a file or an empty directory; full says that it is a directory that is not
// empty.
func (r *Removal) unlink(dir *os.File, name string) (full bool, err error) {
	err = unix.Unlinkat(int(dir.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) { // the second by POSIX
		if asDir := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); !errors.Is(asDir, unix.ENOTDIR) {
			err = asDir
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return true, nil
	}
	return false, r.count(err)
}

// MakeDirs makes a directory and all above it that are missing, also where links lead nowhere, and returns those that
// it made, outermost first.
func MakeDirs(dir string) (made []string, err error) { return makeDirs(dir, 0) }

// makeDirs is MakeDirs behind so many links.
func makeDirs(dir string, links int) (made []string, err error) {
	if links > 40 { // the kernel follows so many
		return nil, unix.ELOOP
	}
	var gaps []string
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			return nil, unix.ENOTDIR
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if target, err := os.Readlink(at); err == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Dir(at) + "/" + target
			}
			if made, err = makeDirs(target, links+1); err != nil {
				return made, err
			}
			break
		}
		gaps = append(gaps, at)
	}
	for _, gap := range slices.Backward(gaps) {
		if err := os.Mkdir(gap, 0o777); errors.Is(err, fs.ErrExist) { //nolint:gosec // as mkdir does: the umask decides
			continue
		} else if err != nil {
			return made, err
		}
		made = append(made, gap)
	}
	return made, nil
}

// RemoveDirs removes directories, innermost first, up to the first that is not empty.
func RemoveDirs(dirs []string) {
	for _, dir := range slices.Backward(dirs) {
		if os.Remove(dir) != nil {
			return
		}
	}
}
