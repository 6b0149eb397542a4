package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/actiond/actiond/executor/journal"
)

// openJournal opens the journal of actions below the state directory, or one of its own
// for this working directory and address. If no directory was asked for and none can be
// used, the journal is in memory, and /readyz says so.
func openJournal(opts *options, env func(string) string, logger *slog.Logger) (*journal.Journal, error) {
	cfg := opts.journal
	if opts.stateDir != "" {
		cfg.Dir = filepath.Join(opts.stateDir, "journal")
		return journal.Open(cfg)
	}
	base := "/var/lib/actiond"
	if os.Geteuid() != 0 {
		base = ""
		if dir := env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
			base = filepath.Join(dir, "actiond")
		} else if home := env("HOME"); filepath.IsAbs(home) {
			base = filepath.Join(home, ".local", "state", "actiond")
		}
	}
	if base != "" {
		place := sha256.Sum256([]byte(opts.workingDir + "\x00" + opts.addr))
		cfg.Dir = filepath.Join(base, fmt.Sprintf("%x", place[:8]), "journal")
		j, err := journal.Open(cfg)
		if err == nil || errors.Is(err, journal.ErrNewer) {
			return j, err
		}
		logger.Warn("actions are recorded in memory only", slog.Any("error", err))
	}
	cfg.Dir, cfg.MaxBytes = "", 0
	return journal.Open(cfg)
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
