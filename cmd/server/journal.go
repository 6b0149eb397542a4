package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

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
	base := "/var/lib/actiond"
	if os.Geteuid() != 0 {
		if dir := env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
			base = filepath.Join(dir, "actiond")
		} else if home := env("HOME"); filepath.IsAbs(home) {
			base = filepath.Join(home, ".local", "state", "actiond")
		} else {
			return ""
		}
	}
	place := sha256.Sum256([]byte(opts.workingDir + "\x00" + opts.addr))
	return filepath.Join(base, fmt.Sprintf("%x", place[:8]), "journal")
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
