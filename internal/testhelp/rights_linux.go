package testhelp

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// SendLingering sends the file of a socket whose last close takes an hour, unless the other end of that, which
// it returns, is closed. The sender keeps no file of it.
func SendLingering(tb testing.TB, to *net.UnixConn) (far net.Conn, err error) {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := new(net.Dialer).DialContext(tb.Context(), "tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = far.Close() })
	file, err := near.(*net.TCPConn).File()
	if err != nil {
		tb.Fatal(err)
	}
	_ = near.Close()
	defer func() { _ = file.Close() }()
	fd := int(file.Fd())
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}); err != nil {
		tb.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		tb.Fatal(err)
	}
	defer func() { // before it is closed here
		if err != nil {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
		}
	}()
	// Until nothing more is on its way to the far end.
	Eventually(tb, func() bool {
		sent := 0
		for {
			n, err := unix.Write(fd, make([]byte, 64<<10))
			if err != nil {
				break
			}
			sent += n
		}
		waiting, _ := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
		return sent == 0 && waiting > 0
	}, "the buffers are full")
	_, _, err = to.WriteMsgUnix([]byte("GET /status HTTP/1.1\r\nHost: egress\r\n\r\n"), unix.UnixRights(fd), nil)
	return far, err
}
