package bash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/terminal"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/identity"
)

// The terminal is as large as the reference server's, so that programs that
// format for its width print the same (docs/reference/openhands-protocol.md, section 4.1).
const (
	terminalRows = 1000
	terminalCols = 1000
)

// pty is a pseudo terminal. The master is in non-blocking mode and known
// to the runtime's poller, so that Close frees a blocked reader. The slave stays
// open here: some settings can be restored through it only.
type pty struct {
	master *os.File
	slave  *os.File
	name   string // path of the slave
	modes  unix.Termios
	owner  unix.Stat_t // of the slave: uid, gid and permissions count
	locks  bool        // this process, and so perhaps a command, can lock the modes
}

// openTerminal makes a terminal whose slave belongs to user.
func openTerminal(user *identity.User) (*pty, error) {
	t := &pty{}
	var err error
	if t.master, t.slave, err = terminal.Open(user); err != nil {
		return nil, err
	}
	t.name = t.slave.Name()
	if err := t.configure(); err != nil {
		t.close()
		return nil, fmt.Errorf("opening a terminal: %w", err)
	}
	return t, nil
}

// configure sets the size and the modes, and remembers the owner and the modes for restore.
func (t *pty) configure() error {
	err := terminal.Control(t.slave, func(fd int) error { return unix.Fstat(fd, &t.owner) })
	if err != nil {
		return err
	}
	return terminal.Control(t.master, func(fd int) error {
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
		t.locks = unix.IoctlSetTermios(fd, unix.TIOCSLCKTRMIOS, &unix.Termios{}) == nil
		return unix.IoctlSetTermios(fd, unix.TCSETS, modes)
	})
}

// unblock lets output and typed text through again, where a program stopped the
// output (tcflow(3), a typed C-s) or chose another line discipline, which may let
// nothing through, not even C-c. An error says that the terminal was hung up.
func (t *pty) unblock() error { return terminal.Control(t.slave, unblock) }

func unblock(slave int) error {
	const usual = 0 // N_TTY
	discipline, err := unix.IoctlGetInt(slave, unix.TIOCGETD)
	if err == nil && discipline != usual {
		err = unix.IoctlSetPointerInt(slave, unix.TIOCSETD, usual)
	}
	if err != nil {
		return os.NewSyscallError("TIOCSETD", err)
	}
	return os.NewSyscallError("TCXONC", unix.IoctlSetInt(slave, unix.TCXONC, unix.TCOON))
}

// restore gives the terminal back the settings and the owner it began with,
// where a command left others behind (a killed editor, stty raw, TIOCEXCL, chmod),
// and drops typed text that was not read: it was meant for the command that has
// ended, and must not answer the question of another. The kernel takes text
// written to the master to the other side at its leisure: TCIFLUSH drops what is on its
// way (tty_ioctl: tty_buffer_flush) and then what has arrived (n_tty_flush_buffer).
//
// It returns the id of the session whose controlling terminal this is; its keys reach no
// other. An error says that commands can no longer use the terminal.
func (t *pty) restore(size unix.Winsize, user *identity.User) (session int, err error) {
	err = terminal.Control(t.slave, func(fd int) error {
		if err := unblock(fd); err != nil {
			return err
		}
		if err := unix.IoctlSetInt(fd, unix.TIOCNXCL, 0); err != nil {
			return os.NewSyscallError("TIOCNXCL", err)
		}
		if err := unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH); err != nil {
			return os.NewSyscallError("TCFLSH", err)
		}
		return t.restoreOwner(fd, user)
	})
	if err != nil {
		return 0, err
	}
	err = terminal.Control(t.master, func(fd int) error {
		if t.locks {
			_ = unix.IoctlSetTermios(fd, unix.TIOCSLCKTRMIOS, &unix.Termios{})
		}
		// Not TCSETSF: it waits for a program that is writing, for as long as its output is not read, and with a signal for
		// this thread Linux 6.18 never returns from that wait.
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, &t.modes); err != nil {
			return os.NewSyscallError("TCSETS", err)
		}
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size); err != nil {
			return os.NewSyscallError("TIOCSWINSZ", err)
		}
		session, err = unix.IoctlGetInt(fd, unix.TIOCGSID)
		return os.NewSyscallError("TIOCGSID", err)
	})
	return session, err
}

// restoreOwner works on the open file, so no path is followed.
func (t *pty) restoreOwner(fd int, user *identity.User) error {
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	if now.Uid != t.owner.Uid || now.Gid != t.owner.Gid {
		if err := unix.Fchown(fd, int(t.owner.Uid), int(t.owner.Gid)); err != nil {
			return os.NewSyscallError("fchown", err)
		}
	}
	if now.Mode == t.owner.Mode {
		return nil
	}
	return user.Do(func() error { return os.NewSyscallError("fchmod", unix.Fchmod(fd, t.owner.Mode&0o7777)) })
}

// has reports whether a local mode is set, such as ISIG.
func (t *pty) has(mode uint32) (set bool) {
	_ = terminal.Control(t.master, func(fd int) error {
		modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		set = err == nil && modes.Lflag&mode != 0
		return err
	})
	return set
}

// offer types a piece of keys and returns how many bytes: 0 while much earlier
// input is unread. With byLine that is a line where programs read lines, and no other waits.
func (t *pty) offer(keys []byte, byLine bool) (n int) {
	lines, waits := byLine && t.has(unix.ICANON), 0
	err := terminal.Control(t.slave, func(fd int) (err error) {
		waits, err = unix.IoctlGetInt(fd, unix.TIOCINQ) // of whole lines, where programs read lines
		return err
	})
	if err != nil || waits > 0 && lines || waits >= pieceSize {
		return 0
	}
	if end := bytes.IndexAny(keys, "\r\n"); end >= 0 && lines {
		keys = keys[:end+1]
	}
	_ = terminal.Control(t.master, func(fd int) (err error) {
		n, err = unix.Write(fd, keys[:min(len(keys), pieceSize)])
		return err
	})
	return max(0, n)
}

// unread takes away the typed bytes that were not read: lines, and the beginning of the next one.
func (t *pty) unread() (typed []byte) {
	_ = terminal.Control(t.slave, func(fd int) error {
		before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		keys := *before
		keys.Lflag &^= unix.ICANON
		keys.Cc[unix.VMIN], keys.Cc[unix.VTIME] = 0, 0
		if err := errors.Join(unix.SetNonblock(fd, true), unix.IoctlSetTermios(fd, unix.TCSETS, &keys)); err != nil {
			return err
		}
		for err == nil && len(typed) < maxUnread {
			typed = slices.Grow(typed, pieceSize)
			var n int
			// The read first has the kernel take over the bytes that are on their way.
			n, err = files.Read(uintptr(fd), typed[len(typed):cap(typed)])
			typed = typed[:len(typed)+n]
		}
		return unix.IoctlSetTermios(fd, unix.TCSETS, before)
	})
	return typed
}

// maxUnread is more than a terminal holds. A process could forge more (TIOCSTI).
const maxUnread = 64 << 10

func (t *pty) close() {
	if t.master != nil {
		_ = t.master.Close()
	}
	if t.slave != nil {
		_ = t.slave.Close()
	}
}
