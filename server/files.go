package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"syscall"
)

// unixFlags keep a FIFO that somebody put in the way from blocking us, and a
// terminal from becoming ours.
const unixFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// What is made has the permissions that the umask leaves, as with any program.
const (
	newFile      fs.FileMode = 0o666
	newDirectory fs.FileMode = 0o777
)

// statFile looks at a file that a caller named, wherever it is: the rights it
// is called with are what confines a caller.
func statFile(name string) (fs.FileInfo, error) {
	return os.Stat(name)
}

// openFile opens a file that a caller named, with the mode of the umask where
// it is made.
func openFile(name string, flag int) (*os.File, error) {
	return os.OpenFile(name, flag|unixFlags, newFile)
}

// target is a file to be written: open opens it with flags, to which
// it adds unixFlags, and remove takes it away.
type target struct {
	open   func(flag int) (*os.File, error)
	remove func() error
}

// overwrite writes size bytes of content from its start. A file that is there
// keeps its mode, owner and links; its old bytes are kept too when there is no
// room for the new ones. A file that is not there is made, and taken away again
// when it cannot be written.
func overwrite(t target, content io.Reader, size int64) (err error) {
	created := false
	f, err := t.open(os.O_WRONLY)
	if errors.Is(err, fs.ErrNotExist) {
		created = true
		f, err = t.open(os.O_WRONLY | os.O_CREATE | os.O_EXCL)
		if errors.Is(err, fs.ErrExist) {
			return refuse(http.StatusBadRequest, "The file to be written is a symbolic link that points to nothing")
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil && created {
			_ = t.remove() // the first error is the one to tell
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return refuse(http.StatusBadRequest, "The file to be written is there and is no regular file but %s", fileKind(info.Mode()))
	}
	if err := checkSpace(f, size-occupied(info)); err != nil {
		return err
	}
	if err := reserve(f, size); err != nil {
		_ = f.Truncate(info.Size()) // gives back what was reserved
		return err
	}
	n, err := io.Copy(f, io.LimitReader(content, size))
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("content ended after %d of %d bytes", n, size)
	}
	return f.Truncate(size)
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
	if asked == nil && need > 0 && uint64(need) > st.Bavail*blockSize(&st) {
		return fmt.Errorf("%d more bytes: %w", need, syscall.ENOSPC)
	}
	return nil
}

// occupied returns the bytes of storage behind a file.
func occupied(info fs.FileInfo) int64 {
	const block = 512 // of stat(2), whatever the file system's own are
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * block
	}
	return 0
}

// reserve makes room for size bytes without changing what the file holds:
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

// fileKind names what is not a regular file.
func fileKind(mode fs.FileMode) string {
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
