package changes_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

var nobody = &identity.User{Name: "nobody", UID: 65534, GID: 65534}

func public(t *testing.T) string {
	t.Helper()
	return testhelp.PublicDir(t)
}

// The user's rights decide what is read: what the user cannot read is not in the answer, and that is said.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir := public(t)
	do(t, dir, "mkdir closed\nwrite closed/secret 1\nchmod closed 700\nwrite key 1\nchmod key -x\nwrite open 1")
	tracker := track(t, changes.Config{Root: dir, User: nobody})
	before := step(t, tracker)
	do(t, dir, "write closed/secret 2\nwrite key 2\nwrite open 2")
	after := step(t, tracker)
	if got, want := facts(changes.Compare(before, after, changes.Limits{})), "modified key, modified open, inexact: unsure, closed, key"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	do(t, dir, "chmod closed 755\nchmod key +x\nwrite key 3")
	readable := step(t, tracker)
	if got, want := facts(changes.Compare(after, readable, changes.Limits{})), "meta closed, modified key, inexact: unsure, closed, key"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	do(t, dir, "write closed/secret 3\nwrite key 4")
	if got, want := facts(changes.Compare(readable, step(t, tracker), changes.Limits{})), "modified closed/secret, modified key"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What was not read cannot be compared; ReadContents reads it.
func TestReadContents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	fill := func(b byte) {
		t.Helper()
		data := make([]byte, 5<<20) // more than New reads
		data[0] = b
		if err := os.WriteFile(large, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fill(1)
	// Older than the clock's resolution: New need not read it to know.
	testhelp.Eventually(t, func() bool {
		info, err := os.Stat(large)
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(info.ModTime()) > 50*time.Millisecond
	}, "the file is old")
	tracker := track(t, changes.Config{Root: dir})
	before := step(t, tracker)
	do(t, dir, "touch large 1")
	unread := step(t, tracker)
	if got, want := facts(changes.Compare(before, unread, changes.Limits{})), "modified large, inexact: unsure, large"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := tracker.ReadContents(t.Context()); err != nil {
		t.Fatal(err)
	}
	do(t, dir, "touch large 22")
	if got, want := facts(changes.Compare(unread, step(t, tracker), changes.Limits{})), "meta large"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	fill(2)
	if got, want := facts(changes.Compare(unread, step(t, tracker), changes.Limits{})), "modified large"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	do(t, dir, "rm large")
	fill(3)
	step(t, tracker)
	if err := tracker.ReadContents(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
