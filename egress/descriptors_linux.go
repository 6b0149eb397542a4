package egress

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxRights is the size of the control message with the most files that the kernel carries.
var maxRights = unix.CmsgSpace(253 * 4)

var errDescriptors = errors.New("the sandbox sent open files")

// refuseDescriptors returns a listener whose connections accept no open files. The receiver of a file that it
// does not want closes it, which may take as long as the sender wants: the close of a socket that lingers
// holds a thread. The kernel refuses them from Linux 6.16 on.
func refuseDescriptors(l *net.UnixListener) net.Listener {
	if setOption(l, unix.SO_PASSRIGHTS) == nil {
		return l
	}
	return &closingListener{l}
}

// setOption sets an option of a socket to 0.
func setOption(c syscall.Conn, option int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 0) })
	return errors.Join(err, inner)
}

// closingListener accepts connections as closingConn.
type closingListener struct{ *net.UnixListener }

// Accept implements [net.Listener].
func (l *closingListener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &closingConn{UnixConn: c, control: make([]byte, maxRights)}, nil
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
		return 0, errDescriptors
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
