package files

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/files"
)

// Error returns the error of a file of the sandbox. Where the caller or the state of
// the sandbox is to blame, that is a refusal that names the file and has its code.
func Error(err error, name string) error {
	if _, ok := errors.AsType[*api.Error](err); ok || err == nil {
		return err
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			// os.Root has no exported error for a path that leads out.
			return refuse(http.StatusBadRequest, "%q leads out of the destination, or changed while it was looked at", name)
		}
		return fmt.Errorf("file %q: %w", name, err)
	}
	fault := api.Fault{Code: files.Code(errno), Path: name, Errno: files.Errno(errno)}
	switch errno {
	case syscall.ENOENT:
		return api.FileError(fault, fmt.Sprintf("File not found: %q", name))
	case syscall.ENOSPC, syscall.EDQUOT:
		return api.FileError(fault, fmt.Sprintf("%q needs more space than is left on its file system", name))
	case syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG,
		syscall.EINVAL, syscall.EEXIST, syscall.EAGAIN, syscall.ENXIO, syscall.ETXTBSY, syscall.EFBIG, syscall.ENODEV,
		syscall.ENOTEMPTY, syscall.EBUSY, syscall.EXDEV, syscall.EMLINK, syscall.EILSEQ, syscall.EOPNOTSUPP, syscall.EOVERFLOW:
		return api.FileError(fault, fmt.Sprintf("%q: %s", name, files.Words(errno)))
	}
	return fmt.Errorf("file %q: %w", name, err)
}

// LegacyError is Error with the statuses of the legacy protocol and without a fault: missing
// for a file that does not exist, 507 for a full disk, and 400.
func LegacyError(err error, name string, missing int) error {
	if _, ok := errors.AsType[*api.Error](err); ok {
		return err
	}
	err = Error(err, name)
	if refusal, ok := errors.AsType[*api.Error](err); ok {
		refusal.Fault = api.Fault{}
		switch refusal.Status {
		case http.StatusNotFound:
			refusal.Status = missing
		case http.StatusInsufficientStorage:
		default:
			refusal.Status = http.StatusBadRequest
		}
	}
	return err
}

// Refuse refuses a request because of a file, without an error of the system.
func Refuse(code, path, format string, args ...any) error {
	return api.FileError(api.Fault{Code: code, Path: path}, fmt.Sprintf(format, args...))
}

// refuse refuses a request.
func refuse(status int, format string, args ...any) error {
	return &api.Error{Status: status, Detail: fmt.Sprintf(format, args...)}
}
