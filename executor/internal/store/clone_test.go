package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/testhelp"
)

// clonable is a store below a directory that takes clones whatever the file system.
func clonable(tb testing.TB, dir string, maxBytes int64) *store.Store {
	tb.Helper()
	return open(tb, store.Config{Dir: filepath.Join(dir, "contents"), MaxBytes: maxBytes, Clone: testhelp.Cloner(tb, dir)})
}

// original returns an open file with a content.
func original(tb testing.TB, dir string, data []byte) *os.File {
	tb.Helper()
	path := filepath.Join(dir, "original")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

func clone(tb testing.TB, s *store.Store, dir string, data []byte) store.Sum {
	tb.Helper()
	c, err := s.Clone(original(tb, dir, data), int64(len(data)))
	if err != nil {
		tb.Fatal(err)
	}
	name := store.CloneName(data[:1])
	if err := c.Keep(name); err != nil {
		tb.Fatal(err)
	}
	return name
}

func cloned(tb testing.TB, s *store.Store, name store.Sum, want []byte) {
	tb.Helper()
	f, err := s.OpenClone(name, int64(len(want)))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
		tb.Errorf("got %d bytes (%v), want %d", len(got), err, len(want))
	}
}

// A clone keeps its content whatever happens to the original, and is there for the next process. One without a name is not.
func TestClone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := clonable(t, dir, 0)
	large := noise(1, 1<<20)
	name := clone(t, s, dir, large)
	if !store.IsClone(name) || !s.Has(name) {
		t.Error("the clone is not kept")
	}
	if _, err := s.Clone(original(t, dir, noise(2, 1<<20)), 1<<20); err != nil {
		t.Fatal(err)
	}
	cloned(t, s, name, large)
	if got := s.Stats(); got.CloneBytes != 2<<20 || got.CloneBound < 2<<20 || got.Bytes != 0 {
		t.Errorf("got %+v", got)
	}
	closeStore(t, s)
	s = clonable(t, dir, 0)
	cloned(t, s, name, large)
	if got := s.Stats().CloneBytes; got != 1<<20 {
		t.Errorf("the next process has %d bytes", got)
	}
	if freed, err := s.Reclaim(func(store.Sum) bool { return false }); err != nil || freed != 1<<20 || s.Has(name) || s.Stats().CloneBytes != 0 {
		t.Errorf("freed %d bytes (%v)", freed, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "contents", "*-*")); err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
}

// All clones together have a bound, which those that are not kept do not take.
func TestCloneBound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := clonable(t, dir, 3<<20)
	first := clone(t, s, dir, noise(1, 2<<20))
	other := original(t, dir, noise(2, 2<<20))
	if _, err := s.Clone(other, 2<<20); !errors.Is(err, store.ErrFull) {
		t.Error(err)
	}
	if _, err := s.Clone(other, 4<<20); !errors.Is(err, store.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := s.Reclaim(func(sum store.Sum) bool { return sum != first }); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := s.Clone(other, 2<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Discard(); err != nil {
			t.Error(err)
		}
	}
	again := clone(t, s, dir, noise(3, 1<<20))
	if clone(t, s, dir, noise(3, 1<<20)); s.Stats().CloneBytes != 1<<20 {
		t.Errorf("a clone that is kept twice has %d bytes", s.Stats().CloneBytes)
	}
	cloned(t, s, again, noise(3, 1<<20))
}

// A clone that an agent that is the server's user removed, cut, or replaced is not there.
func TestCloneAttacked(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]func(path string) error{
		"removed": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 5) },
		"a link":  func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) },
		"a FIFO":  func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
		"a directory": func(path string) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700))
		},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprint(name, restarted), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				s := clonable(t, dir, 0)
				sum := clone(t, s, dir, noise(1, 100_000))
				all, err := filepath.Glob(filepath.Join(dir, "contents", "clone-*"))
				if err != nil || len(all) != 1 {
					t.Fatal(all, err)
				}
				if err := attack(all[0]); err != nil {
					t.Fatal(err)
				}
				if restarted {
					closeStore(t, s)
					s = clonable(t, dir, 0)
				}
				if _, err := s.OpenClone(sum, 100_000); !errors.Is(err, store.ErrNotKept) || s.Has(sum) {
					t.Errorf("got %v", err)
				}
				clone(t, s, dir, noise(1, 100_000))
				cloned(t, s, sum, noise(1, 100_000))
			})
		}
	}
}

// Files that an agent that is the server's user put beside the clones, and that have more bytes than the file system, are no clones: they neither
// take the room of others nor give them more.
func TestPlantedClones(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := clonable(t, dir, 0)
	large := noise(1, 1<<20)
	name := clone(t, s, dir, large)
	closeStore(t, s)
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil {
		t.Fatal(err)
	}
	total := int64(system.Blocks) * system.Bsize
	for i := range 4 {
		path := filepath.Join(dir, "contents", fmt.Sprintf("clone-%032x", i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if unix.Truncate(path, 1<<62) != nil { // the largest files of ext4 have 16 TiB
			if err := unix.Truncate(path, total+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	s = clonable(t, dir, 0)
	cloned(t, s, name, large)
	if got := s.Stats(); got.CloneBytes < 1<<20 || got.CloneBytes > total || got.CloneBound > total/4 {
		t.Errorf("got %+v, of %d bytes of the file system", got, total)
	}
}

// Where the file system cannot clone, or the store is in memory, that is said and nothing remains.
func TestNoClones(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := original(t, dir, noise(1, 100))
	for _, cfg := range []store.Config{{}, {Dir: filepath.Join(dir, "contents"), Clone: func(int, int) error { return unix.EOPNOTSUPP }}} {
		s := open(t, cfg)
		if _, err := s.Clone(file, 100); !errors.Is(err, store.ErrNoClones) || s.ClonesTo(int(file.Fd())) || s.Stats().CloneBytes != 0 {
			t.Errorf("got %v", err)
		}
	}
	full := open(t, store.Config{Dir: filepath.Join(dir, "full"), Clone: func(int, int) error { return unix.ENOSPC }})
	if _, err := full.Clone(file, 100); !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v", err)
	}
}
