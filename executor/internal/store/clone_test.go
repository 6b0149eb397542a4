package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
	return open(tb, store.Config{Dir: filepath.Join(dir, "contents"), MaxBytes: maxBytes, Clone: testhelp.Cloner(tb, dir), Same: testhelp.Sames(tb, dir)})
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
	c, _, err := s.Clone(original(tb, dir, data), int64(len(data)), store.Sum{})
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
	if _, _, err := s.Clone(original(t, dir, noise(2, 1<<20)), 1<<20, store.Sum{}); err != nil {
		t.Fatal(err)
	}
	cloned(t, s, name, large)
	if got := s.Stats(); got.CloneBytes != 1<<20 || got.CloneBound < 2<<20 || got.Bytes != 0 {
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

// A file that shares all blocks with a clone needs no other one, also where there is no room; one that was written in the meantime does.
func TestCloneLike(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const size = 1 << 20
	s := clonable(t, dir, size*3/2)
	file := original(t, dir, noise(1, size))
	c, _, err := s.Clone(file, size, store.Sum{})
	name := store.CloneName([]byte("first"))
	if err := errors.Join(err, c.Keep(name)); err != nil {
		t.Fatal(err)
	}
	if c, same, err := s.Clone(file, size, name); c != nil || !same || err != nil {
		t.Errorf("the same: got %v, %t, %v", c, same, err)
	}
	if c, same, err := s.Clone(original(t, t.TempDir(), noise(1, size/2)), size/2, name); same || err != nil {
		t.Errorf("of another size: got %t, %v", same, err)
	} else if err := c.Discard(); err != nil {
		t.Error(err)
	}
	data := noise(1, size)
	data[size/2]++
	f, err := os.OpenFile(file.Name(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data[size/2:size/2+1], size/2); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c, same, err := s.Clone(file, size, name)
	if err != nil || same {
		t.Fatalf("another one: got %t, %v", same, err)
	}
	if err := c.Keep(store.CloneName([]byte("second"))); !errors.Is(err, store.ErrFull) {
		t.Errorf("without room: got %v", err)
	}
	if err := c.Discard(); err != nil {
		t.Error(err)
	}
	if got := s.Stats().CloneBytes; got != size {
		t.Errorf("all have %d bytes", got)
	}
	cloned(t, s, name, noise(1, size))
}

// A file that is taken for a clone has its content, whatever programs do to its blocks. TMPDIR names a file system that clones.
func TestCloneLikeChanged(t *testing.T) {
	t.Parallel()
	const block, blocks = 4096, 64
	dir := t.TempDir()
	s := clonable(t, dir, 1<<30)
	path := original(t, dir, noise(0, block*blocks)).Name()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	random := rand.New(rand.NewPCG(1, 2))
	var last store.Sum
	var content []byte
	taken := 0
	for i := range 300 {
		at, n := random.Int64N(blocks)*block, (1+random.Int64N(4))*block
		fd := int(f.Fd())
		switch n = min(n, block*blocks-at); random.IntN(7) {
		case 0:
			_, err = f.WriteAt(noise(i, int(n)), at)
		case 1:
			_, err = f.WriteAt([]byte{byte(i)}, at+7)
		case 2:
			_ = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n) // not everywhere, as are:
		case 3:
			_ = unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, at, n)
		case 4:
			from := random.Int64N(blocks) * block
			_ = unix.IoctlFileCloneRange(fd, &unix.FileCloneRange{Src_fd: int64(fd), Src_offset: uint64(from), Src_length: block, Dest_offset: uint64(at)})
		case 5:
			err = f.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c, same, err := s.Clone(f, block*blocks, last)
		switch {
		case err != nil:
			t.Fatal(err)
		case same && !bytes.Equal(now, content):
			t.Fatalf("step %d: another content is taken for the last one", i)
		case same:
			taken++
			continue
		}
		last, content = store.CloneName(fmt.Append(nil, i)), now
		if err := c.Keep(last); err != nil {
			t.Fatal(err)
		}
		cloned(t, s, last, now)
	}
	t.Log(taken, "of 300 are taken for the last one")
}

// All clones together have a bound, which those that are not kept do not take.
func TestCloneBound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := clonable(t, dir, 3<<20)
	first := clone(t, s, dir, noise(1, 2<<20))
	other := original(t, dir, noise(2, 2<<20))
	if _, _, err := s.Clone(other, 2<<20, store.Sum{}); !errors.Is(err, store.ErrFull) {
		t.Error(err)
	}
	if _, _, err := s.Clone(other, 4<<20, store.Sum{}); !errors.Is(err, store.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := s.Reclaim(func(sum store.Sum) bool { return sum != first }); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, _, err := s.Clone(other, 2<<20, store.Sum{})
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
		if _, _, err := s.Clone(file, 100, store.Sum{}); !errors.Is(err, store.ErrNoClones) || s.ClonesTo(int(file.Fd())) || s.Stats().CloneBytes != 0 {
			t.Errorf("got %v", err)
		}
	}
	full := open(t, store.Config{Dir: filepath.Join(dir, "full"), Clone: func(int, int) error { return unix.ENOSPC }})
	if _, _, err := full.Clone(file, 100, store.Sum{}); !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v", err)
	}
}
