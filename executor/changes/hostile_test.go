package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/gitignore"
)

// longDir makes directories in each other whose path has some kilobytes, and returns the path of a descriptor of the last one.
func longDir(t *testing.T, dir string, kilobytes int) string {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	name := strings.Repeat("n", 249)
	for range kilobytes * 4 {
		if err != nil {
			t.Fatal(err)
		}
		above := at
		if err = unix.Mkdirat(above, name, 0o755); err == nil {
			at, err = unix.Openat(above, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		_ = unix.Close(above)
	}
	t.Cleanup(func() { _ = unix.Close(at) })
	return fmt.Sprintf("/proc/self/fd/%d", at)
}

// Paths that are named have 64 KiB together, however long one is, and what is not named is counted.
func TestLongPaths(t *testing.T) {
	t.Parallel()
	const files, most = 10, 64 << 10
	dir := fastPlace(t)
	at := longDir(t, dir, 20)
	write := func(text string) {
		t.Helper()
		for i := range files {
			if err := os.WriteFile(filepath.Join(at, fmt.Sprint(i)), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("12")
	tracker, before := undoable(t, changes.Config{Root: dir, MaxFile: 1})
	write("34")
	got := changes.Compare(before, step(t, tracker), changes.Limits{})
	missing, paths := tracker.Missing(before)
	r := restore(t, tracker, before, changes.RestoreOptions{DryRun: true})
	var refused []string
	for _, x := range r.Refused {
		refused = append(refused, x.Path)
	}
	for what, named := range map[string][]string{"unsure": got.Unsure, "missing": paths, "refused": refused} {
		if size := len(strings.Join(named, "")); size > most || len(named) != most/(20*1024) {
			t.Errorf("%s: got %d paths of %d bytes", what, len(named), size)
		}
	}
	if got.Exact || got.Counts.Modified != files || missing != files || r.RefusedCount != files {
		t.Errorf("got exact %t, %d modified, %d missing, %d refused", got.Exact, got.Counts.Modified, missing, r.RefusedCount)
	}
}

// What a user cannot read is unsure also where no path has room, and a state with long paths counts them.
func TestLongUnsure(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir := public(t)
	for _, kilobytes := range []int{20, 70} {
		at := longDir(t, dir, kilobytes)
		for i := range 5 {
			if err := os.Mkdir(filepath.Join(at, fmt.Sprint(i)), 0); err != nil {
				t.Fatal(err)
			}
		}
		state := step(t, track(t, changes.Config{Root: dir, User: nobody}))
		empty := step(t, track(t, changes.Config{Root: t.TempDir()}))
		got := changes.Compare(empty, state, changes.Limits{})
		if own := state.Own(empty); got.Exact || own > 300<<10 || len(got.Unsure) > 0 && own < 60<<10 {
			t.Errorf("%d kB: got exact %t, %d bytes, %d unsure", kilobytes, got.Exact, own, len(got.Unsure))
		}
		if err := os.RemoveAll(dir + "/" + strings.Repeat("n", 249)); err != nil {
			t.Fatal(err)
		}
	}
}

// A link with a long target takes the room of several names, in the tree and in earlier states.
func TestLongTargets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tracker := track(t, changes.Config{Root: dir, MaxNames: 40})
	last := step(t, tracker)
	target := strings.Repeat("t", 4000)
	do(t, dir, "mkdir d\nsymlink "+target+" d/a\nsymlink "+target+" d/b\nsymlink "+target+" d/c")
	now := expect(t, tracker, last, "created d, created d/a, created d/b, created d/c")
	if own := now.Own(last); own < 3*4000 {
		t.Errorf("the links take %d bytes", own)
	}
	do(t, dir, "symlink "+target+" d/e")
	crowded := expect(t, tracker, now, "inexact: names limit")
	if n := crowded.Names(); n > 1 {
		t.Errorf("got %d names", n)
	}
	do(t, dir, "rm d/a")
	expect(t, tracker, now, "created d/e, deleted d/a")
	do(t, dir, "rm d")
	if n := step(t, tracker).Names(); n != 0 {
		t.Errorf("got %d names of an empty directory", n)
	}
}

// The rules of all ignore files have a bound of bytes, and those of removed ones make room.
func TestManyRules(t *testing.T) {
	t.Parallel()
	dir := fastPlace(t)
	rules := strings.Repeat("x\n", 40_000)
	const enough = gitignore.MaxBytes / (40_000 * 100)
	for i := range enough + 3 {
		do(t, dir, fmt.Sprintf("mkdir %d", i))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i), ".gitignore"), []byte(rules), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tracker := track(t, changes.Config{Root: dir})
	ignored := func() int {
		t.Helper()
		last := step(t, tracker)
		for i := range enough + 3 {
			if _, err := os.Stat(filepath.Join(dir, fmt.Sprint(i))); err == nil {
				do(t, dir, fmt.Sprintf("write %d/x 1\nwrite %d/y 1", i, i))
			}
		}
		return changes.Compare(last, step(t, tracker), changes.Limits{}).Ignored["x"]
	}
	n := ignored()
	if n == 0 || n > enough {
		t.Errorf("%d of %d files have rules", n, enough+3)
	}
	for i := range enough + 2 {
		do(t, dir, fmt.Sprintf("rm %d", i))
	}
	do(t, dir, fmt.Sprintf("rm %d/x", enough+2))
	step(t, tracker)
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(enough+2), ".gitignore"), []byte(rules+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if n := ignored(); n != 1 {
		t.Errorf("%d files have rules after the others went", n)
	}
}

// Extended attributes have a bound of memory, also where a file has thousands, and changes of all are found.
func TestManyXattrs(t *testing.T) {
	t.Parallel()
	dir := fastPlace(t)
	do(t, dir, "write a 1")
	file := filepath.Join(dir, "a")
	list := []string{"user.a", "user.b", "user.c"}
	for _, name := range list {
		if err := unix.Lsetxattr(file, name, make([]byte, 20<<10), 0); err != nil {
			t.Skipf("this file system keeps few extended attributes: %v", err)
		}
	}
	if text := changes.ListXattrs(file); len(text) > 64<<10 {
		t.Errorf("got %d bytes", len(text))
	}
	tracker, before := undoable(t, changes.Config{Root: dir})
	for _, name := range list {
		last := step(t, tracker)
		if err := unix.Lsetxattr(file, name, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		expect(t, tracker, last, "meta a")
	}
	if r := restore(t, tracker, before, changes.RestoreOptions{}); r.RefusedCount != 1 {
		t.Errorf("got %d refused", r.RefusedCount)
	}
}

// A group of ignored files has no name of megabytes.
func TestLongGroups(t *testing.T) {
	t.Parallel()
	dir := fastPlace(t)
	do(t, dir, "write .gitignore build*/")
	at := longDir(t, dir, 1)
	tracker := track(t, changes.Config{Root: dir})
	last := step(t, tracker)
	do(t, dir, "mkdir build\nwrite build/a 1")
	for i := range 3 {
		if err := os.Mkdir(filepath.Join(at, fmt.Sprint("build", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, tracker, last, "3 in *, 2 in build")
}
