package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/actions/journal"
)

// Each working directory and address has its own journal; where it cannot be used, or
// none can be made, actions are kept in memory.
func TestDefaultJournal(t *testing.T) { //nolint:paralleltest // root's directory is shared with other tests
	if os.Geteuid() == 0 {
		t.Skip("root's journals are in /var/lib")
	}
	state := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	var logs bytes.Buffer
	open := func(dir, env string) (*journal.Journal, error) {
		opts := &options{workingDir: dir, addr: "127.0.0.1:1", journal: journal.Config{MaxAge: time.Hour}}
		return openJournal(opts, env, slog.New(slog.NewTextHandler(&logs, nil)))
	}
	for _, tt := range []struct{ name, dir, env, problem string }{
		{"first", "/a", state, ""},
		{"another directory", "/b", state, ""},
		{"the same again", "/a", state, "memory"},
		{"no such place", "/a", "/dev/null", ""},
		{"nothing said, the same again", "/a", "", "memory"},
		{"no place", "/c", "", "memory"},
	} {
		if tt.name == "no place" {
			t.Setenv("TMPDIR", "/dev/null")
		}
		j, err := open(tt.dir, tt.env)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		t.Cleanup(func() { _ = j.Close() })
		if p := j.Problem(); !strings.Contains(p, tt.problem) || tt.problem == "" && p != "" {
			t.Errorf("%s: problem %q, want %q", tt.name, p, tt.problem)
		}
	}
	opts := &options{stateDir: state}
	j, err := openJournal(opts, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if _, err := os.Stat(filepath.Join(state, "journal", "lock")); err != nil {
		t.Error(err)
	}
	if _, err := openJournal(opts, "", slog.New(slog.DiscardHandler)); err == nil || !strings.HasSuffix(err.Error(), "another server uses the journal: give this one another --state-dir") {
		t.Errorf("two servers share a state directory: %v", err)
	}
}

// openJournal opens the journal of a server whose variables have the value env.
func openJournal(opts *options, env string, logger *slog.Logger) (*journal.Journal, error) {
	opened, marks, err := beginJournal(opts, func(string) string { return env }, logger)
	if err != nil {
		return nil, err
	}
	_ = marks.Close()
	return opened()
}
