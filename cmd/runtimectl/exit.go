package main

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

// Exit codes. run and exec have those of the command instead, and exitTimeout
// and exitOwn where it has none; the shell says 126 for a command that cannot be
// run and 127 for one that is not there.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3 // no such sandbox, image or file
	exitAuth        = 4 // not allowed: a wrong key, or no access to the engine
	exitConflict    = 5 // something else has the name, or is in the way
	exitUnavailable = 6 // the engine or the sandbox does not answer
	exitTimeout     = 124
	exitOwn         = 125
	exitInterrupted = 130
	exitReaderLeft  = 141 // the reader of standard output left; a shell reports SIGPIPE so
)

// runsCommands marks the commands whose exit codes belong to what they run: any
// failure of ours is exitOwn.
const runsCommands = "runs-commands"

// exitError is how run and exec end: with the code of what they ran.
type exitError struct {
	code int
	why  string // to be said, where there is something to say
}

func (e *exitError) Error() string { return "the command ended" }

// Errors of this program that have exit codes of their own.
var (
	errNotFound   = errors.New("not found")
	errConflict   = errors.New("conflict")
	errEngineOnly = errors.New("this needs an engine, and --local does without one")
)

// absent makes an error that says that a file is not there one of ours.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errNotFound, err)
	}
	return err
}

// readerLeft tells whether standard output no longer has a reader, as behind
// "| head". That is not a failure.
func readerLeft(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	return ok && failed.Path == os.Stdout.Name() && errors.Is(failed.Err, syscall.EPIPE)
}

// exitCode is the one place where errors become exit codes.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if ended, ok := errors.AsType[*exitError](err); ok {
		return ended.code
	}
	if readerLeft(err) {
		return exitReaderLeft
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
	if answer, ok := errors.AsType[*client.StatusError](err); ok {
		status = answer.Status
	}
	switch {
	case errors.As(err, new(*usageError)), is(sandbox.ErrInvalid, sandbox.ErrUnsupported, errEngineOnly):
		return exitUsage
	case status == http.StatusUnauthorized, status == http.StatusForbidden, is(sandbox.ErrUnknown) && is(fs.ErrPermission):
		return exitAuth
	case status == http.StatusNotFound, is(errNotFound, sandbox.ErrNotFound, sandbox.ErrNoImage):
		return exitNotFound
	case status == http.StatusConflict, is(errConflict, archive.ErrExists, syscall.EADDRINUSE, sandbox.ErrConflict, sandbox.ErrClaimed, sandbox.ErrAmbiguous):
		return exitConflict
	case is(context.Canceled, context.DeadlineExceeded):
		return exitFailed
	// A connection that breaks says so in more ways than one: it is reset, or ends.
	case status == http.StatusServiceUnavailable, is(sandbox.ErrUnknown, client.ErrNoAnswer, client.ErrTooSlow), errors.As(err, new(*net.OpError)), errors.As(err, new(*url.Error)):
		return exitUnavailable
	}
	return exitFailed
}
