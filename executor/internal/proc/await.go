package proc

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// AwaitExit returns when a child of this process ended. The child stays a zombie.
// It costs no thread meanwhile, as os/exec does: a thread that is needed when the
// sandbox has no room for another process ends the server.
func AwaitExit(pid int) {
	if polled(pid) {
		return
	}
	for { // the kernel is older than Linux 5.10
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// polled is Await by the runtime's poller; false where it does not know how.
func polled(pid int) bool {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	process := os.NewFile(uintptr(fd), "process")
	defer func() { _ = process.Close() }()
	conn, err := process.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(func(fd uintptr) bool {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor
		return err != nil && !errors.Is(err, unix.EINTR) || ready > 0
	}) == nil
}
