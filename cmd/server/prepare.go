package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"

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
	return settle(account, opts, logger), nil
}

// settle makes the working directory and the user one another's. A mounted one
// keeps its owner, who is somebody outside of the sandbox: commands run as that
// user. Root is not taken for one, since engines make the directories that they
// mount as root.
func settle(account *executor.User, opts *options, logger *slog.Logger) *executor.User {
	owner, mounted, err := executor.MountOwner(opts.workingDir)
	if err != nil {
		logger.Warn("cannot tell whether the working directory is mounted; it stays as it is", slog.Any("error", err))
		return account
	}
	if mounted && owner != 0 && owner != int(account.UID) {
		logger.Info("commands run as the owner of the mounted working directory",
			slog.String("username", opts.username), slog.Int("uid", owner))
		return executor.BareUser(opts.username, uint32(owner)) //nolint:gosec // the kernel's ids have 32 bits
	}
	if opts.workingDir == "/" {
		err = errors.New("the root directory stays root's: give another --working-dir")
	} else {
		err = executor.HandOver(opts.workingDir, int(account.UID), opts.groupID)
	}
	if err != nil {
		logger.Warn("the working directory could not be handed over to the user", slog.Any("error", err))
	}
	return account
}

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o775); err != nil { //nolint:gosec // the reference makes it with umask 002
		return fmt.Errorf("making the working directory: %w", err)
	}
	return nil
}
