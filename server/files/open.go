package files

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// unixFlags keep a FIFO at the path from blocking us, and a terminal from becoming
// our controlling terminal.
const unixFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// Modes of new files and directories, of which the umask takes its part, as with any program.
const (
	newFile      fs.FileMode = 0o666
	newDirectory fs.FileMode = 0o777
)

// Open opens a file that a caller named, for reading.
func Open(name string) (*os.File, error) {
	return files.Open(name, os.O_RDONLY|unixFlags, 0)
}

// portion is how many entries of a directory are held at a time: an agent can make
// directories that do not fit into memory.
const portion = 128

// OpenDirectory opens a directory and nothing else.
func OpenDirectory(name string) (*os.File, error) {
	return files.Open(name, os.O_RDONLY|syscall.O_DIRECTORY|unixFlags, 0)
}

// readPortion returns the next entries of a directory, by name, and whether these
// are the last ones.
func readPortion(dir *os.File) (entries []fs.DirEntry, last bool, err error) {
	entries, err = dir.ReadDir(portion)
	if err == io.EOF {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, len(entries) < portion, err
}

// eachEntry calls do with each entry of a directory, in no order, until an error.
func eachEntry(name string, do func(fs.DirEntry) error) error {
	dir, err := OpenDirectory(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		entries, last, err := readPortion(dir)
		for _, e := range entries {
			if err := do(e); err != nil {
				return err
			}
		}
		if err != nil || last {
			return err
		}
	}
}

// checkSpace fails with ENOSPC when need bytes are not left on the file system
// of f, before anything was taken of them.
func checkSpace(f *os.File, need int64) error {
	var st syscall.Statfs_t
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var asked error
	if err := raw.Control(func(fd uintptr) { asked = syscall.Fstatfs(int(fd), &st) }); err != nil {
		return err
	}
	// Where it cannot be asked, writing finds out.
	if asked == nil && need > 0 && uint64(need) > st.Bavail*BlockSize(&st) {
		return fmt.Errorf("%d more bytes: %w", need, syscall.ENOSPC)
	}
	return nil
}

// BlockSize returns the unit in which a file system is measured.
func BlockSize(fs *syscall.Statfs_t) uint64 {
	size := cmp.Or(fs.Frsize, fs.Bsize) // old kernels leave the first empty
	if size < 0 {
		return 0
	}
	return uint64(size)
}

// occupied returns the bytes of storage behind a file.
func occupied(info fs.FileInfo) int64 {
	const block = 512 // of stat(2), whatever the file system's own are
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * block
	}
	return 0
}

// reserve makes room for size bytes without changing the content of the file:
// quotas, and others who write, are not in the figures of checkSpace. A file
// system that cannot do that is written to without.
func reserve(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE of fallocate(2)
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var reserved error
	err = raw.Control(func(fd uintptr) {
		for reserved = syscall.EINTR; errors.Is(reserved, syscall.EINTR); {
			reserved = syscall.Fallocate(int(fd), keepSize, 0, size)
		}
	})
	if err != nil {
		return err
	}
	switch reserved {
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
		return fmt.Errorf("reserving %d bytes: %w", size, reserved)
	}
	return nil
}

// kind names the kind of a file that is not a regular one.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "something else"
}

// OpenRegular opens a regular file with the user's rights. Others are not opened, as a
// device might act on it, nor are files of the kernel, which may block like a pipe.
func (t *Trees) OpenRegular(name string) (f *os.File, info fs.FileInfo, err error) {
	err = t.cfg.As(func() (err error) {
		if info, err = os.Stat(name); err != nil {
			return err
		}
		if err = onlyRegular(name, info); err != nil {
			return err
		}
		f, err = Open(name)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = onlyRegular(name, info)
	}
	if err == nil && KernelFiles(f) {
		err = Refuse("not_regular_file", name, "%q is a file of the kernel: read it with a command", name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

func onlyRegular(name string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	code := "not_regular_file"
	if info.IsDir() {
		code = "is_directory"
	}
	return Refuse(code, name, "%q is not a file but %s", name, kind(info.Mode()))
}

// OpenParent opens the directory that has a file, once the user may read the file.
func (t *Trees) OpenParent(dir, base string) (parent *os.File, err error) {
	err = t.cfg.As(func() error {
		// A user may pass through directories whose names are not the user's to list.
		if parent, err = files.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
		return checkPackable(parent, base, path.Join(dir, base))
	})
	if err != nil && parent != nil {
		_ = parent.Close()
	}
	return parent, err
}

// checkPackable refuses a file that an archive cannot have, before the archive begins.
func checkPackable(parent *os.File, base, shown string) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(int(parent.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unixFlags
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
		flags |= unix.O_DIRECTORY
	case unix.S_IFREG:
	default:
		return Refuse("not_regular_file", shown, "%q is neither file nor directory nor link", shown)
	}
	fd, err := unix.Openat(int(parent.Fd()), base, flags, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	if flags&unix.O_DIRECTORY == 0 && KernelFiles(f) {
		return Refuse("not_regular_file", shown, "%q is a file of the kernel: read it with a command", shown)
	}
	return nil
}
