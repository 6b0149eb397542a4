package hostpath

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open opens the file at an absolute path. follow is asked before each link on
// the way, the last element's included; its error is returned as it is.
func Open(name string, follow func(Link) error) (*File, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	defer func() { _ = unix.Close(root) }()
	return openBelow(root, name, follow, true)
}

// MakeDir opens the directory at an absolute path as Open does, and makes what is missing of it with a mode, also where
// links lead nowhere. made says that it was missing itself.
func MakeDir(name string, mode uint32, follow func(Link) error) (dir *File, made bool, err error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	defer func() { _ = unix.Close(root) }()
	w := &walk{name: name, root: root, fd: -1, proc: true, mode: mode}
	dir, err = w.open(follow)
	if err != nil {
		return nil, false, err
	}
	if info, err := dir.Stat(); err != nil || !info.IsDir() {
		_ = dir.Close()
		return nil, false, &fs.PathError{Op: "mkdir", Path: name, Err: cmp.Or(err, error(unix.ENOTDIR))}
	}
	return dir, w.made, nil
}

// OpenIn is Open for a process whose root directory is root: links lead to
// where they lead for that process, and ".." not out of root.
func OpenIn(root *os.File, name string, follow func(Link) error) (*File, error) {
	return openBelow(int(root.Fd()), name, follow, false)
}

func (f *File) reopen() (*os.File, error) {
	file, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(f.file.Fd())))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.path, Err: errors.Unwrap(err)}
	}
	return file, nil
}

// OpenRoot opens the directory for work in it.
func (f *File) OpenRoot() (*os.Root, error) {
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(f.file.Fd())))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.path, Err: errors.Unwrap(err)}
	}
	return root, nil
}

// walk is how far openBelow has come.
type walk struct {
	name  string // where it is to lead
	root  int    // not closed by walk
	fd    int    // of path
	path  string // without links
	above []id   // the directories of path, without its last element
	links int
	proc  bool // follow the kernel's own links in /proc

	mode uint32 // of directories that are made; 0: none are
	made bool   // the last step made its directory
}

// openBelow walks to name, one element after another.
func openBelow(root int, name string, follow func(Link) error, proc bool) (*File, error) {
	return (&walk{name: name, root: root, fd: -1, proc: proc}).open(follow)
}

func (w *walk) open(follow func(Link) error) (*File, error) {
	if !strings.HasPrefix(w.name, "/") {
		return nil, &fs.PathError{Op: "open", Path: w.name, Err: errors.New("the path is not absolute")}
	}
	defer w.close()
	if err := w.restart(); err != nil {
		return nil, err
	}
	for rest := w.name; rest != ""; {
		var element string
		element, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		target, err := w.step(element, follow)
		if err != nil {
			return nil, err
		}
		if target == "" {
			continue
		}
		if strings.HasPrefix(target, "/") {
			if err := w.restart(); err != nil {
				return nil, err
			}
		}
		rest = target + "/" + rest
	}
	f := &File{os.NewFile(uintptr(w.fd), w.path), w.path, w.above}
	w.fd = -1
	return f, nil
}

func (w *walk) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
	}
	w.fd = -1
}

// move makes fd, of the path, where the walk is.
func (w *walk) move(fd int, to string) {
	w.close()
	w.fd, w.path = fd, to
}

// restart goes to the root directory.
func (w *walk) restart() error {
	fd, err := unix.Openat(w.root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	w.move(fd, "/")
	w.above = nil
	return nil
}

// step walks one element on. If that is a link, it stays where it is and returns
// where the link leads.
func (w *walk) step(element string, follow func(Link) error) (target string, err error) {
	to := path.Join(w.path, element)
	fail := func(err error) (string, error) { return "", &fs.PathError{Op: "open", Path: w.name, Err: err} }
	switch {
	case element == "", element == ".", element == ".." && len(w.above) == 0:
		return "", nil
	case element == "..":
		fd, err := unix.Openat(w.fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fail(err)
		}
		w.move(fd, to)
		w.above = w.above[:len(w.above)-1]
		return "", nil
	}
	var here, there syscall.Stat_t
	if err := syscall.Fstat(w.fd, &here); err != nil {
		return fail(err)
	}
	fd, err := unix.Openat(w.fd, element, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if w.made = errors.Is(err, fs.ErrNotExist) && w.mode != 0; w.made {
		if err = unix.Mkdirat(w.fd, element, w.mode); err == nil || errors.Is(err, fs.ErrExist) {
			fd, err = unix.Openat(w.fd, element, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		return fail(err)
	}
	if err := syscall.Fstat(fd, &there); err != nil {
		_ = unix.Close(fd)
		return fail(err)
	}
	above := append(slices.Clip(w.above), idOf(&here))
	if there.Mode&syscall.S_IFMT != syscall.S_IFLNK {
		w.move(fd, to)
		w.above = above
		return "", nil
	}
	defer func() { _ = unix.Close(fd) }()
	if w.links++; w.links > maxLinks {
		return fail(syscall.ELOOP)
	}
	if target, err = readlink(fd); err != nil {
		return fail(err)
	}
	kernel := w.proc && isProc(fd)
	if err := follow(Link{to, int(there.Uid), target, kernel, above}); err != nil {
		return "", err
	}
	if !kernel {
		return target, nil
	}
	// The kernel's own links to open files have no path that could be walked.
	open, err := unix.Openat(w.fd, element, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	if !strings.HasPrefix(target, "/") {
		target = to
	}
	w.move(open, path.Clean(target))
	w.above = above
	return "", nil
}

// readlink reads the link that fd is.
func readlink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	switch {
	case err != nil:
		return "", err
	case n == 0:
		return "", syscall.ENOENT
	case n == len(buf):
		return "", syscall.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

func isProc(fd int) bool {
	var stat unix.Statfs_t
	return unix.Fstatfs(fd, &stat) == nil && stat.Type == unix.PROC_SUPER_MAGIC
}
