//go:build figures

package integration_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What the server's terminals have and how it reads them, so that the bare
// shell's are the same.
const (
	terminalSize = 1000 // rows and columns
	readSize     = 16 << 10
)

// bareShell is an interactive bash without a line editor on a terminal, and a
// reader that does nothing but look for a mark at the end: the least that can
// be done to run a command and know that it ended.
type bareShell struct {
	cmd    *exec.Cmd
	master *os.File
	raw    syscall.RawConn
	buffer [readSize]byte
	serial int
}

// startBare starts a bare shell and returns once it has run a command.
func (f *figures) startBare(home string) *bareShell {
	f.Helper()
	master, slave, err := openTerminal()
	if err != nil {
		f.Fatalf("opening a terminal: %v", err)
	}
	defer slave.Close()
	b := &bareShell{master: master}
	if b.raw, err = master.SyscallConn(); err != nil {
		f.Fatal(err)
	}
	b.cmd = exec.Command("bash", "--noprofile", "--norc", "--noediting", "-i")
	b.cmd.Dir, b.cmd.Env = home, append(environment(home, home), "PS1=", "PS2=")
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = slave, slave, slave
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := b.cmd.Start(); err != nil {
		f.Fatalf("starting a bare bash: %v", err)
	}
	f.Cleanup(b.stop)
	if _, _, err := b.run("PS1= PS2=; unset -v PROMPT_COMMAND MAILCHECK; set +o history +H"); err != nil {
		f.Fatalf("the bare bash does not answer: %v", err)
	}
	return b
}

func (b *bareShell) stop() {
	if b.cmd.ProcessState != nil {
		return
	}
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	_ = b.master.Close()
}

// bareTimeout ends a wait that has gone wrong.
const bareTimeout = 5 * time.Minute

// run types a command and reads until its mark. It returns how long that took
// and how many bytes came, the mark's among them.
func (b *bareShell) run(text string) (time.Duration, int, error) {
	b.serial++
	mark := fmt.Appendf(nil, "\001%d\002", b.serial)
	line := fmt.Appendf(nil, "%s; printf '\\001%d\\002'\n", text, b.serial)
	if err := b.master.SetReadDeadline(time.Now().Add(bareTimeout)); err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if _, err := b.master.Write(line); err != nil {
		return 0, 0, err
	}
	n, err := b.drain(mark)
	return time.Since(begun), n, err
}

// drain reads until the mark is the last that came.
func (b *bareShell) drain(mark []byte) (total int, err error) {
	var tail []byte // the end of what came, where the mark was cut
	over := b.raw.Read(func(fd uintptr) bool {
		for {
			n, readErr := unix.Read(int(fd), b.buffer[:])
			switch {
			case errors.Is(readErr, unix.EINTR):
				continue
			case errors.Is(readErr, unix.EAGAIN):
				return false
			case readErr != nil:
				err = readErr
				return true
			case n == 0:
				err = io.EOF
				return true
			}
			total += n
			got := b.buffer[:n]
			tail = append(tail, got[max(0, n-len(mark)):]...)
			tail = tail[max(0, len(tail)-len(mark)):]
			if bytes.Equal(tail, mark) {
				return true
			}
		}
	})
	return total, errors.Join(over, err)
}

// openTerminal makes a terminal as the server's is, without the echo that
// typing a command would cause.
func openTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err = configureTerminal(fd)
	if err != nil {
		_ = master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

func configureTerminal(master int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlocking: %w", err)
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("asking for the number: %w", err)
	}
	modes, err := unix.IoctlGetTermios(master, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	modes.Iflag |= unix.IUTF8
	modes.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(master, unix.TCSETS, modes); err != nil {
		return nil, err
	}
	size := &unix.Winsize{Row: terminalSize, Col: terminalSize}
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size); err != nil {
		return nil, err
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
}
