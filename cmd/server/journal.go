package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/internal/mark"
)

// beginJournal takes the directory of the journal of actions: below the state directory, or
// one of its own for this working directory and address. opened returns the journal once it
// was read, which goes on meanwhile. If no directory was asked for and none can be used, the
// journal is in memory, and /readyz says so. The marks, which lie beside it, are nil then.
func beginJournal(
	opts *options, env func(string) string, logger *slog.Logger,
) (opened func() (*journal.Journal, error), marks *mark.Ledger, err error) {
	cfg := opts.journal
	if cfg.Dir = journalDir(opts, env); cfg.Dir == "" || cfg.NoText {
		cfg.MaxBytes = 0
	}
	inMemory := func(err error) (*journal.Journal, error) {
		if opts.stateDir != "" && errors.Is(err, journal.ErrLocked) {
			return nil, fmt.Errorf("%w: give this one another --state-dir", err)
		}
		if opts.stateDir != "" || errors.Is(err, journal.ErrNewer) {
			return nil, err
		}
		logger.Warn("actions are recorded in memory only", slog.Any("error", err))
		cfg.Dir, cfg.MaxBytes = "", 0
		return journal.Open(cfg)
	}
	j, load, err := journal.Begin(cfg)
	if err != nil {
		j, err = inMemory(err)
		return func() (*journal.Journal, error) { return j, nil }, nil, err
	}
	if cfg.Dir != "" {
		if marks, err = mark.OpenLedger(cfg.Dir); err != nil {
			logger.Warn("programs would outlive a crash of the server", slog.Any("error", err))
		}
	}
	var reading sync.WaitGroup
	var failed error
	reading.Go(func() {
		if failed = load(); failed != nil {
			j, failed = inMemory(failed)
		}
	})
	return func() (*journal.Journal, error) {
		reading.Wait()
		return j, failed
	}, marks, nil
}

// journalDir returns the directory of the journal, "" for none.
func journalDir(opts *options, env func(string) string) string {
	if opts.stateDir != "" {
		return filepath.Join(opts.stateDir, "journal")
	}
	return ownJournal(opts, env)
}

// ownJournal returns the directory of a journal without a state directory, "" for none.
func ownJournal(opts *options, env func(string) string) string {
	base := systemState
	if os.Geteuid() != 0 {
		if base = userState(opts, env); base == "" {
			return ""
		}
	}
	place := sha256.Sum256([]byte(opts.workingDir + "\x00" + opts.addr))
	return filepath.Join(base, fmt.Sprintf("%x", place[:8]), "journal")
}

// systemState has the state of root's servers, and in an image that gives it to another user
// those of that user.
const systemState = "/var/lib/actiond"

// maxStore is the most that the contents of files take by default, in bytes.
const maxStore = 2 << 30

// userState returns the first directory for the state of a server without root's rights that can
// be used, "" for none. The last resort, in the directory for temporary files, may lie in memory: an eighth of that file
// system is for the journal and the contents of files, unless their sizes were given.
func userState(opts *options, env func(string) string) string {
	candidates := []string{systemState}
	if dir := env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		candidates = []string{filepath.Join(dir, "actiond")}
	}
	if home := env("HOME"); filepath.IsAbs(home) {
		candidates = append(candidates, filepath.Join(home, ".local", "state", "actiond"))
	}
	for _, dir := range candidates {
		if os.MkdirAll(dir, 0o700) == nil && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
			return dir
		}
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("actiond-%d", os.Geteuid()))
	_ = os.Mkdir(dir, 0o700) // it may be there
	info, err := os.Lstat(dir)
	if err != nil {
		return ""
	}
	system, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode() != fs.ModeDir|0o700 || int(system.Uid) != os.Geteuid() { // another user's
		return ""
	}
	var space unix.Statfs_t
	if unix.Statfs(dir, &space) == nil {
		half := int64(space.Blocks) * space.Bsize / 16 //nolint:gosec // what the kernel counts
		opts.journal.MaxBytes = min(opts.journal.MaxBytes, half)
		if opts.storeBytes == 0 && half < maxStore {
			opts.storeBytes = half
		}
	}
	return dir
}

// lookup returns the values of variables in an environment.
func lookup(env []string) func(name string) string {
	return func(name string) string {
		for _, v := range env {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
}
