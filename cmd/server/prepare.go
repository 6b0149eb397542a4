package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"strings"

	"github.com/actiond/actiond/internal/identity"
)

// prepare makes the working directory and finds, or makes, the user that
// commands run as; nil means the user of this program.
func prepare(opts *options, logger *slog.Logger) (*identity.User, error) {
	if os.Geteuid() != 0 || opts.username == "" {
		if opts.username != "" && opts.username != opts.selfName {
			logger.Warn("commands run as the user of this program: only root can run them as another",
				slog.String("username", opts.username))
		}
		_, err := makeDir(opts.workingDir)
		return nil, err
	}
	if opts.username == "root" {
		_, err := makeDir(opts.workingDir)
		return nil, err
	}
	if strings.Trim(opts.username, "+-0123456789") == "" {
		return nil, usagef("--username %s is a number: give the name of an account, and its id with --user-id", opts.username)
	}
	made, err := makeDir(opts.workingDir)
	if err != nil {
		return nil, err
	}
	// The owner of a mounted directory, or of one below a mount, is a user outside of
	// the sandbox. Root does not count, since engines make the directories that they
	// mount as root.
	owner, _, mountErr := identity.MountOwner(opts.workingDir)
	account, err := accountFor(opts, owner, logger)
	switch {
	case err != nil:
		return nil, err
	case mountErr != nil:
		logger.Warn("cannot tell whether the working directory is mounted; it stays as it is", slog.Any("error", mountErr))
	case owner == 0 || made:
		handOver(account, opts, logger)
	}
	return account, nil
}

// accountFor finds or makes the account that commands run as. Its id is that of
// owner, unless that is 0: the mounted working directory keeps its owner, and the
// commands must be able to write to it, under a name that the sandbox knows.
func accountFor(opts *options, owner int, logger *slog.Logger) (*identity.User, error) {
	failed := func(err error) error { return fmt.Errorf("preparing the user %q: %w", opts.username, err) }
	account, err := identity.Lookup(opts.username)
	if errors.As(err, new(user.UnknownUserError)) {
		uid := cmp.Or(owner, opts.userID)
		if uid == 0 {
			return nil, notRoot(opts.username)
		}
		logger.Info("making the account", slog.String("username", opts.username), slog.Int("uid", uid))
		if account, err = identity.Create(opts.username, uid); err != nil {
			return nil, failed(err)
		}
	}
	switch {
	case err != nil:
		return nil, failed(err)
	case account.UID == 0:
		return nil, notRoot(opts.username)
	case owner == 0 || owner == int(account.UID):
		return account, nil
	}
	logger.Info("giving the account the id of the mounted working directory's owner",
		slog.String("username", opts.username), slog.Int("uid", owner))
	if account, err = identity.Renumber(account, owner); err != nil {
		return nil, failed(err)
	}
	return account, nil
}

// handOver gives the working directory to the account.
func handOver(account *identity.User, opts *options, logger *slog.Logger) {
	err := errors.New("the root directory stays root's: give another --working-dir")
	if opts.workingDir != "/" {
		err = identity.HandOver(opts.workingDir, int(account.UID), opts.groupID)
	}
	if err != nil {
		logger.Warn("the working directory could not be handed over to the user", slog.Any("error", err))
	}
}

// notRoot refuses an account that has root's rights under another name. The
// launcher relies on the name: an agent that changed /etc/passwd must not become
// root when its sandbox starts again.
func notRoot(name string) error {
	return fmt.Errorf("the account %q has the user id of root: commands run as root with --username root only", name)
}

// makeAgain makes the working directory where the agent removed it, with the rights of the
// user: the agent can only remove what the user can make. Without it no shell starts.
func makeAgain(dir string, user *identity.User, logger *slog.Logger) {
	if err := user.Do(func() error { _, err := makeDir(dir); return err }); err != nil {
		logger.Warn("the working directory is missing", slog.Any("error", err))
	}
}

// makeDir makes the directory and those above it, and reports whether dir was not there
// before.
func makeDir(dir string) (made bool, err error) {
	_, err = os.Lstat(dir)
	made = errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, 0o775); err != nil { //nolint:gosec // the reference makes it with umask 002
		return false, fmt.Errorf("making the working directory: %w", err)
	}
	return made, nil
}
