package bash

import (
	"fmt"
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// The terminal is as large as the reference server's, so that programs that
// format for its width print the same (contract, section 4.1).
const (
	terminalRows = 1000
	terminalCols = 1000
)

// terminal is a pseudo terminal. The master is in non-blocking mode and known
// to the runtime's poller, so that Close frees a blocked reader.
type terminal struct {
	master *os.File
	slave  *os.File // for the shell; closed once it has started
	name   string   // path of the slave
	modes  unix.Termios
}

// openTerminal makes a terminal whose slave belongs to whoever as works for.
func openTerminal(as func(func() error) error) (*terminal, error) {
	t := &terminal{}
	err := as(func() error {
		master, slave, err := pty.Open()
		if err != nil {
			return err
		}
		defer func() { _ = master.Close() }() // a blocking descriptor; the duplicate lives on
		t.slave, t.name = slave, slave.Name()
		t.master, err = pollable(master)
		return err
	})
	if err == nil {
		err = t.configure()
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("opening a terminal: %w", err)
	}
	return t, nil
}

// pollable duplicates f as a non-blocking file: creack/pty hands out
// descriptors in blocking mode, which deadlines and Close cannot reach.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// configure sets the size and remembers the modes that restore goes back to.
func (t *terminal) configure() error {
	return t.control(func(fd int) error {
		size := &unix.Winsize{Row: terminalRows, Col: terminalCols}
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size); err != nil {
			return err
		}
		modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		modes.Iflag |= unix.IUTF8
		// No key stops the output: only another could start it again.
		modes.Iflag &^= unix.IXON | unix.IXOFF
		t.modes = *modes
		return unix.IoctlSetTermios(fd, unix.TCSETS, modes)
	})
}

// restore gives the terminal back the modes it began with, where a command left
// others behind (a killed editor, stty raw), and drops what was typed and not
// read: it was meant for the command that has ended, and must not answer the
// question of another. The kernel takes what is written to the master to the
// other side at its leisure: the first call drops what is still on its way, the
// second what has arrived. Without typed, nothing is on its way.
func (t *terminal) restore(typed bool) {
	_ = t.control(func(fd int) error {
		if typed {
			_ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCOFLUSH)
		}
		return unix.IoctlSetTermios(fd, unix.TCSETSF, &t.modes)
	})
}

// control calls f with the master's descriptor, which stays open meanwhile.
func (t *terminal) control(f func(fd int) error) error {
	raw, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

func (t *terminal) close() {
	if t.master != nil {
		_ = t.master.Close()
	}
	if t.slave != nil {
		_ = t.slave.Close()
	}
}
