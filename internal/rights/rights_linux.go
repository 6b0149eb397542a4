// Package rights keeps away open files that the other end of a Unix socket sends (SCM_RIGHTS). The receiver of
// a file that it does not want closes it, which may take as long as the sender wants: the close of a socket
// that lingers holds a thread. The kernel refuses such files from Linux 6.16 on; before, the package receives
// them, closes them without lingering, and breaks the connection.
package rights

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxRights is the size of the control message with the most files that the kernel carries.
var maxRights = unix.CmsgSpace(253 * 4)

var errRights = errors.New("the other end sent open files")

// Listener returns a listener whose connections accept no open files.
func Listener(l *net.UnixListener) net.Listener {
	if raw, err := l.SyscallConn(); err == nil {
		_ = refuse("", "", raw)
	}
	return &listener{l}
}

// Dial connects to a Unix socket, and accepts no open files from there.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	dialer := net.Dialer{Control: refuse}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return guard(conn.(*net.UnixConn)), nil //nolint:forcetypeassert // of Unix
}

// refuse has the kernel refuse open files, if it can. It is a function of [net.Dialer].
func refuse(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0) })
}

// listener accepts connections that it guards.
type listener struct{ *net.UnixListener }

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return guard(c), nil
}

// guard returns c if the kernel refuses open files for it, and otherwise a connection that closes them. The
// kernel cannot refuse them for connections that began before it was asked to.
func guard(c *net.UnixConn) net.Conn {
	passes := 1
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS); err == nil {
				passes = n
			}
		})
	}
	if passes == 0 {
		return c
	}
	return &closingConn{UnixConn: c, control: make([]byte, maxRights)}
}

// closingConn receives open files, so that it can close them at once, and breaks.
type closingConn struct {
	*net.UnixConn

	control []byte // of Read
}

func (c *closingConn) Read(p []byte) (int, error) {
	n, rights, _, _, err := c.ReadMsgUnix(p, c.control)
	switch {
	case rights > 0:
		closeRights(c.control[:rights])
		return 0, errRights
	case errors.Is(err, io.EOF):
		err = io.EOF // net wraps it here alone
	}
	return n, err
}

// Close closes the files that were not received, too: the kernel would.
func (c *closingConn) Close() error {
	_ = c.CloseRead() // nothing arrives from now on
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			data, control := make([]byte, 4<<10), make([]byte, maxRights)
			for {
				n, rights, _, _, err := unix.Recvmsg(int(fd), data, control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
				if err != nil || n <= 0 {
					return
				}
				closeRights(control[:rights])
			}
		})
	}
	return c.UnixConn.Close()
}

// closeRights closes the files in a control message. Sockets among them do not linger.
func closeRights(control []byte) {
	messages, _ := unix.ParseSocketControlMessage(control) // the kernel's own
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i]) // it has no others
		for _, fd := range fds {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{}) // of a socket
			_ = unix.Close(fd)
		}
	}
}
