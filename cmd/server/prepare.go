package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"syscall"

	"github.com/actiond/actiond/executor"
)

// prepare makes the working directory and finds, or makes, the user that
// commands run as; nil means whoever runs this program.
func prepare(opts *options, logger *slog.Logger) (*executor.User, error) {
	if os.Geteuid() != 0 || opts.username == "" {
		if opts.username != "" && opts.username != opts.selfName {
			logger.Warn("commands run as the user of this program: only root can run them as another",
				slog.String("username", opts.username))
		}
		return nil, makeDir(opts.workingDir)
	}
	if opts.username == "root" {
		return nil, makeDir(opts.workingDir)
	}
	account, err := executor.LookupUser(opts.username)
	if errors.As(err, new(user.UnknownUserError)) {
		logger.Info("making the account", slog.String("username", opts.username), slog.Int("uid", opts.userID))
		account, err = executor.CreateUser(opts.username, opts.userID)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing the user %q: %w", opts.username, err)
	}
	if err := makeDir(opts.workingDir); err != nil {
		return nil, err
	}
	if err := handOver(opts.workingDir, int(account.UID), opts.groupID); err != nil {
		logger.Warn("the working directory could not be handed over to the user", slog.Any("error", err))
	}
	return account, nil
}

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o775); err != nil { //nolint:gosec // the reference makes it with umask 002
		return fmt.Errorf("making the working directory: %w", err)
	}
	return nil
}

// handOver gives dir and what is in it to the user, unless dir is the user's
// already. Links are not followed.
func handOver(dir string, uid, gid int) error {
	if dir == "/" {
		return errors.New("the root directory stays root's: give another --working-dir")
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == uid {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var first error // what cannot be handed over does not keep the rest from it
	_ = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = root.Lchown(path, uid, gid)
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", filepath.Join(dir, path), err)
		}
		return nil
	})
	return first
}
