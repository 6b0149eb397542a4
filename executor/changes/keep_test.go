package changes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/store"
)

func contents(tb testing.TB, maxBytes int64) *store.Store {
	tb.Helper()
	return openStore(tb, store.Config{Dir: filepath.Join(tb.TempDir(), "contents"), MaxBytes: maxBytes})
}

func openStore(tb testing.TB, cfg store.Config) *store.Store {
	tb.Helper()
	s, err := store.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func keep(tb testing.TB, tracker *changes.Tracker) {
	tb.Helper()
	if err := tracker.KeepContents(tb.Context(), true); err != nil {
		tb.Fatal(err)
	}
}

// has checks the content of a file in a state.
func has(t *testing.T, tracker *changes.Tracker, s *changes.State, path, want string) {
	t.Helper()
	if got, _, err := tracker.ReadFile(s, path); err != nil || string(got) != want {
		t.Errorf("%s: got %q (%v), want %q", path, got, err, want)
	}
}

func TestKeepContents(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			tracker := track(t, changes.Config{Root: dir, Store: contents(t, 0), MaxFile: 1 << 20})
			do(t, dir, "mkdir d\nwrite d/a 1\nwrite b\nwrite .gitignore ignored\nwrite ignored 2\nsymlink a link\nfifo f\nln d/a c")
			if err := os.Truncate(filepath.Join(dir, "b"), 2<<20); err != nil {
				t.Fatal(err)
			}
			first := step(t, tracker)
			if _, why, err := tracker.ReadFile(first, "d/a"); !errors.Is(err, store.ErrNotKept) || why != changes.ContentPending {
				t.Errorf("before it is kept: %q (%v)", why, err)
			}
			keep(t, tracker)
			if p := tracker.Keeping(); p.Running || p.Files != p.AllFiles || p.Files != 4 {
				t.Errorf("got %+v", p)
			}
			do(t, dir, "write d/a 3\nrm ignored")
			second := step(t, tracker)
			do(t, dir, "write d/a 4")
			step(t, tracker)
			for path, want := range map[string]string{"d/a": "1", "c": "1", "ignored": "2"} {
				has(t, tracker, first, path, want)
			}
			for path, want := range map[string]changes.Content{"d/a": changes.ContentLost, "b": changes.ContentLarge} {
				if _, why, err := tracker.ReadFile(second, path); !errors.Is(err, store.ErrNotKept) || why != want {
					t.Errorf("%s: got %q (%v), want %q", path, why, err, want)
				}
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := tracker.KeepContents(ended, true); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// A full store keeps what it has, and says so.
func TestKeepFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 40 {
		data := make([]byte, 10_000)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tracker := track(t, changes.Config{Root: dir, Store: contents(t, 128<<10)})
	state := step(t, tracker)
	if err := tracker.KeepContents(t.Context(), true); !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	kept, pending := 0, 0
	for i := range 40 {
		switch _, why, _ := tracker.ReadFile(state, fmt.Sprint(i)); why {
		case changes.ContentKept:
			kept++
		case changes.ContentPending:
			pending++
		}
	}
	if kept == 0 || pending == 0 || kept+pending != 40 {
		t.Errorf("%d kept, %d pending", kept, pending)
	}
}

// What is kept of a file that changes while it is read is one of its contents, never a mixture.
func TestTornContent(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, "a")
			if err := os.WriteFile(path, bytes.Repeat([]byte{'0'}, 1_000_000), 0o644); err != nil {
				t.Fatal(err)
			}
			tracker := track(t, changes.Config{Root: dir, Store: contents(t, 0)})
			attack := func() {
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				for i := range 60 {
					_, _ = f.WriteAt(bytes.Repeat([]byte{byte('0' + i%10)}, 1_000_000), 0)
				}
			}
			var states []*changes.State
			during(t, tracker, attack, func(_, now *changes.State) {
				keep(t, tracker)
				states = append(states, now)
			})
			for _, s := range states {
				if data, _, err := tracker.ReadFile(s, "a"); err == nil && len(bytes.Trim(data, string(data[:1]))) > 0 {
					t.Fatal("torn")
				}
			}
			keep(t, tracker)
			last := step(t, tracker)
			keep(t, tracker)
			has(t, tracker, last, "a", strings.Repeat("9", 1_000_000))
		})
	}
}

// A link that takes the place of a file is not read.
func TestKeepSwapped(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	do(t, outside, "write secret secret\nsymlink "+filepath.Join(outside, "secret")+" link")
	do(t, dir, "write a public")
	tracker := track(t, changes.Config{Root: dir, Store: contents(t, 0)})
	before := step(t, tracker)
	swap := func() {
		if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "a"), unix.AT_FDCWD, filepath.Join(outside, "link"), unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
	}
	swap()
	keep(t, tracker)
	if data, why, err := tracker.ReadFile(before, "a"); !errors.Is(err, store.ErrNotKept) || why != changes.ContentPending {
		t.Errorf("got %q (%s, %v)", data, why, err)
	}
	swap()
	state := step(t, tracker)
	keep(t, tracker)
	has(t, tracker, state, "a", "public")
}
