package store_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
)

// A segment that is a link or a FIFO is not opened.
func TestNotASegment(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(dir, path string) error{
		"link":      func(dir, path string) error { return os.Symlink(filepath.Join(dir, "elsewhere"), path) },
		"fifo":      func(_, path string) error { return unix.Mkfifo(path, 0o600) },
		"directory": func(_, path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, store.Config{Dir: filepath.Join(dir, "contents")})
			put(t, s, []byte("1"))
			closeStore(t, s)
			path := filepath.Join(dir, "contents", "seg-1")
			if err := os.Rename(path, filepath.Join(dir, "elsewhere")); err != nil {
				t.Fatal(err)
			}
			if err := forge(dir, path); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Open(store.Config{Dir: filepath.Join(dir, "contents")}); err == nil {
				t.Error("opened")
			}
		})
	}
}

// Wherever a killed process left the last record torn, the others are there, and the next one is kept behind them.
func TestTorn(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "contents")
	s := open(t, store.Config{Dir: made})
	first := put(t, s, []byte("first"))
	whole := s.Stats().Bytes
	text := []byte(strings.Repeat("the second content ", 20))
	second := put(t, s, text)
	closeStore(t, s)
	segment, err := os.ReadFile(filepath.Join(made, "seg-1"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "contents")
	for end := range len(segment) + 1 {
		tails := []string{""}
		if end >= 16 { // otherwise the header would have another version
			tails = append(tails, "\x00\x00\x00\x00\x00\x00\x00\x00", "other bytes")
		}
		for _, tail := range tails {
			if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "seg-1"), append(segment[:end:end], tail...), 0o600)); err != nil {
				t.Fatal(err)
			}
			s := open(t, store.Config{Dir: dir})
			hasFirst, hasSecond := int64(end) >= whole, end == len(segment)
			if s.Has(first) != hasFirst || s.Has(second) != hasSecond {
				t.Fatalf("cut at %d, then %q: has first %t, second %t", end, tail, s.Has(first), s.Has(second))
			}
			third := put(t, s, []byte("third"))
			closeStore(t, s)
			s = open(t, store.Config{Dir: dir})
			holds(t, s, third, []byte("third"))
			if hasFirst {
				holds(t, s, first, []byte("first"))
			}
			if hasSecond {
				holds(t, s, second, text)
			}
			closeStore(t, s)
		}
	}
}

// A content that the disk has damaged is not kept, and may be kept again.
func TestDamaged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "contents")
	for i, text := range []string{"a short content", strings.Repeat("a long content ", 100)} {
		s := open(t, store.Config{Dir: dir})
		sum, behind := put(t, s, []byte(text)), put(t, s, []byte{byte(i)})
		f, err := os.OpenFile(filepath.Join(dir, "seg-1"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.LastIndex(data, sum[:]) + len(sum) + 10 // in the payload
		data[at] ^= 1
		if _, err := f.WriteAt(data[at:at+1], int64(at)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(sum); !errors.Is(err, store.ErrNotKept) {
			t.Error(err)
		}
		holds(t, s, behind, []byte{byte(i)})
		if put(t, s, []byte(text)) != sum {
			t.Error("another name")
		}
		holds(t, s, sum, []byte(text))
		closeStore(t, s)
	}
}

func TestNewer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "contents")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "seg-1"), []byte("actiondc\x02\x00\x00\x00\x00\x00\x00\x00"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(store.Config{Dir: dir}); !errors.Is(err, store.ErrNewer) {
		t.Error(err)
	}
}

// What a process that was killed has kept is there.
func TestKilled(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("STORE_TEST_DIR"); dir != "" {
		s, err := store.Open(store.Config{Dir: dir, MaxBytes: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			sum, err := s.Put(noise(i, i*37%5000))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("kept %x %d\n", sum, i)
		}
	}
	dir := filepath.Join(t.TempDir(), "contents")
	said := map[store.Sum]int{}
	for round := range 10 {
		child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestKilled$")
		child.Env = append(os.Environ(), "STORE_TEST_DIR="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			var text string
			var i int
			if _, err := fmt.Sscanf(lines.Text(), "kept %s %d", &text, &i); err != nil {
				continue
			}
			var sum store.Sum
			if _, err := hex.Decode(sum[:], []byte(text)); err == nil {
				said[sum] = i
			}
			if n == 20+100*round {
				_ = child.Process.Kill()
			}
		}
		_ = child.Wait()
		s := open(t, store.Config{Dir: dir})
		for sum, i := range said {
			holds(t, s, sum, noise(i, i*37%5000))
		}
		closeStore(t, s)
	}
	if len(said) < 900 {
		t.Errorf("only %d contents were kept", len(said))
	}
}

// A store reads every segment file without harm, and returns right contents alone.
func FuzzSegment(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "contents")
	s := open(f, store.Config{Dir: dir})
	for _, data := range contents()[:4] {
		put(f, s, data)
	}
	seed, err := os.ReadFile(filepath.Join(dir, "seg-1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)-10])
	f.Add([]byte("actiondc"))
	sums := map[store.Sum][]byte{}
	for _, data := range contents()[:4] {
		sums[put(f, s, data)] = data
	}
	names := slices.SortedFunc(maps.Keys(sums), func(a, b store.Sum) int { return bytes.Compare(a[:], b[:]) })
	f.Fuzz(func(t *testing.T, segment []byte) {
		dir := filepath.Join(t.TempDir(), "contents")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "seg-1"), segment, 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(store.Config{Dir: dir})
		if errors.Is(err, store.ErrNewer) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer closeStore(t, s)
		for _, sum := range names {
			if got, err := s.Get(sum); err == nil && !bytes.Equal(got, sums[sum]) {
				t.Errorf("another content: %q", got)
			}
		}
		data := []byte("the next content")
		holds(t, s, put(t, s, data), data)
	})
}
