package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/sandbox"
)

// Exit codes. run and exec have those of the command instead, and ExitTimeout
// and ExitOwn where it has none; the shell says 126 for a command that cannot be
// run and 127 for one that is not there.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3 // no such sandbox, action, image, network or file
	ExitAuth        = 4 // not allowed: a wrong key, or no access to the engine
	ExitConflict    = 5 // something else has the name, or is in the way
	ExitUnavailable = 6 // the engine or the sandbox does not answer
	ExitTimeout     = 124
	ExitAbsent      = 127
	ExitOwn         = 125
	ExitInterrupted = 130
	ExitReaderLeft  = 141 // the reader of standard output left; a shell reports SIGPIPE so
)

// RunsCommands marks the commands that exit with the code of the command that they run: any
// failure of ours is ExitOwn.
const RunsCommands = "runs-commands"

// NoSandboxes marks the commands that need no driver: they are the same on every
// platform.
const NoSandboxes = "no-sandboxes"

// ExitError ends run and exec with the exit code of their command.
type ExitError struct {
	Code int
	Why  string // message for the user; "" for none
	Said string // output of the command, as far as it is known
}

func (e *ExitError) Error() string { return "the command ended" }

// Errors of this program that have exit codes of their own.
var (
	ErrNotFound   = errors.New("not found")
	ErrConflict   = errors.New("conflict")
	ErrEnded      = errors.New("the sandbox ended before it answered")
	ErrEngineOnly = errors.New("this needs an engine, and --on local does without one")
)

// kindError is err with the exit code of kind, and without its text.
type kindError struct{ kind, err error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

// Conflict returns an error that is an [ErrConflict] and does not say so.
func Conflict(format string, args ...any) error {
	return &kindError{ErrConflict, fmt.Errorf(format, args...)}
}

// Missing returns an error that is an [ErrNotFound] and does not say so.
func Missing(format string, args ...any) error {
	return &kindError{ErrNotFound, fmt.Errorf(format, args...)}
}

// Invalid returns an error that is a [sandbox.ErrInvalid] and does not say so.
func Invalid(format string, args ...any) error {
	return &kindError{sandbox.ErrInvalid, fmt.Errorf(format, args...)}
}

// Unavailable returns an error that is a [sandbox.ErrUnknown] and does not say so.
func Unavailable(format string, args ...any) error {
	return &kindError{sandbox.ErrUnknown, fmt.Errorf(format, args...)}
}

// Absent makes an error that says that a file is not there one of ours.
func Absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &kindError{ErrNotFound, err}
	}
	return err
}

// ReaderLeft reports whether standard output no longer has a reader, as behind
// "| head". That is not a failure.
func ReaderLeft(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	return ok && failed.Path == os.Stdout.Name() && errors.Is(failed.Err, syscall.EPIPE)
}

// ExitCode is the one place where errors become exit codes.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if ended, ok := errors.AsType[*ExitError](err); ok {
		return ended.Code
	}
	if ReaderLeft(err) {
		return ExitReaderLeft
	}
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	status := 0
	// A file that the sandbox's user may not change is no wrong key.
	if answer, ok := errors.AsType[*client.StatusError](err); ok && answer.Code != "permission_denied" {
		status = answer.Status
	}
	switch {
	case errors.As(err, new(*UsageError)), is(sandbox.ErrInvalid, sandbox.ErrUnsupported, ErrEngineOnly):
		return ExitUsage
	case status == http.StatusUnauthorized, status == http.StatusForbidden, is(sandbox.ErrUnknown) && is(fs.ErrPermission):
		return ExitAuth
	case status == http.StatusNotFound, status == http.StatusGone,
		is(ErrNotFound, sandbox.ErrNotFound, sandbox.ErrNoImage, sandbox.ErrNoNetwork):
		return ExitNotFound
	case status == http.StatusConflict, is(ErrConflict, archive.ErrExists, syscall.EADDRINUSE, sandbox.ErrConflict,
		sandbox.ErrClaimed, sandbox.ErrAmbiguous):
		return ExitConflict
	case is(context.Canceled, context.DeadlineExceeded):
		return ExitFailed
	// A connection that breaks says so in more ways than one: it is reset, or ends.
	case status == http.StatusServiceUnavailable, is(ErrEnded, sandbox.ErrUnknown, client.ErrNoAnswer, client.ErrTooSlow),
		errors.As(err, new(*net.OpError)), errors.As(err, new(*url.Error)):
		return ExitUnavailable
	}
	return ExitFailed
}
