package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// fail answers with an error; verdict is the only place that turns errors into
// statuses. A refusal has its own status. A wait that was ended from outside
// says so. Everything else is ours: it is logged with its chain under an id,
// and the caller gets the id and none of the chain.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	if httpserver.Begun(w) {
		if ctx.Err() == nil {
			s.log.ErrorContext(ctx, "answer broke off", "path", r.URL.Path, "error", err)
		}
		panic(http.ErrAbortHandler) // so that half an answer does not look whole
	}
	h := w.Header()
	h.Del("Content-Disposition")
	refusal, id := s.verdict(r, err)
	switch refusal.Status {
	case http.StatusTooManyRequests:
		h.Set("Retry-After", "1")
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", api.Challenge(refusal))
	}
	httpserver.WriteRefusal(w, r, refusal, id)
}

// verdict returns what a caller is told about an error, and the id under which
// the log has the rest where the server is to blame.
func (s *Server) verdict(r *http.Request, err error) (told *api.Error, id string) {
	if refusal, ok := errors.AsType[*api.Error](err); ok {
		return refusal, ""
	}
	ctx := r.Context()
	if waitEnded(ctx, err) {
		return unanswered(ctx), ""
	}
	id = httpserver.LogBroken(s.log, r, err)
	return &api.Error{
		Status: http.StatusInternalServerError,
		Detail: "Internal server error: the server's log says more under " + id,
	}, id
}

// unanswered says why no client waited for the end of a request.
func unanswered(ctx context.Context) *api.Error {
	if errors.Is(context.Cause(ctx), errStopping) {
		return &api.Error{
			Status: http.StatusInternalServerError, // 503 would make a client start the sandbox again
			Detail: "The server is shutting down and did not wait for the outcome, which is unknown",
		}
	}
	return &api.Error{
		Status: httpserver.ClientGone,
		Detail: "The client closed the connection before the response; the action continues",
	}
}

// waitEnded tells whether err is no more than the end of ctx.
func waitEnded(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// refuse returns a refusal with a status.
func refuse(status int, format string, args ...any) error {
	return &api.Error{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// invalid returns the refusal of a request that has not the form it should.
func invalid(format string, args ...any) error {
	return &api.Error{
		Status: http.StatusUnprocessableEntity,
		Detail: "Invalid request parameters",
		Errors: fmt.Sprintf(format, args...),
	}
}

// fileError says what is wrong with a file of the sandbox. What the caller or
// the state of the sandbox is to blame for becomes a refusal that names the
// file, with status missing where it does not exist.
func fileError(err error, name string, missing int) error {
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
	switch errno {
	case syscall.ENOENT:
		return refuse(missing, "File not found: %q", name)
	case syscall.ENOSPC, syscall.EDQUOT:
		return refuse(http.StatusInsufficientStorage, "%q needs more space than is left on its file system", name)
	case syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG,
		syscall.EINVAL, syscall.EEXIST, syscall.EAGAIN, syscall.ENXIO, syscall.ETXTBSY, syscall.EFBIG, syscall.ENODEV,
		syscall.ENOTEMPTY, syscall.EBUSY, syscall.EXDEV, syscall.EMLINK, syscall.EILSEQ, syscall.EOPNOTSUPP, syscall.EOVERFLOW:
		return refuse(http.StatusBadRequest, "%q: %v", name, errno)
	}
	return fmt.Errorf("file %q: %w", name, err)
}
