//go:build linux

package files

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	resolveBeneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
	// maxPath is the longest path that one system call takes (PATH_MAX).
	maxPath = unix.PathMax - 1
)

// OpenBeneath opens a path below an open directory, which may be opened with O_PATH, and
// returns the descriptor. The path has no "." and no ".."; it may be longer than PATH_MAX. It
// fails with ELOOP or ENOTDIR where a component is a symbolic link, and with EXDEV where one
// is mounted. Like [OpenNoFollow] it waits for nothing.
func OpenBeneath(dir int, path string, flag int) (int, error) {
	return openBeneath(dir, path, flag, hasOpenat2())
}

func openBeneath(dir int, path string, flag int, openat2 bool) (fd int, err error) {
	flag |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	if flag&unix.O_PATH == 0 { // with which openat2 refuses others
		flag |= unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_LARGEFILE
	}
	step := func(dir int, path string, flag int) (int, error) {
		return openResolved(dir, path, flag, resolveBeneath)
	}
	if !openat2 {
		step = openComponent
	}
	for at := dir; ; at = fd {
		part, rest := cutPath(path, openat2)
		if rest == "" {
			fd, err = step(at, part, flag)
		} else {
			fd, err = step(at, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
		}
		if at != dir {
			_ = unix.Close(at)
		}
		if err != nil || rest == "" {
			return fd, err
		}
		path = rest
	}
}

// cutPath returns as much of a path as one system call takes, whole components, and the rest.
func cutPath(path string, openat2 bool) (part, rest string) {
	if !openat2 {
		part, rest, _ = strings.Cut(path, "/")
		return part, rest
	}
	if len(path) <= maxPath {
		return path, ""
	}
	end := strings.LastIndexByte(path[:maxPath], '/')
	if end < 0 {
		return path, "" // too long a name, which the kernel refuses
	}
	return path[:end], path[end+1:]
}

// openResolved opens a path below an open directory by openat2, with its flags for the resolution.
func openResolved(dir int, path string, flag int, resolve uint64) (fd int, err error) {
	how := &unix.OpenHow{Flags: uint64(flag), Resolve: resolve} //nolint:gosec // flags are not negative
	for range 100 {                                             // a rename elsewhere is EAGAIN
		fd, err = unix.Openat2(dir, path, how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return fd, err
}

// openComponent is openResolved of one component, for OpenBeneath on kernels without openat2.
func openComponent(dir int, name string, flag int) (int, error) {
	if name == ".." {
		return -1, unix.EXDEV
	}
	fd, err := unix.Openat(dir, name, flag, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat(dir, name, flag, 0)
	}
	if err != nil {
		return -1, err
	}
	var above, at unix.Statx_t
	if err = unix.Statx(dir, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &above); err == nil {
		err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &at)
	}
	// Linux before 5.8 has no mount ids, and does not show a part of the same file system that is mounted.
	if err == nil && (above.Mnt_id != at.Mnt_id || above.Dev_major != at.Dev_major || above.Dev_minor != at.Dev_minor) {
		err = unix.EXDEV
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
