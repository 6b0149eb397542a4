package main

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
	"github.com/actiond/actiond/docker"
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
		{"command line", &usageError{"runtimectl", errors.New("x")}, 2},
		{"specification", docker.ErrInvalid, 2},
		{"no sandbox", docker.ErrNotFound, 3},
		{"no image", docker.ErrNoImage, 3},
		{"no file", errNotFound, 3},
		{"nothing there", &client.StatusError{Status: 404}, 3},
		{"wrong key", &client.StatusError{Status: 401}, 4},
		{"forbidden", &client.StatusError{Status: 403}, 4},
		{"engine's socket is not ours", errors.Join(docker.ErrUnknown, fs.ErrPermission), 4},
		{"name taken", docker.ErrConflict, 5},
		{"claimed", docker.ErrClaimed, 5},
		{"short id of several", docker.ErrAmbiguous, 5},
		{"in the way", errConflict, 5},
		{"port taken", &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}, 5},
		{"changed meanwhile", &client.StatusError{Status: 409}, 5},
		{"no engine", docker.ErrUnknown, 6},
		{"no engine, by a dial", errors.Join(docker.ErrUnknown, refused), 6},
		{"no server", refused, 6},
		{"starting", &client.StatusError{Status: 503}, 6},
		{"given up", errors.Join(context.Canceled, refused), 1},
		{"the server broke", &client.StatusError{Status: 500}, 1},
		{"a command's", &exitError{code: 42}, 42},
		{"nobody reads", &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}, 141},
		{"the server hung up", &net.OpError{Op: "write", Net: "unix", Err: syscall.EPIPE}, 6},
		{"several", errors.Join(docker.ErrNotFound, errors.New("x")), 3},
	}
	for _, tt := range tests {
		for _, err := range []error{tt.err, wrapped(tt.err)} {
			if got := exitCode(err); got != tt.want {
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
