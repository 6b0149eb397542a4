package rights_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/rights"
	"github.com/actiond/actiond/internal/testhelp"
)

// dial connects as a sandbox could.
func dial(t *testing.T, l *net.UnixListener) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// accept returns a connection that began before the kernel was asked to refuse open files, as all do where it
// cannot, and the other end.
func accept(t *testing.T) (near *net.UnixConn, conn net.Conn) {
	t.Helper()
	inner, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	near = dial(t, inner)
	l := httpserver.LimitListener(rights.Listener(inner), 2)
	defer l.Close()
	if conn, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, conn
}

// TestAttackClosed: where the kernel delivers sockets that linger, they are closed at once: those that are read
// when the time for a header is over, and those that nothing has read, too.
func TestAttackClosed(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"read", "late", "not read"} {
		near, conn := accept(t)
		if _, err := near.Write([]byte("a")); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 8)); n != 1 || err != nil {
			t.Errorf("without files: %d, %v", n, err)
		}
		far, err := testhelp.SendLingering(t, near)
		if err != nil {
			t.Fatal(err)
		}
		if how == "late" {
			if err := conn.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		if how != "not read" {
			if n, err := conn.Read(make([]byte, 8)); n != 0 || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%s, with a file: %d, %v", how, n, err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, far); err != nil {
			t.Errorf("%s: the socket: %v", how, err) // it ends only when its file is closed
		}
	}
	near, conn := accept(t)
	defer conn.Close()
	near.Close()
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // io.Copy compares it so
		t.Errorf("at the end: %v", err)
	}
}

// TestBroken: the other end closes the connection with bytes that it has not read.
func TestBroken(t *testing.T) {
	t.Parallel()
	near, conn := accept(t)
	defer conn.Close()
	if _, err := conn.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	near.Close()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("got %d, %v", n, err)
	}
}

// TestAttackClosedWithin: a Unix socket is sent that holds such a socket, whose close is that of the other.
func TestAttackClosedWithin(t *testing.T) {
	t.Parallel()
	pair := func(t *testing.T, kind int) (near *net.UnixConn, fd int) {
		t.Helper()
		fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(fds[0]), "near")
		defer file.Close()
		conn, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		return conn.(*net.UnixConn), fds[1]
	}
	for name, outer := range map[string]func(t *testing.T) (near *net.UnixConn, fd int){
		"stream": func(t *testing.T) (*net.UnixConn, int) { t.Helper(); return pair(t, unix.SOCK_STREAM) },
		"behind an empty packet": func(t *testing.T) (*net.UnixConn, int) {
			t.Helper()
			near, fd := pair(t, unix.SOCK_SEQPACKET)
			if _, _, err := near.WriteMsgUnix(nil, nil, nil); err != nil {
				t.Fatal(err)
			}
			return near, fd
		},
		"not accepted": func(t *testing.T) (*net.UnixConn, int) {
			t.Helper()
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			file, err := l.File()
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			return dial(t, l), fd
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, conn := accept(t)
			inner, fd := outer(t)
			far, err := testhelp.SendLingering(t, inner)
			if err != nil {
				t.Fatal(err)
			}
			inner.Close()
			_, _, err = near.WriteMsgUnix([]byte("a"), unix.UnixRights(fd), nil)
			unix.Close(fd)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if _, err := io.Copy(io.Discard, far); err != nil {
				t.Errorf("the socket: %v", err)
			}
		})
	}
}

// TestAttackDial: the process that a client connects to sends such a socket.
func TestAttackDial(t *testing.T) {
	t.Parallel()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := rights.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if _, err := testhelp.SendLingering(t, far); err == nil { // a kernel before 6.16
		if n, err := conn.Read(make([]byte, 8)); n != 0 || err == nil {
			t.Errorf("with a file: %d, %v", n, err)
		}
	} else if !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := rights.Dial(t.Context(), l.Addr().String()+"-other"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no socket: %v", err)
	}
}
