package egress_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
)

// sendLingering sends the file of a socket whose last close takes an hour, unless the other end of that, which
// it returns, is closed. The sender keeps no file of it.
func sendLingering(t *testing.T, to *net.UnixConn) (far net.Conn, err error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	file, err := near.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	near.Close()
	defer file.Close()
	fd := int(file.Fd())
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	defer func() { // before it is closed here
		if err != nil {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
		}
	}()
	// Until nothing more is on its way to the far end.
	testhelp.Eventually(t, func() bool {
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

// TestAttackDescriptors: root of a sandbox sends sockets whose close would hold the proxy's threads.
func TestAttackDescriptors(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"public"}`)
	tunnel, _, _ := f.connect(t, "echo.example:7")
	exchange(t, tunnel, "hello")
	for _, c := range []*net.UnixConn{tunnel, dialSocket(t, f.socket(id))} {
		if _, err := sendLingering(t, c); err == nil { // a kernel before 6.16
			testhelp.Eventually(t, func() bool { _, err := c.Write([]byte("a")); return err != nil }, "the connection ends")
		} else if !errors.Is(err, syscall.EPERM) {
			t.Error(err)
		}
	}
	f.apply(t, `{"mode":"no-network"}`) // which waits for the end of the tunnel
	if err := f.Delete(id); err != nil {
		t.Error(err)
	}
}

// TestAttackDescriptorsClosed: where the kernel delivers such sockets, they are closed at once, those that
// nothing has read, too.
func TestAttackDescriptorsClosed(t *testing.T) {
	t.Parallel()
	inner, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	l := egress.ClosingListener(inner)
	defer l.Close()
	for _, reads := range []bool{true, false} {
		near := dialSocket(t, inner.Addr().String())
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := near.Write([]byte("a")); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 8)); n != 1 || err != nil {
			t.Errorf("without files: %d, %v", n, err)
		}
		far, err := sendLingering(t, near)
		if err != nil {
			t.Fatal(err)
		}
		if reads {
			if n, err := conn.Read(make([]byte, 8)); n != 0 || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("with a file: %d, %v", n, err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, far); err != nil {
			t.Errorf("the socket: %v", err) // it ends only when its file is closed
		}
	}
	near := dialSocket(t, inner.Addr().String())
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	near.Close()
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // io.Copy compares it so
		t.Errorf("at the end: %v", err)
	}
}
