// Package nowait reads files as far as that goes without waiting: some that the
// kernel makes up, such as /proc/kmsg, are regular by their mode and wait like a
// pipe, for which no bound in time helps.
package nowait

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

type reader struct{ conn syscall.RawConn }

// Reader returns a reader of a file that was opened with O_NONBLOCK. It fails with
// EAGAIN where it would have to wait.
func Reader(f *os.File) (io.Reader, error) {
	conn, err := f.SyscallConn() // its own Read would wait
	return reader{conn}, err
}

func (r reader) Read(b []byte) (n int, err error) {
	failed := r.conn.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), b)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Read(int(fd), b)
		}
		return true
	})
	switch {
	case failed != nil:
		return 0, failed
	case err != nil:
		return 0, err
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}
