package changes_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/testhelp"
)

// clonable is a new directory to track all files of which are large ones, with a store that takes clones of them.
func clonable(t *testing.T) (dir string, cfg changes.Config) {
	t.Helper()
	dir = t.TempDir()
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil || system.Type == unix.TMPFS_MAGIC {
		t.Skip("the times of tmpfs say nothing, so that no file is cloned", err)
	}
	return dir, changes.Config{
		Root: dir, MaxFile: -1,
		Store: openStore(t, store.Config{Dir: filepath.Join(t.TempDir(), "contents"), Clone: testhelp.Cloner(t, t.TempDir())}),
	}
}

// limited is clonable with large files of more than 1 MiB, and a bound of the store.
func limited(t *testing.T, maxBytes int64) (dir string, cfg changes.Config) {
	t.Helper()
	dir, cfg = clonable(t)
	cfg.MaxFile = 1 << 20
	cfg.Store = openStore(t, store.Config{Dir: filepath.Join(t.TempDir(), "contents"), MaxBytes: maxBytes, Clone: testhelp.Cloner(t, t.TempDir())})
	return dir, cfg
}

// fill writes a large file of one byte, and holes.
func fill(t *testing.T, path string, b byte, size int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{b}, 100_000), size/2)
	if err := errors.Join(err, f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A large file that was changed in place, renamed, or removed comes back, also in the next process, and the content that it has then too.
func TestLarge(t *testing.T) {
	t.Parallel()
	overwrite := func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte("overwritten"), 1<<20)
		return errors.Join(err, f.Close(), os.Chtimes(path, info.ModTime(), info.ModTime()))
	}
	for name, change := range map[string]func(path string) error{
		"overwritten": overwrite,
		"outside":     overwrite, // it has a name there
		"removed":     os.Remove,
		"renamed":     func(path string) error { return os.Rename(path, path+".old") },
		"linked":      func(path string) error { return os.Link(path, path+".old") },
		"closed":      func(path string) error { return os.Chmod(path, 0o400) },
		"small":       func(path string) error { return os.WriteFile(path, []byte("small"), 0o600) },
		"a FIFO":      func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, cfg := limited(t, 0)
			path := filepath.Join(dir, "large")
			fill(t, path, 'a', 3<<20)
			do(t, dir, "xattr large 1")
			if other := map[string]string{"linked": filepath.Join(dir, "other"), "outside": filepath.Join(t.TempDir(), "other")}[name]; other != "" {
				if err := os.Link(path, other); err != nil {
					t.Fatal(err)
				}
			}
			first := image(t, dir)
			tracker, before := undoable(t, cfg)
			sum, err := tracker.Save(before)
			if err := errors.Join(err, change(path)); err != nil {
				t.Fatal(err)
			}
			second := image(t, dir)
			tracker = track(t, cfg)
			if before, err = tracker.Load(sum); err != nil {
				t.Fatal(err)
			}
			keep(t, tracker)
			r := restore(t, tracker, before, changes.RestoreOptions{})
			if d := different(first, image(t, dir)); d != "" || refusals(r) != "" || len(r.Lost)+len(r.Unsure) > 0 {
				t.Errorf("refused %s, lost %s, unsure %s, and\n%s", refusals(r), r.Lost, r.Unsure, d)
			}
			r = restore(t, tracker, r.Before, changes.RestoreOptions{})
			if d := different(second, image(t, dir)); d != "" || refusals(r) != "" {
				t.Errorf("done again: refused %s, and\n%s", refusals(r), d)
			}
		})
	}
}

// The rights of the user decide which large files are kept and brought back, and the store is closed to it.
func TestLargeUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	_, cfg := limited(t, 0)
	dir := public(t)
	cfg.Root, cfg.User = dir, nobody
	for _, name := range []string{"own", "closed"} {
		fill(t, filepath.Join(dir, name), 'a', 3<<20)
	}
	if err := errors.Join(os.Chown(dir, int(nobody.UID), int(nobody.GID)), os.Chown(filepath.Join(dir, "own"), int(nobody.UID), int(nobody.GID)), os.Chmod(filepath.Join(dir, "closed"), 0o600)); err != nil {
		t.Fatal(err)
	}
	first := image(t, dir)
	tracker, before := undoable(t, cfg)
	do(t, dir, "rm own\nrm closed")
	r := restore(t, tracker, before, changes.RestoreOptions{})
	if got, want := refusals(r), "closed: its content was not kept"; got != want {
		t.Errorf("refused %s, want %s", got, want)
	}
	delete(first, "closed")
	if d := different(first, image(t, dir)); d != "" {
		t.Error(d)
	}
}

// What is kept of a large file is one of its contents, whatever takes its place meanwhile.
func TestLargeAttacked(t *testing.T) {
	t.Parallel()
	dir, cfg := limited(t, 0)
	outside := t.TempDir()
	path, secret := filepath.Join(dir, "a"), filepath.Join(outside, "secret")
	fill(t, path, 'a', 2<<20)
	fill(t, secret, 's', 2<<20)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[[sha256.Size]byte]bool{sha256.Sum256(data): true}
	for i := range 10 {
		copy(data, bytes.Repeat([]byte{byte('0' + i)}, 1<<20))
		want[sha256.Sum256(data)] = true
	}
	tracker := track(t, cfg)
	attack := func() {
		for i := range 40 {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = f.WriteAt(bytes.Repeat([]byte{byte('0' + i%10)}, 1<<20), 0)
			aside := filepath.Join(outside, "aside")
			err = errors.Join(err, f.Close(), os.Rename(path, aside))
			if i%2 == 0 {
				err = errors.Join(err, os.Symlink(secret, path))
			} else {
				err = errors.Join(err, unix.Mkfifo(path, 0o600))
			}
			if err = errors.Join(err, os.Rename(aside, path)); err != nil {
				t.Error(err)
				return
			}
		}
	}
	var states []*changes.State
	during(t, tracker, attack, func(_, now *changes.State) {
		keep(t, tracker)
		states = append(states, now)
	})
	last := step(t, tracker)
	keep(t, tracker)
	kept := 0
	for _, s := range append(states, last) {
		f, err := tracker.OpenLarge(s, "a")
		if err != nil {
			continue
		}
		data, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if kept++; !want[sha256.Sum256(data)] {
			t.Fatalf("a mixture, or another file: %q", data[:10])
		}
	}
	if f, err := tracker.OpenLarge(last, "a"); err != nil {
		t.Errorf("the last content is not kept: %v", err)
	} else {
		_ = f.Close()
	}
	t.Logf("%d contents", kept)
}

// The oldest states but the first go where large files have no more room, but not where those of the present alone have
// none.
func TestLargeBound(t *testing.T) {
	t.Parallel()
	for _, present := range []int{1, 5} {
		t.Run(fmt.Sprint(present), func(t *testing.T) {
			t.Parallel()
			dir, cfg := limited(t, 9<<20)
			tracker := track(t, cfg)
			states := openStates(t, tracker, changes.StatesConfig{Dir: filepath.Join(t.TempDir(), "states")})
			var last uint64
			var want map[string]string
			for i := range 20 {
				for k := range present {
					fill(t, filepath.Join(dir, fmt.Sprint("f", k)), byte('a'+i), 2<<20)
				}
				do(t, dir, fmt.Sprint("write small ", i))
				last, want = states.Add(step(t, tracker)), image(t, dir)
				capture(t, states)
			}
			if got := cfg.Store.Stats(); got.CloneBytes > got.CloneBound || got.CloneBytes == 0 {
				t.Errorf("got %+v", got)
			}
			if _, err := states.Get(2); errors.Is(err, changes.ErrStateGone) != (present == 1) {
				t.Errorf("the oldest state but the first: %v", err)
			}
			if present > 1 {
				return
			}
			do(t, dir, "rm f0")
			if r := restore(t, tracker, get(t, states, last), changes.RestoreOptions{}); refusals(r) != "" {
				t.Error(refusals(r))
			}
			if d := different(want, image(t, dir)); d != "" {
				t.Error(d)
			}
		})
	}
}

// Clones of states that are forgotten give way to those of the present also where not all of these have room.
func TestLargeCrowded(t *testing.T) {
	t.Parallel()
	dir, cfg := limited(t, 9<<20)
	tracker := track(t, cfg)
	states := openStates(t, tracker, changes.StatesConfig{Dir: filepath.Join(t.TempDir(), "states"), MaxStates: 2})
	var last *changes.State
	for i := range 4 {
		for k := range 5 {
			fill(t, filepath.Join(dir, fmt.Sprint("f", k)), byte('a'+i), 2<<20)
		}
		last = step(t, tracker)
		states.Add(last)
	}
	for range 3 {
		capture(t, states)
		do(t, dir, "write small 1")
		states.Add(step(t, tracker))
	}
	for k := range 5 {
		fill(t, filepath.Join(dir, fmt.Sprint("f", k)), 'z', 2<<20)
	}
	for range 3 { // the states with the other contents are forgotten
		do(t, dir, "write small 2")
		last = step(t, tracker)
		states.Add(last)
	}
	capture(t, states)
	if n, paths := tracker.Missing(last); n != 1 {
		t.Errorf("%d of 5 large files are missing: %q", n, paths)
	}
}

// A sparse file above the bound is a fact alone, and a large one is copied with its holes where the file system of the root is another one
// by now.
func TestLargeSparse(t *testing.T) {
	t.Parallel()
	dir, cfg := clonable(t)
	cloner := testhelp.Cloner(t, dir)
	if cloner == nil {
		cloner = unix.IoctlFileClone
	}
	contents := filepath.Join(t.TempDir(), "contents")
	cfg.MaxFile = 1 << 20
	cfg.Store = openStore(t, store.Config{Dir: contents, MaxBytes: 100 << 20, Clone: func(dst, src int) error {
		if path, err := os.Readlink(fmt.Sprint("/proc/self/fd/", src)); err != nil || strings.HasPrefix(path, contents) && !strings.HasSuffix(path, "lock") {
			return errors.Join(unix.EXDEV, err)
		}
		return cloner(dst, src)
	}})
	path := filepath.Join(dir, "large")
	fill(t, path, 'a', 50<<20)
	fill(t, filepath.Join(dir, "huge"), 'a', 1<<40)
	tracker, before := undoable(t, cfg)
	if _, why, err := tracker.ReadFile(before, "huge"); !errors.Is(err, store.ErrNotKept) || why != changes.ContentLarge {
		t.Errorf("got %s (%v)", why, err)
	}
	do(t, dir, "rm large")
	if r := restore(t, tracker, before, changes.RestoreOptions{}); refusals(r) != "" {
		t.Error(refusals(r))
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Size != 50<<20 || st.Blocks*512 > 1<<20 {
		t.Errorf("it has %d bytes in %d blocks (%v)", st.Size, st.Blocks, err)
	}
}

// A large file that cannot be cloned, such as one without copy on write, is left out alone.
func TestLargeRefused(t *testing.T) {
	t.Parallel()
	dir, cfg := clonable(t)
	cfg.MaxFile = 1 << 20
	refused := filepath.Join(dir, "a-image")
	clone := testhelp.Cloner(t, t.TempDir())
	if clone == nil {
		clone = unix.IoctlFileClone
	}
	cfg.Store = openStore(t, store.Config{Dir: filepath.Join(t.TempDir(), "contents"), Clone: func(dst, src int) error {
		if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", src)); err != nil || name == refused {
			return errors.Join(unix.EXDEV, err)
		}
		return clone(dst, src)
	}})
	fill(t, refused, 'a', 3<<20)
	fill(t, filepath.Join(dir, "z-large"), 'a', 3<<20)
	tracker, before := undoable(t, cfg)
	if n, paths := tracker.Missing(before); n != 1 || len(paths) != 1 || paths[0] != "a-image" {
		t.Errorf("%d files are missing: %q", n, paths)
	}
	if _, why, err := tracker.ReadFile(before, "a-image"); !errors.Is(err, store.ErrNotKept) || why != changes.ContentLarge {
		t.Errorf("got %q and %v, want %s", why, err, changes.ContentLarge)
	}
	do(t, dir, "rm a-image")
	do(t, dir, "rm z-large")
	if r := restore(t, tracker, before, changes.RestoreOptions{}); !strings.Contains(refusals(r), "a-image") || strings.Contains(refusals(r), "z-large") {
		t.Errorf("refused are %q", refusals(r))
	}
}

// A store by a mapping to a page that was not written back shows in no time, so that the content of neither state is certain.
func TestLargeMapped(t *testing.T) {
	t.Parallel()
	dir, cfg := limited(t, 0)
	path := filepath.Join(dir, "large")
	fill(t, path, 'a', 3<<20)
	mapped := mapFile(t, path)
	mapped[0] = 'A'
	tracker := track(t, cfg)
	next := func() *changes.State {
		s, err := tracker.Step(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	next()
	first := next()
	mapped[0] = 'B'
	keep(t, tracker)
	second := next()
	if c := changes.Compare(first, second, changes.Limits{}); facts(c) == "" {
		t.Error("the changes are exact, and none")
	}
	if f, err := tracker.OpenLarge(first, "large"); err == nil {
		t.Error("a clone of B is the content of the first state")
		_ = f.Close()
	}
}

// A file that was restored, and whose clone was lost since, is kept again.
func TestLargeLost(t *testing.T) {
	t.Parallel()
	dir, cfg := limited(t, 0)
	fill(t, filepath.Join(dir, "large"), 'a', 3<<20)
	tracker, before := undoable(t, cfg)
	do(t, dir, "rm large")
	if r := restore(t, tracker, before, changes.RestoreOptions{}); refusals(r) != "" {
		t.Fatal(refusals(r))
	}
	now := step(t, tracker)
	keep(t, tracker)
	f, err := tracker.OpenLarge(now, "large")
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err := errors.Join(err, f.Close(), os.Truncate(name, 5)); err != nil {
		t.Fatal(err)
	}
	if f, err := tracker.OpenLarge(now, "large"); err == nil {
		t.Errorf("the damaged clone %s was opened", f.Name())
	}
	now = step(t, tracker)
	keep(t, tracker)
	if n, paths := tracker.Missing(now); n != 0 {
		t.Errorf("%d files are missing: %q", n, paths)
	}
}
