//go:build linux

package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotRegular reports a file that is not regular.
var ErrNotRegular = errors.New("not a regular file")

// OpenNonBlocking opens a regular file to be read. It waits neither for the other end of a FIFO
// that has just replaced the file, nor for the holder of a lease on the file.
func OpenNonBlocking(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := Open(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func regular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
}

// WriteNew writes a file that must not exist: an existing one may be a link, or a FIFO
// without a reader.
func WriteNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

type reader struct{ conn syscall.RawConn }

// NonBlockingReader returns a reader of a file that was opened with O_NONBLOCK. It fails with
// EAGAIN where it would have to wait.
func NonBlockingReader(f *os.File) io.Reader {
	conn, _ := f.SyscallConn() // the file's own Read would wait; only a nil file has no connection
	return reader{conn}
}

func (r reader) Read(b []byte) (n int, err error) {
	failed := r.conn.Read(func(fd uintptr) bool {
		n, err = Read(fd, b)
		return true
	})
	if failed != nil {
		return 0, failed
	}
	return n, err
}
