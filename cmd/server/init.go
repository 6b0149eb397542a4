package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// install copies this program to a file and makes directories its user's alone. A
// container does that for another one that starts the server: an empty directory of
// Kubernetes lets every user change what is in it.
func install(args []string) error {
	if len(args) == 0 {
		return usagef("install needs the name of the file that this program is copied to")
	}
	for _, dir := range args[1:] {
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
			return fmt.Errorf("making %s private: %w", dir, err)
		}
	}
	if err := os.Chmod(filepath.Dir(args[0]), 0o755); err != nil { //nolint:gosec // commands of other users start helpers from there
		return fmt.Errorf("protecting the server's directory: %w", err)
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("opening this program: %w", err)
	}
	defer func() { _ = self.Close() }()
	file, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755) //nolint:gosec // the same
	if err != nil {
		return fmt.Errorf("installing the server: %w", err)
	}
	_, err = io.Copy(file, self)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("installing the server: %w", err)
	}
	return nil
}

// passedOn are the signals that PID 1 hands to the server.
var passedOn = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// reap is PID 1 of a sandbox whose platform brings none: it starts this program with
// args, passes signals on to it, and reaps the orphans of the sandbox. It returns the
// server's exit status when that ends, 128 and the signal's number if one ended it.
// All other processes of the container then end with PID 1.
func reap(args []string) (status int, err error) {
	// Orphans come to it also where it is not PID 1.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("taking in orphans: %w", err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, append(passedOn, syscall.SIGCHLD)...)
	defer signal.Stop(signals)
	server, err := os.StartProcess("/proc/self/exe", append([]string{os.Args[0]}, args...), &os.ProcAttr{ //nolint:gosec // this program, with its own arguments
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, fmt.Errorf("starting the server: %w", err)
	}
	for s := range signals {
		if s != syscall.SIGCHLD {
			_ = server.Signal(s) // it may have ended just now
			continue
		}
		for {
			var ended unix.WaitStatus
			pid, err := unix.Wait4(-1, &ended, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if pid <= 0 || err != nil {
				break // SIGCHLD comes with the next one
			}
			switch {
			case pid != server.Pid:
			case ended.Signaled():
				return 128 + int(ended.Signal()), nil
			default:
				return ended.ExitStatus(), nil
			}
		}
	}
	return 0, errors.New("no more signals arrive") // the channel is never closed
}
