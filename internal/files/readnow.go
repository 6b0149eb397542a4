package files

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadNow reads from a pipe or socket, also after the read deadline of f: this process may
// be late, and the other side may have written in time. It fails with EAGAIN instead of
// waiting.
func ReadNow(f syscall.Conn, b []byte) (n int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if failed := conn.Control(func(fd uintptr) { n, err = Read(fd, b) }); failed != nil {
		return 0, failed
	}
	return n, err
}

// Read is read(2) that no signal interrupts, with io.EOF at the end.
func Read(fd uintptr, b []byte) (int, error) {
	n, err := unix.Read(int(fd), b)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(int(fd), b)
	}
	switch {
	case err != nil:
		return 0, err
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}
