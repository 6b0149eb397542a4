package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// fastPlace is a directory where many files cost little.
func fastPlace(t *testing.T) string {
	t.Helper()
	all := places(t)
	if dir := all["tmpfs"]; dir != "" {
		return dir
	}
	return all["temp"]
}

// A step does not read all of many small files: to open them takes long. What was not read before it changed may be the same.
// Empty ones are known.
func TestManySmallFiles(t *testing.T) {
	t.Parallel()
	const files = 1500
	for _, text := range []string{"1", ""} {
		dir := t.TempDir()
		var all strings.Builder
		for i := range files {
			fmt.Fprintf(&all, "write %d %s\n", i, text)
		}
		do(t, dir, all.String())
		time.Sleep(50 * time.Millisecond) // so that their times are believed
		tracker := track(t, changes.Config{Root: dir})
		last := step(t, tracker)
		for i := range files {
			if err := os.Chtimes(filepath.Join(dir, fmt.Sprint(i)), time.Unix(5, 0), time.Unix(5, 0)); err != nil {
				t.Fatal(err)
			}
		}
		got := changes.Compare(last, step(t, tracker), changes.Limits{})
		var system unix.Statfs_t
		if err := unix.Statfs(dir, &system); err != nil {
			t.Fatal(err)
		}
		switch exact := got.Exact && got.Counts.Meta == files; {
		case text == "":
			if !exact {
				t.Errorf("empty files: got %v, exact %t", got.Counts, got.Exact)
			}
		case system.Type != unix.TMPFS_MAGIC && (got.Exact || got.Counts.Meta > files*3/4): // where times tell too little, it reads more
			t.Errorf("got %v, exact %t", got.Counts, got.Exact)
		}
	}
}

// Directories without a watch are listed while they have few names. More are not, and that is said.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	dir := fastPlace(t)
	do(t, dir, "mkdir d\nwrite d/a 1")
	tracker := track(t, changes.Config{Root: dir, MaxWatches: 1})
	last := step(t, tracker)
	do(t, dir, "write d/a 2")
	last = expect(t, tracker, last, "modified d/a")
	var many strings.Builder
	for i := range 20_001 {
		fmt.Fprintf(&many, "write d/%d\n", i)
	}
	do(t, dir, many.String())
	now := step(t, tracker)
	if got := changes.Compare(last, now, changes.Limits{}); got.Counts != (changes.Counts{Created: 20_001}) || !got.Exact {
		t.Errorf("got %v, exact %t", got.Counts, got.Exact)
	}
	do(t, dir, "write d/a 3")
	blind := expect(t, tracker, now, "inexact: watch limit")
	seen := verify(t, tracker)
	if got := changes.Compare(blind, seen, changes.Limits{}); got.Exact || got.Counts != (changes.Counts{Modified: 1}) {
		t.Errorf("got %s, and want an inexact one: the change is older than the first state", facts(got))
	}
	if got := facts(changes.Compare(now, seen, changes.Limits{})); got != "modified d/a" {
		t.Errorf("got %s", got)
	}
}

// A file with a name outside of the root changes without an event. Some are looked at in each step, and the others are
// counted.
func TestNamesOutside(t *testing.T) {
	t.Parallel()
	dir := fastPlace(t)
	do(t, dir, "mkdir w/d\nmkdir out\nwrite w/d/a 1\nln w/d/a out/a\nwrite w/d/b 1")
	tracker := track(t, changes.Config{Root: dir + "/w"})
	last := step(t, tracker)
	do(t, dir, "write out/a 2")
	last = expect(t, tracker, last, "modified d/a")
	do(t, dir, "ln w/d/b out/b\nmkdir w/e\nln out/b w/e/b") // the first is no event in w
	last = expect(t, tracker, last, "created e, created e/b")
	do(t, dir, "write out/b 2")
	last = expect(t, tracker, last, "modified d/b, modified e/b")
	do(t, dir, "rm out\nwrite w/d/a 3")
	expect(t, tracker, last, "modified d/a")

	var many, write strings.Builder
	do(t, dir, "mkdir out")
	for i := range 2001 {
		fmt.Fprintf(&many, "write w/d/%d 1\nln w/d/%d out/%d\n", i, i, i)
		fmt.Fprintf(&write, "write out/%d 2\n", i)
	}
	do(t, dir, many.String())
	last = step(t, tracker)
	do(t, dir, write.String())
	now := step(t, tracker)
	if got := changes.Compare(last, now, changes.Limits{}); got.Exact || got.Unwatched != 1 || got.Why != changes.WhyUnsure {
		t.Errorf("got %d unwatched, exact %t, %s", got.Unwatched, got.Exact, got.Why)
	}
	if got := changes.Compare(last, verify(t, tracker), changes.Limits{}).Counts; got != (changes.Counts{Modified: 2001}) {
		t.Errorf("got %v", got)
	}
}

// The blind spot of a step: a link that is made, written through and removed. It is found by a listing of everything.
func TestLinkMadeAndRemoved(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			do(t, dir, "mkdir d\nmkdir e\nwrite d/a 1")
			tracker := track(t, changes.Config{Root: dir})
			last := step(t, tracker)
			do(t, dir, "ln d/a e/b\nwrite e/b 2\nrm e/b")
			expect(t, tracker, last, "")
			if got := facts(changes.Compare(last, verify(t, tracker), changes.Limits{})); got != "modified d/a" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// A step without a change costs no memory.
func TestIdleStep(t *testing.T) {
	tracker := track(t, changes.Config{Root: t.TempDir()})
	if allocs := testing.AllocsPerRun(100, func() { step(t, tracker) }); allocs != 0 {
		t.Errorf("got %v allocations", allocs)
	}
}

// A state stays what it was.
func TestStatesStay(t *testing.T) {
	t.Parallel()
	dir := fastPlace(t)
	do(t, dir, "mkdir d/e\nwrite d/e/a 1\ntouch d/e/a 1")
	tracker := track(t, changes.Config{Root: dir})
	first := step(t, tracker)
	do(t, dir, "write d/e/a 2")
	second := step(t, tracker)
	do(t, dir, "mv d f\nwrite f/e/a 1\ntouch f/e/a 1\nwrite b 1")
	third := step(t, tracker)
	for _, test := range []struct {
		a, b *changes.State
		want string
	}{
		{first, second, "modified d/e/a"},
		{second, third, "created b, modified f/e/a, renamed f from d"},
		{first, third, "created b, renamed f from d"},
		{third, first, "deleted b, renamed d from f"},
		{first, first, ""},
	} {
		if got := facts(changes.Compare(test.a, test.b, changes.Limits{})); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}
