//go:build linux

package files

import (
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// Code is the machine word of an error of the file system, one of ErrorCode in api/openapi.yaml:
// "command_failed" where there is no better one.
func Code(err error) string {
	switch {
	case errors.Is(err, ErrProtected), errors.Is(err, unix.EBUSY):
		return "path_not_allowed"
	case errors.Is(err, ErrMoved):
		return "conflict"
	case errors.Is(err, ErrNotRegular), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return "not_regular_file"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return "permission_denied"
	case errors.Is(err, unix.EISDIR):
		return "is_directory"
	case errors.Is(err, unix.ENOTDIR):
		return "not_directory"
	case errors.Is(err, fs.ErrNotExist):
		return "file_not_found"
	case errors.Is(err, unix.ENOTEMPTY): // which is also an fs.ErrExist
		return "directory_not_empty"
	case errors.Is(err, fs.ErrExist):
		return "already_exists"
	case errors.Is(err, unix.EXDEV):
		return "cross_device"
	case errors.Is(err, unix.EFBIG):
		return "file_too_large"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "no_space"
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL):
		return "invalid_argument"
	}
	return "command_failed"
}

// Words describe the fault of a path: the system's own words, but where they do not fit a path.
func Words(errno syscall.Errno) string {
	if errno == unix.EBUSY {
		return "it is a mount point, or the system uses it"
	}
	return errno.Error()
}

// Errno is the name of the system's error in err, such as "ENOENT"; "" without one.
func Errno(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return ""
}
