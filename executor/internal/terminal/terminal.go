// Package terminal makes pseudo terminals that the runtime's poller knows.
package terminal

import (
	"fmt"
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/identity"
)

// Open makes a terminal whose slave belongs to user. The master is in non-blocking
// mode, so that deadlines and Close free a blocked reader. The runtime's poller does not
// know the slave: each change of its modes would wake a thread. The caller closes both.
func Open(user *identity.User) (master, slave *os.File, err error) {
	err = user.Do(func() error {
		blocking, polled, err := pty.Open()
		if err != nil {
			return err
		}
		defer func() { // the duplicates live on
			_ = blocking.Close()
			_ = polled.Close()
		}()
		if master, err = duplicate(blocking, true); err != nil {
			return err
		}
		if slave, err = duplicate(polled, false); err != nil {
			_ = master.Close()
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	return master, slave, nil
}

// duplicate duplicates f: creack/pty hands out the master in blocking mode, which deadlines and
// Close cannot reach, and the slave in the other. A pollable file belongs to the runtime's poller.
func duplicate(f *os.File, pollable bool) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, pollable); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// Resize tells the terminal its size; programs on it get SIGWINCH.
func Resize(master *os.File, rows, cols uint16) error {
	return Control(master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// Control calls f with the descriptor of file, which stays open meanwhile, and returns its
// error, or os.ErrClosed.
func Control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if raw.Control(func(fd uintptr) { inner = f(int(fd)) }) != nil {
		return os.ErrClosed // its own error for that is internal
	}
	return inner
}
