package store_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
)

// noise returns bytes that cannot be compressed.
func noise(n, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(data)
	return data
}

// A full store refuses and goes on; what is no longer live makes room.
func TestBound(t *testing.T) {
	t.Parallel()
	const bound = 4 << 20
	cfg := store.Config{Dir: filepath.Join(t.TempDir(), "contents"), MaxBytes: bound}
	s := open(t, cfg)
	kept := map[store.Sum]int{}
	n := 0
	fill := func() {
		t.Helper()
		for ; ; n++ {
			sum, err := s.Put(noise(n, 10_000))
			if errors.Is(err, store.ErrFull) && !s.Has(sum) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			kept[sum] = n
		}
	}
	for round := range 6 {
		before := n
		fill()
		last := noise(n+1000, 100_000)
		if _, err := s.Put(last); !errors.Is(err, store.ErrFull) {
			t.Errorf("round %d: %v", round, err)
		}
		if err := s.PutQuick(sha256.Sum256(last), last); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if n-before < 100 {
			t.Fatalf("round %d: room for %d contents", round, n-before)
		}
		for sum, i := range kept { // the newest and some others live
			if i < n-20 && i%5 != 0 || i < n-250 {
				delete(kept, sum)
			}
		}
		freed, err := s.Reclaim(func(sum store.Sum) bool { _, ok := kept[sum]; return ok })
		if err != nil || freed < bound/4 {
			t.Fatalf("round %d: %d bytes freed of %+v (%v)", round, freed, s.Stats(), err)
		}
		for range 2 {
			for sum, i := range kept {
				holds(t, s, sum, noise(i, 10_000))
			}
			closeStore(t, s)
			s = open(t, cfg)
		}
		size := int64(0)
		names, err := filepath.Glob(filepath.Join(cfg.Dir, "seg-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if got := s.Stats(); size > bound || got.Bytes != size || got.Bound != bound {
			t.Errorf("the files have %d bytes, the store says %+v", size, got)
		}
	}
	// The largest content of all has a segment of its own.
	if _, err := s.Reclaim(func(store.Sum) bool { return false }); err != nil || s.Stats().Bytes != 0 {
		t.Errorf("%+v (%v)", s.Stats(), err)
	}
	big := noise(1, 2<<20)
	holds(t, s, put(t, s, big), big)
}

// Small contents have a bound of their own, since each takes memory: by number, and by what counts against the bound of bytes.
func TestManyContents(t *testing.T) {
	t.Parallel()
	for _, cfg := range []store.Config{{MaxContents: 50}, {MaxBytes: 200 << 10}, {MaxContents: 50, Dir: filepath.Join(t.TempDir(), "contents")}} {
		s := open(t, cfg)
		n := 0
		for ; n < 2000; n++ {
			if _, err := s.Put(noise(n, 8)); errors.Is(err, store.ErrFull) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if most := max(cfg.MaxContents, int(cfg.MaxBytes)/(8+56+128)); n > most || n < most/2 {
			t.Errorf("%+v: room for %d contents, not %d", cfg, n, most)
		}
		put(t, s, noise(0, 8)) // which it has
		if _, err := s.Reclaim(func(store.Sum) bool { return false }); err != nil {
			t.Fatal(err)
		}
		put(t, s, noise(5000, 8))
	}
}

// On a small tmpfs, which is memory, the store takes a quarter. A file system that others fill is left some space,
// and the store goes on once there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	mount := t.TempDir()
	const size = 16 << 20
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	s := open(t, store.Config{Dir: filepath.Join(mount, "contents"), MaxBytes: size})
	t.Cleanup(func() { closeStore(t, s) }) // before the mount goes
	if got := s.Stats().Bound; got != size/4 {
		t.Errorf("got a bound of %d, want %d", got, size/4)
	}
	first := noise(0, 100_000)
	sum := put(t, s, first)
	hog := filepath.Join(mount, "hog")
	for _, left := range []int{1 << 20, 0} {
		var system unix.Statfs_t
		if err := unix.Statfs(mount, &system); err != nil {
			t.Fatal(err)
		}
		free := int(system.Bavail) * int(system.Bsize)
		f, err := os.OpenFile(hog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, free-left)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		full := 0
		for i := range 10 {
			if _, err := s.Put(noise(1+i, 100_000)); errors.Is(err, store.ErrFull) {
				full++
			}
		}
		if full < 7 {
			t.Errorf("%d bytes left: %d of 10 contents were refused", left, full)
		}
		holds(t, s, sum, first)
	}
	if err := os.Remove(hog); err != nil {
		t.Fatal(err)
	}
	second := noise(20, 100_000)
	other := put(t, s, second)
	closeStore(t, s)
	s = open(t, store.Config{Dir: filepath.Join(mount, "contents")})
	holds(t, s, sum, first)
	holds(t, s, other, second)
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Dir: filepath.Join(t.TempDir(), "contents"), MaxBytes: 8 << 20})
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 200 {
				i := random.IntN(100)
				data := noise(i, 1000+i*100)
				if i%2 == 0 {
					data = bytes.Repeat([]byte{byte(i)}, 1000+i)
				}
				sum, err := s.Put(data)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Get(sum); !errors.Is(err, store.ErrNotKept) && (err != nil || !bytes.Equal(got, data)) {
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		for i := range 30 {
			if _, err := s.Reclaim(func(sum store.Sum) bool { return int(sum[0])%30 != i }); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
}
