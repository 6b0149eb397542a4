package docker

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/rights"
)

// dialSocket connects to the socket of a name in dir and to nothing else. The directory
// is mounted into a container, so the agent may have made its entries: no link
// is followed, the socket is examined and connected to through one descriptor, so
// that nothing can be swapped in between, and the process that listens on it must
// be the sandbox's server.
func dialSocket(ctx context.Context, dir, name string, serverUID int) (net.Conn, error) {
	path := filepath.Join(dir, name)
	dirFD, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the socket directory %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(dirFD) }()
	fd, err := unix.Openat(dirFD, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the socket %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("looking at the socket %s: %w", path, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return nil, fmt.Errorf("%s: %w: not a socket (type %#o)", path, ErrUnsafeSocket, stat.Mode&unix.S_IFMT)
	case int(stat.Uid) != serverUID:
		return nil, fmt.Errorf("%s: %w: it belongs to user %d and the server is %d", path, ErrUnsafeSocket, stat.Uid, serverUID)
	}
	conn, err := rights.Dial(ctx, "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", path, err)
	}
	if err := checkPeer(conn.(syscall.Conn), serverUID); err != nil { //nolint:forcetypeassert // network unix gives these
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return conn, nil
}

// checkPeer asks the kernel who listens.
func checkPeer(conn syscall.Conn, serverUID int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if peerErr != nil {
		return os.NewSyscallError("getsockopt", peerErr)
	}
	if int(peer.Uid) != serverUID {
		return fmt.Errorf("%w: user %d listens on it and the server is %d", ErrUnsafeSocket, peer.Uid, serverUID)
	}
	return nil
}
