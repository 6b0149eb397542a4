package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/actiond/actiond/internal/channel"
)

// lend installs this program and then goes on until it is told to end: Kubernetes starts
// the next container of a Pod sooner after one that runs than after one that has ended.
func lend(ctx context.Context, args []string) error {
	if err := install(args); err != nil {
		return err
	}
	debug.FreeOSMemory() // nothing more happens here
	<-ctx.Done()
	return nil
}

// install copies this program to a file and makes directories its user's alone. A
// container does that for another one that starts the server: an empty directory of
// Kubernetes lets every user change its contents. The file is there only once it is
// whole. It stays if it is there already: the container was started again.
func install(args []string) error {
	if len(args) == 0 || slices.ContainsFunc(args, relative) {
		return usagef("lend needs the absolute name of the file that this program is copied to, and of directories")
	}
	for _, dir := range args[1:] {
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
			return fmt.Errorf("making %s private: %w", dir, err)
		}
	}
	if err := os.Chmod(filepath.Dir(args[0]), 0o755); err != nil { //nolint:gosec // commands of other users start helpers from there
		return fmt.Errorf("protecting the server's directory: %w", err)
	}
	if _, err := os.Lstat(args[0]); !errors.Is(err, fs.ErrNotExist) {
		return err //nolint:wrapcheck // it names the file
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("opening this program: %w", err)
	}
	defer func() { _ = self.Close() }()
	part := args[0] + ".part"
	_ = os.Remove(part)                                                      // of one that was killed
	file, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755) //nolint:gosec // the same
	if err != nil {
		return fmt.Errorf("installing the server: %w", err)
	}
	_, err = io.Copy(file, self)
	if err = errors.Join(err, file.Chmod(0o755), file.Close()); err == nil { // whatever the umask is
		err = os.Rename(part, args[0])
	}
	if err != nil {
		return fmt.Errorf("installing the server: %w", err)
	}
	return nil
}

// relative reports whether a name is not absolute, as that of a flag.
func relative(name string) bool { return !filepath.IsAbs(name) }

// awaitLent returns once the file is there. It runs in the container that lends it, and
// ends with that.
func awaitLent(ctx context.Context, args []string) error {
	if len(args) != 1 || relative(args[0]) {
		return usagef("lent needs the absolute name of a file")
	}
	for {
		if _, err := os.Lstat(args[0]); !errors.Is(err, fs.ErrNotExist) {
			return err //nolint:wrapcheck // it names the file
		}
		if err := channel.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}
