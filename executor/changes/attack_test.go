package changes_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// during runs an attack in the background, and a step again and again until it ends.
func during(t *testing.T, tracker *changes.Tracker, attack func(), look func(before, after *changes.State)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		attack()
	}()
	for last := step(t, tracker); ; {
		now := step(t, tracker)
		look(last, now)
		last = now
		select {
		case <-done:
			return
		default:
			runtime.Gosched()
		}
	}
}

// settled checks that after an attack the next step has the same tree as a new tracker.
func settled(t *testing.T, tracker *changes.Tracker, dir string) {
	t.Helper()
	got := step(t, tracker)
	want := step(t, track(t, changes.Config{Root: dir}))
	if difference := facts(changes.Compare(got, want, changes.Limits{})); difference != "" {
		t.Errorf("the last step differs from the tree: %s", difference)
	}
}

// A link that takes the place of a directory or a file during a step is not followed.
func TestSwappedLinks(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			outside := t.TempDir()
			do(t, outside, "mkdir d/secret\nwrite d/secret/x 1\nwrite secret 1")
			do(t, dir, "mkdir w/d/e\nwrite w/d/e/a 1\nwrite w/f 1\nmkdir links")
			for name, to := range map[string]string{"d": "d", "f": "secret"} {
				if err := os.Symlink(filepath.Join(outside, to), filepath.Join(dir, "links", name)); err != nil {
					t.Fatal(err)
				}
			}
			root := filepath.Join(dir, "w")
			tracker := track(t, changes.Config{Root: root})
			attack := func() {
				for i := range 600 {
					name := []string{"d", "f"}[i%4/2]
					_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "w", name), unix.AT_FDCWD, filepath.Join(dir, "links", name), unix.RENAME_EXCHANGE)
					_ = os.WriteFile(filepath.Join(root, "new"), []byte{byte(i)}, 0o644)
				}
			}
			during(t, tracker, attack, func(before, after *changes.State) {
				if got := facts(changes.Compare(before, after, changes.Limits{})); strings.Contains(got, "secret") {
					t.Errorf("a link was followed: %s", got)
				}
			})
			settled(t, tracker, root)
		})
	}
}

// Steps while a program changes the tree without rest end, and the one after it misses nothing.
func TestRestless(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			p := &program{dir: dir, random: rand.New(rand.NewPCG(seed, 2)), restless: true}
			tracker := track(t, changes.Config{Root: dir})
			during(t, tracker, func() {
				for range 1500 {
					p.act()
				}
			}, func(before, after *changes.State) { changes.Compare(before, after, changes.Limits{}) })
			settled(t, tracker, dir)
		})
	}
}

// A file that changes while it is read is unsure, and never taken for the same.
func TestChangesWhileRead(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			data := make([]byte, 1<<20)
			path := filepath.Join(dir, "a")
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			tracker := track(t, changes.Config{Root: dir})
			attack := func() {
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				for i := range 5000 {
					_, _ = f.WriteAt([]byte{byte(i)}, int64(i*200))
				}
			}
			during(t, tracker, attack, func(before, after *changes.State) {
				if got := changes.Compare(before, after, changes.Limits{}); len(got.Facts) > 1 {
					t.Errorf("got %s", facts(got))
				}
			})
			settled(t, tracker, dir)
		})
	}
}

// A FIFO is not opened, and a directory of FIFOs is listed.
func TestFIFOs(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			tracker := track(t, changes.Config{Root: dir})
			last := step(t, tracker)
			do(t, dir, "fifo a\nfifo .gitignore\nfifo \xff")
			last = expect(t, tracker, last, "created .gitignore, created a, created \xff")
			do(t, dir, "rm a\nwrite a 1")
			expect(t, tracker, last, "modified a")
		})
	}
}

// More names than the limit cost no more than the limit. CHANGES_NAMES is the number of names.
func TestManyNames(t *testing.T) {
	t.Parallel()
	names := 2000
	if text := os.Getenv("CHANGES_NAMES"); text != "" {
		var err error
		if names, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			do(t, dir, "mkdir many\nwrite a 1")
			tracker := track(t, changes.Config{Root: dir, MaxNames: names / 2})
			last := step(t, tracker)
			for i := range names {
				f, err := os.OpenFile(filepath.Join(dir, "many", fmt.Sprint(i)), os.O_WRONLY|os.O_CREATE, 0o644)
				if err != nil {
					t.Fatal(err)
				}
				_ = f.Close()
			}
			do(t, dir, "write a 2")
			last = expect(t, tracker, last, "modified a, inexact: names limit")
			if last.Names() > names/2 {
				t.Errorf("got %d names", last.Names())
			}
			do(t, dir, "rm many\nwrite a 3")
			now := step(t, tracker)
			if got := facts(changes.Compare(last, now, changes.Limits{})); got != "deleted many, modified a, inexact: names limit" {
				t.Errorf("got %s", got)
			}
			expect(t, tracker, now, "")
		})
	}
}

// A path that leads to a directory that may not be followed by the time it is opened is refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	private, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	tracker, err := changes.New(changes.Config{Root: link, Refuses: func(dir string) bool { return dir == private }})
	if !errors.Is(err, changes.ErrRefused) || tracker != nil {
		t.Errorf("got %v", err)
	}
}
