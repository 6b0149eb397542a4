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

// maxQueued is more than the messages that fit into a Unix socket.
const maxQueued = 4 << 10

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
	return c.received(n, rights, err)
}

// ReadNow reads the bytes that have arrived, also after the read deadline. It fails with EAGAIN instead
// of waiting.
func (c *closingConn) ReadNow(p []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	rights := 0
	if failed := raw.Control(func(fd uintptr) {
		n, rights, _, _, err = unix.Recvmsg(int(fd), p, c.control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	}); failed != nil {
		return 0, failed
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	return c.received(n, rights, err)
}

// received returns the result of a read, unless files came with it.
func (c *closingConn) received(n, rights int, err error) (int, error) {
	switch {
	case rights > 0:
		closeFiles(filesIn(c.control[:rights]))
		return 0, errRights
	case errors.Is(err, io.EOF):
		err = io.EOF // ReadMsgUnix wraps it, as no other function of net does
	}
	return max(n, 0), err // recvmsg returns -1
}

// Close closes the files that were not received, too: the kernel would.
func (c *closingConn) Close() error {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { drain(int(fd), closeFiles) })
	}
	return c.UnixConn.Close()
}

// drain passes on the files that wait in a Unix socket, and connections that wait in one that listens.
func drain(fd int, pass func(fds []int)) {
	_ = unix.Shutdown(fd, unix.SHUT_RD) // nothing arrives from now on
	kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	data, control := make([]byte, 4<<10), make([]byte, maxRights)
	for range maxQueued {
		n, rights, _, _, err := unix.Recvmsg(fd, data, control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if err != nil || n == 0 && kind == unix.SOCK_STREAM { // packets may be empty
			break
		}
		pass(filesIn(control[:rights]))
	}
	for { // fails at once where it does not listen
		conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		pass([]int{conn})
	}
}

// filesIn returns the files in a control message.
func filesIn(control []byte) (fds []int) {
	messages, _ := unix.ParseSocketControlMessage(control) // the kernel's own
	for i := range messages {
		more, _ := unix.ParseUnixRights(&messages[i]) // it has no others
		fds = append(fds, more...)
	}
	return fds
}

// closeFiles closes files. Sockets among them do not linger, nor do those that wait in them, which the kernel
// would close with them: files can be sent thousands deep.
func closeFiles(fds []int) {
	for len(fds) > 0 {
		last := len(fds) - 1
		fd := fds[last]
		fds = fds[:last]
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{}) // of a socket
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_UNIX {
			drain(fd, func(more []int) { fds = append(fds, more...) })
		}
		_ = unix.Close(fd)
	}
}
