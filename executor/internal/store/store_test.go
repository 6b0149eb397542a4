package store_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/testhelp"
)

func open(tb testing.TB, cfg store.Config) *store.Store {
	tb.Helper()
	s, err := store.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closeStore(tb, s) })
	return s
}

func closeStore(tb testing.TB, s *store.Store) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Error(err)
	}
}

func put(tb testing.TB, s *store.Store, data []byte) store.Sum {
	tb.Helper()
	sum, err := s.Put(data)
	if err != nil {
		tb.Fatal(err)
	}
	return sum
}

// holds checks that the store has a content.
func holds(tb testing.TB, s *store.Store, sum store.Sum, want []byte) {
	tb.Helper()
	if got, err := s.Get(sum); err != nil || !bytes.Equal(got, want) {
		tb.Errorf("got %d bytes (%v), want %d", len(got), err, len(want))
	}
}

// contents are short and long ones, some of which can be compressed.
func contents() [][]byte {
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 100_000)
	_, _ = random.Read(noise)
	return [][]byte{{}, {0}, []byte("short"), bytes.Repeat([]byte("a line of text\n"), 5000), noise, noise[:1000]}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	cfg := store.Config{Dir: filepath.Join(t.TempDir(), "state", "contents")}
	s := open(t, cfg)
	var sums []store.Sum
	for _, data := range contents() {
		sums = append(sums, put(t, s, data))
	}
	once := s.Stats()
	for _, data := range contents() {
		put(t, s, data)
	}
	if again := s.Stats(); again != once {
		t.Errorf("kept twice: %+v, then %+v", once, again)
	}
	if once.Contents != len(sums) || once.Bytes > 110_000 {
		t.Errorf("got %+v", once)
	}
	for range 2 {
		for i, data := range contents() {
			holds(t, s, sums[i], data)
		}
		if _, err := s.Get(store.Sum{1}); !errors.Is(err, store.ErrNotKept) {
			t.Error(err)
		}
		closeStore(t, s)
		if _, err := s.Put([]byte("closed")); err == nil {
			t.Error("a closed store keeps something")
		}
		s = open(t, cfg)
	}
	if _, err := store.Open(cfg); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	if sum, err := s.Put(make([]byte, store.MaxContent+1)); !errors.Is(err, store.ErrTooLarge) || s.Has(sum) {
		t.Error(err)
	}
}

// Other users see nothing.
func TestPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "contents")
	s := open(t, store.Config{Dir: dir})
	put(t, s, []byte("secret"))
	for name, want := range map[string]os.FileMode{".": 0o700, "seg-1": 0o600, "lock": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v (%v), want %v", name, info.Mode(), err, want)
		}
	}
}

// Large files that an earlier version kept beside the segments are removed.
func TestOldLargeFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := store.Config{Dir: dir}
	s := open(t, cfg)
	sum := put(t, s, []byte("kept"))
	closeStore(t, s)
	testhelp.WriteFile(t, filepath.Join(dir, "clone-0123"), "old", 0o600)
	testhelp.WriteFile(t, filepath.Join(dir, "new-ABC"), "old", 0o600)
	holds(t, open(t, cfg), sum, []byte("kept"))
	names, err := filepath.Glob(filepath.Join(dir, "*-*"))
	if want := filepath.Join(dir, "seg-1"); err != nil || len(names) != 1 || names[0] != want {
		t.Errorf("got %q (%v), want %s alone", names, err, want)
	}
}

func BenchmarkPut(b *testing.B) {
	text := bytes.Repeat([]byte("func main() { return nil, fmt.Errorf(\"no\") }\n"), 100)
	s := open(b, store.Config{Dir: filepath.Join(b.TempDir(), "contents")})
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for i := 0; b.Loop(); i++ {
		copy(text, fmt.Sprint(i))
		put(b, s, text)
	}
}

// A store in memory has its bound, and only that much of what was kept goes as is unused.
func TestMemory(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{MaxBytes: 100_000})
	first := put(t, s, noise(1, 40_000))
	second := put(t, s, bytes.Repeat([]byte("text "), 20_000))
	third := noise(3, 80_000)
	quick := bytes.Repeat([]byte("quick "), 100)
	if err := errors.Join(s.PutQuick(sha256.Sum256(quick), quick), s.PutQuick(second, nil)); err != nil {
		t.Error(err)
	}
	holds(t, s, sha256.Sum256(quick), bytes.Clone(quick))
	sum, err := s.Put(third)
	if !errors.Is(err, store.ErrFull) || s.Has(sum) {
		t.Error(err)
	}
	if _, err := s.Put(noise(4, 100_000)); !errors.Is(err, store.ErrTooLarge) {
		t.Error(err)
	}
	data, err := s.Get(first)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	holds(t, s, first, noise(1, 40_000))
	if freed, err := s.Reclaim(func(sum store.Sum) bool { return sum == second }); err != nil || freed < 40_000 || s.Has(first) {
		t.Errorf("freed %d, %v", freed, err)
	}
	holds(t, s, second, bytes.Repeat([]byte("text "), 20_000))
	holds(t, s, put(t, s, third), third)
	if got := s.Stats(); got.Contents != 2 || got.Bytes < 80_000 || got.Bytes > 90_000 || got.Bound != 100_000 {
		t.Errorf("got %+v", got)
	}
	closeStore(t, s)
	if _, err := s.Get(second); err == nil || s.Has(second) {
		t.Error("a closed store has something")
	}
	if _, err := s.Put(nil); err == nil {
		t.Error("a closed store keeps something")
	}
}
