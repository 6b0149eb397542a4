package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/sandbox"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNREFUSED}
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"anything", errors.New("x"), 1},
		{"command line", &UsageError{"runtimectl", errors.New("x")}, 2},
		{"specification", sandbox.ErrInvalid, 2},
		{"no sandbox", sandbox.ErrNotFound, 3},
		{"no image", sandbox.ErrNoImage, 3},
		{"no file", ErrNotFound, 3},
		{"nothing there", &client.StatusError{Status: 404}, 3},
		{"forgotten action", &client.StatusError{Status: 410}, 3},
		{"wrong key", &client.StatusError{Status: 401}, 4},
		{"forbidden", &client.StatusError{Status: 403}, 4},
		{"a file of another user", &client.StatusError{Status: 403, Code: "permission_denied"}, 1},
		{"engine's socket is not ours", errors.Join(sandbox.ErrUnknown, fs.ErrPermission), 4},
		{"name taken", sandbox.ErrConflict, 5},
		{"claimed", sandbox.ErrClaimed, 5},
		{"short id of several", sandbox.ErrAmbiguous, 5},
		{"in the way", ErrConflict, 5},
		{"port taken", &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}, 5},
		{"changed meanwhile", &client.StatusError{Status: 409}, 5},
		{"no engine", sandbox.ErrUnknown, 6},
		{"no engine, by a dial", errors.Join(sandbox.ErrUnknown, refused), 6},
		{"no server", refused, 6},
		{"starting", &client.StatusError{Status: 503}, 6},
		{"given up", errors.Join(context.Canceled, refused), 1},
		{"the server broke", &client.StatusError{Status: 500}, 1},
		{"the server says nothing", client.ErrNoAnswer, 6},
		{"the server drips", client.ErrTooSlow, 6},
		{"a command's", &ExitError{Code: 42}, 42},
		{"nobody reads", &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}, 141},
		{"the server hung up", &net.OpError{Op: "write", Net: "unix", Err: syscall.EPIPE}, 6},
		{"several", errors.Join(sandbox.ErrNotFound, errors.New("x")), 3},
	}
	for _, tt := range tests {
		for _, err := range []error{tt.err, wrapped(tt.err)} {
			if got := ExitCode(err); got != tt.want {
				t.Errorf("%s: exitCode(%v) = %d, want %d", tt.name, err, got, tt.want)
			}
		}
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("doing it: %w", err)
}
