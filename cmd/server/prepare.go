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
func prepare(opts *options, logger *slog.Logger) (account *identity.User, err error) {
	made, _ := identity.MakeDir(opts.workingDir, 0o775) // the reference makes it with umask 002; useDir says why it is missing
	defer func() {
		if err == nil {
			useDir(opts, account, logger)
		}
	}()
	if os.Geteuid() != 0 || opts.username == "" {
		if opts.username != "" && opts.username != opts.selfName {
			logger.Warn("commands run as the user of this program: only root can run them as another",
				slog.String("username", opts.username))
		}
		return nil, nil //nolint:nilnil // see above
	}
	if opts.username == "root" {
		return nil, nil //nolint:nilnil // see above
	}
	if strings.Trim(opts.username, "+-0123456789") == "" {
		return nil, usagef("--username %s is a number: give the name of an account, and its id with --user-id", opts.username)
	}
	// The owner of a mounted directory, or of one below a mount, is a user outside of
	// the sandbox. Root does not count, since engines make the directories that they
	// mount as root.
	owner, _, mountErr := identity.MountOwner(opts.workingDir)
	account, err = accountFor(opts, owner, logger)
	if err == nil && opts.devices {
		err = account.AddDeviceGroups("/dev")
	}
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

// useDir makes the working directory where the agent removed it, with the rights of the user: the agent can only
// remove what the user can make. Where it can be no directory, as an agent or an image can bring about, commands begin
// in another one, which the log and the status say: the sandbox would never start again.
func useDir(opts *options, user *identity.User, logger *slog.Logger) {
	enter := func(dir string) error {
		return user.Do(func() error { _, err := os.Stat(dir + "/."); return err })
	}
	given := opts.workingDir
	err := enter(given)
	if errors.Is(err, fs.ErrNotExist) {
		_ = user.Do(func() error { return os.MkdirAll(given, 0o775) }) //nolint:gosec // as above
		err = enter(given)
	}
	if err == nil {
		return
	}
	others := []string{os.TempDir(), "/"}
	if user != nil {
		others = append([]string{user.Home}, others...)
	}
	for _, dir := range others {
		if enter(dir) == nil {
			opts.workingDir = dir
			break
		}
	}
	opts.dirProblem = fmt.Sprintf("commands cannot use %s (%v), and begin in %s", given, errors.Unwrap(err), opts.workingDir)
	logger.Warn("the working directory is another one", slog.String("problem", opts.dirProblem))
}
