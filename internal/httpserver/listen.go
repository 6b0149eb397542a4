package httpserver

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketMode keeps other users from a socket: to connect is to write to it.
const socketMode = 0o600

// IsAddress reports whether text has a form that [Listen] takes.
func IsAddress(text string) bool {
	if path, isSocket := strings.CutPrefix(text, "unix:"); isSocket {
		return path != ""
	}
	_, _, err := net.SplitHostPort(text)
	return err == nil
}

// Listen listens on HOST:PORT or unix:PATH. A socket on which no server answers is
// replaced, and no other file; only this process's user may connect to the new one.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	path, isSocket := strings.CutPrefix(addr, "unix:")
	if !isSocket {
		return config.Listen(ctx, "tcp", addr)
	}
	if limit := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > limit {
		return nil, fmt.Errorf("listening on %s: the path of a socket has at most %d bytes and this has %d: take a shorter one", path, limit, len(path))
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		var dialer net.Dialer
		if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("listening on %s: another server answers there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("replacing the socket of a server that is gone: %w", err)
		}
	}
	// On Linux the file gets the mode that the socket has when it is bound.
	if runtime.GOOS == "linux" {
		config.Control = func(_, _ string, conn syscall.RawConn) (err error) {
			failed := conn.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) })
			return cmp.Or(failed, err)
		}
		return config.Listen(ctx, "unix", path)
	}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		_ = l.Close() // which removes the file
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return l, nil
}
