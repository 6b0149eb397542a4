package changes_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// places are new directories on the file systems of this machine: that of temporary files, and tmpfs, whose times say
// nothing.
func places(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"temp": t.TempDir()}
	var system unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &system); err == nil && system.Type == unix.TMPFS_MAGIC {
		if dir, err := os.MkdirTemp("/dev/shm", "changes-test-"); err == nil { //nolint:usetesting // it is elsewhere
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			all["tmpfs"] = dir
		}
	}
	return all
}

func track(tb testing.TB, cfg changes.Config) *changes.Tracker {
	tb.Helper()
	tracker, err := changes.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := tracker.Close(); err != nil {
			tb.Error(err)
		}
	})
	return tracker
}

func verify(tb testing.TB, tracker *changes.Tracker) *changes.State {
	tb.Helper()
	state, err := tracker.Verify()
	if err != nil {
		tb.Fatal(err)
	}
	return state
}

func step(tb testing.TB, tracker *changes.Tracker) *changes.State {
	tb.Helper()
	state, err := tracker.Step()
	if err != nil {
		tb.Fatal(err)
	}
	return state
}

// do carries out lines such as "write a text": a small shell without processes.
func do(tb testing.TB, dir, script string) {
	tb.Helper()
	for line := range strings.Lines(script) {
		args := strings.Fields(line)
		if len(args) == 0 {
			continue
		}
		at := func(i int) string { return filepath.Join(dir, args[i]) }
		var err error
		switch args[0] {
		case "write":
			err = os.WriteFile(at(1), []byte(strings.Join(args[2:], " ")), 0o644)
		case "mkdir":
			err = os.MkdirAll(at(1), 0o755)
		case "rm":
			err = os.RemoveAll(at(1))
		case "mv":
			err = os.Rename(at(1), at(2))
		case "swap":
			err = unix.Renameat2(unix.AT_FDCWD, at(1), unix.AT_FDCWD, at(2), unix.RENAME_EXCHANGE)
		case "ln":
			err = os.Link(at(1), at(2))
		case "symlink":
			err = os.Symlink(args[1], at(2))
		case "chmod":
			mode := map[string]os.FileMode{"+x": 0o755, "-x": 0o600, "755": 0o755, "700": 0o700}[args[2]]
			err = os.Chmod(at(1), mode)
		case "touch": // sets the time of the content
			when := time.Unix(int64(len(args[2])), 0)
			err = os.Chtimes(at(1), when, when)
		case "xattr":
			err = unix.Lsetxattr(at(1), "user.x", []byte(args[2]), 0)
		case "fifo":
			err = unix.Mkfifo(at(1), 0o644)
		default:
			tb.Fatalf("unknown command %q", line)
		}
		if err != nil {
			tb.Fatalf("%s: %v", strings.TrimSpace(line), err)
		}
	}
}

// facts are those of a comparison, and what it says about itself.
func facts(c *changes.Changes) string {
	var all []string
	for _, f := range c.Facts {
		line := string(f.Op) + " " + f.Path
		if f.From != "" {
			line += " from " + f.From
		}
		all = append(all, line)
	}
	slices.Sort(all)
	for _, group := range slices.Sorted(maps.Keys(c.Ignored)) {
		all = append(all, fmt.Sprintf("%d in %s", c.Ignored[group], group))
	}
	if !c.Exact {
		all = append(all, "inexact: "+string(c.Why))
		all = append(all, c.Unsure...)
	}
	if c.Truncated {
		all = append(all, "truncated")
	}
	return strings.Join(all, ", ")
}

func TestFacts(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, after, want string }{
		{"nothing", "write a 1", "", ""},
		{"created", "mkdir d", "write d/a 1", "created d/a"},
		{"deep", "mkdir d/e/f", "mkdir d/e/f/g/h\nwrite d/e/f/g/h/a 1", "created d/e/f/g, created d/e/f/g/h, created d/e/f/g/h/a"},
		{"modified", "write a 1", "write a 2", "modified a"},
		{"deleted", "mkdir d\nwrite d/a 1", "rm d", "deleted d, deleted d/a"},
		{"same text", "write a 1\ntouch a 1", "write a 1\ntouch a 1", ""},
		{"replaced by an equal file", "write a 1\ntouch a 1", "write b 1\ntouch b 1\nmv b a", ""},
		{"replaced", "write a 1", "write b 2\nmv b a", "modified a"},
		{"mode", "write a 1", "chmod a +x", "meta a"},
		{"mode of a directory", "mkdir d", "chmod d -x", "meta d"},
		{"mode of the root", "chmod . 755", "chmod . 700", "meta ."},
		{"time", "write a 1", "touch a 1", "meta a"},
		{"time of a directory", "mkdir d", "touch d 1", ""},
		{"xattr", "write a 1", "xattr a 1", "meta a"},
		{"xattr of a directory", "mkdir d\nxattr d 1", "xattr d 2", "meta d"},
		{"xattr of the root", "", "xattr . 1", "meta ."},
		{"created and removed", "", "write a 1\nrm a", ""},
		{"renamed", "write a 1", "mv a b", "renamed b from a"},
		{"renamed and modified", "write a 1", "mv a b\nwrite b 12", "modified b, renamed b from a"},
		{"renamed and chmod", "write a 1", "mv a b\nchmod b +x", "meta b, renamed b from a"},
		{"renamed directory", "mkdir d/e\nwrite d/e/a 1", "mv d f", "renamed f from d"},
		{"changed below", "mkdir d/e\nwrite d/e/a 1\nwrite d/b 1", "mv d f\nwrite f/e/a 2\nrm f/b\nwrite f/c 1", "created f/c, deleted d/b, modified f/e/a, renamed f from d"},
		{"moved twice", "mkdir d/e/f\nwrite d/e/f/a 1", "mv d x\nmv x/e y\nmv y/f z", "renamed x from d, renamed y from d/e, renamed z from d/e/f"},
		{"moved out of a removed one", "mkdir d/e\nwrite d/e/a 1\nwrite d/b 1", "mv d/e f\nmv d/b c\nrm d", "deleted d, renamed c from d/b, renamed f from d/e"},
		{"moved into a new one", "mkdir d\nwrite d/a 1", "mkdir e\nmv d e/d", "created e, renamed e/d from d"},
		{"moved into each other", "mkdir a/b", "mv a/b b\nmv a b/a", "renamed b from a/b, renamed b/a from a"},
		{"backup", "write a 1", "mv a b\nwrite a 2", "created b, modified a"},
		{"moved over", "write a 1\nwrite b 2", "mv a b", "deleted a, modified b"},
		{"moved into the place of a moved one", "mkdir d\nwrite d/a 1\nwrite b 2", "mv d e\nrm e/a\nmv b e/a", "deleted d/a, renamed e from d, renamed e/a from b"},
		{"moved into the place of a directory in a moved one", "mkdir d/a\nwrite d/a/x 1\nwrite b 2", "mv d e\nrm e/a\nmv b e/a", "deleted d/a, deleted d/a/x, renamed e from d, renamed e/a from b"},
		{"a moved one in the place of a directory in a moved one", "mkdir d/a\nwrite d/a/x 1\nmkdir b", "mv d e\nrm e/a\nmv b e/a\nwrite e/a/x 2", "created e/a/x, deleted d/a, deleted d/a/x, renamed e from d, renamed e/a from b"},
		{"another type in a moved one", "mkdir d/a\nwrite d/a/x 1", "mv d e\nrm e/a\nwrite e/a 1", "deleted d/a/x, modified e/a, renamed e from d"},
		{"replaced in a moved one", "mkdir d\nwrite d/a 1", "mv d e\nwrite b 2\nmv b e/a", "modified e/a, renamed e from d"},
		{"swap", "write a 1\nwrite b 2", "swap a b", "modified a, modified b"},
		{"type", "write a 1", "rm a\nmkdir a\nwrite a/b 1", "created a/b, modified a"},
		{"type of a directory", "mkdir a\nwrite a/b 1", "rm a\nsymlink x a", "deleted a/b, modified a"},
		{"type in a moved one", "mkdir d/x/y", "mv d e\nmv e/x z\nwrite e/x 1", "created e/x, renamed e from d, renamed z from d/x"},
		{"link target", "symlink x a", "rm a\nsymlink y a", "modified a"},
		{"hard link", "write a 1", "ln a b", "created b"},
		{"written by one of two names", "write a 1\nmkdir d\nln a d/b", "write a 2", "modified a, modified d/b"},
		{"fifo", "", "fifo a", "created a"},
		{"ignored", "write .gitignore build/", "mkdir build/d\nwrite build/d/a 1\nwrite b 1", "created b, 3 in build"},
		{"ignored below", "mkdir d\nwrite d/.gitignore /build", "mkdir d/build\nwrite d/build/a 1\nwrite build 1", "created build, 2 in d/build"},
		{"ignored files", "write .gitignore *.o\nmkdir d", "write a.o 1\nwrite d/b.o 1\nwrite d/c 1", "created d/c, 2 in *.o"},
		{"kept", "write .gitignore *.o\nmkdir d\nwrite d/.gitignore !b.o", "write a.o 1\nwrite d/b.o 1", "created d/b.o, 1 in *.o"},
		{"ignored anchored", "mkdir d/e\nwrite .gitignore d/e/x", "write d/e/x 1\nwrite d/x 1", "created d/x, 1 in d/e/x"},
		{"ignored at the end", "mkdir build\nwrite build/a 1", "write build/a 2\nwrite .gitignore build", "created .gitignore, 1 in build"},
		{"ignored no more", "mkdir build\nwrite build/a 1\nwrite .gitignore build", "write build/a 2\nwrite .gitignore other", "modified .gitignore, modified build/a"},
		{"ignored removed", "mkdir build/d\nwrite build/d/a 1\nwrite .gitignore build/", "rm build", "3 in build"},
		{"repository", "mkdir .git/refs\nmkdir sub/.git", "write .git/index 1\nwrite .git/refs/x 1\nwrite sub/.git/HEAD 1", "2 in .git, 1 in sub/.git"},
		{"out of an ignored one", "mkdir build\nwrite build/a 1\nwrite .gitignore build", "mv build/a a", "renamed a from build/a"},
		{"within an ignored one", "mkdir build\nwrite build/a 1\nwrite .gitignore build", "mv build/a build/b", "1 in build"},
		{"rules by a link", "symlink /etc/hostname .gitignore", "write a 1", "created a"},
		{"not UTF-8", "", "write \xff\xfe 1", "created \xff\xfe"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for place, dir := range places(t) {
				do(t, dir, test.before)
				watched := track(t, changes.Config{Root: dir})
				listed := track(t, changes.Config{Root: dir, MaxWatches: -1})
				before, beforeListed, treeBefore := step(t, watched), step(t, listed), tree(t, dir)
				do(t, dir, test.after)
				after := step(t, watched)
				all := changes.Compare(before, after, changes.Limits{Facts: 1 << 30, Bytes: 1 << 30})
				if wrong := check(treeBefore, tree(t, dir), all); wrong != "" && all.Ignored == nil {
					t.Errorf("%s: a comparison of all contents says: %s", place, wrong)
				}
				if got := facts(changes.Compare(before, after, changes.Limits{})); got != test.want {
					t.Errorf("%s: got  %s\nwant %s", place, got, test.want)
				}
				if got := facts(changes.Compare(beforeListed, step(t, listed), changes.Limits{})); got != test.want {
					t.Errorf("%s, without watches: got  %s\nwant %s", place, got, test.want)
				}
				if got := facts(changes.Compare(before, verify(t, watched), changes.Limits{})); got != test.want {
					t.Errorf("%s, after all was listed: got  %s\nwant %s", place, got, test.want)
				}
				if last := step(t, watched); step(t, watched) != last {
					t.Errorf("%s: without a change there is another state", place)
				}
			}
		})
	}
}

// Counts are complete when the facts are not.
func TestLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tracker := track(t, changes.Config{Root: dir})
	before := verify(t, tracker)
	do(t, dir, "write a 1\nwrite b 1\nwrite c 1")
	after := verify(t, tracker)
	for limits, want := range map[changes.Limits]string{
		{}:         "created a, created b, created c",
		{Facts: 2}: "created a, created b, truncated",
		{Bytes: 2}: "created a, created b, truncated",
	} {
		got := changes.Compare(before, after, limits)
		if facts(got) != want || got.Counts != (changes.Counts{Created: 3}) {
			t.Errorf("%v: got %s and %v, want %s", limits, facts(got), got.Counts, want)
		}
	}
}

// What is beyond the limit of names is not guessed, and it is said.
func TestNamesLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	do(t, dir, "mkdir d\nwrite d/a 1\nwrite e 1")
	tracker := track(t, changes.Config{Root: dir, MaxNames: 4})
	before := step(t, tracker)
	do(t, dir, "write d/b 1\nwrite d/c 1\nwrite e 2")
	after := step(t, tracker)
	if got, want := facts(changes.Compare(before, after, changes.Limits{})), "modified e, inexact: names limit"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	do(t, dir, "rm e") // which makes room, without an event in d
	if got, want := facts(changes.Compare(before, step(t, tracker), changes.Limits{})), "created d/b, created d/c, deleted e"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	do(t, dir, "rm d/c\nwrite e 2")
	if got, want := facts(changes.Compare(before, verify(t, tracker), changes.Limits{})), "created d/b, modified e"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The directory that has the root's path is followed, even if it is another one.
func TestRootReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	do(t, dir, "mkdir w\nwrite w/a 1\nwrite w/b 1\ntouch w/b 1")
	tracker := track(t, changes.Config{Root: filepath.Join(dir, "w")})
	before := verify(t, tracker)
	do(t, dir, "mv w old\nmkdir w\nwrite w/a 2\nwrite w/b 1\ntouch w/b 1")
	if got, want := facts(changes.Compare(before, verify(t, tracker), changes.Limits{})), "modified a, inexact: root"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	before = verify(t, tracker)
	do(t, dir, "rm w")
	if got, want := facts(changes.Compare(before, verify(t, tracker), changes.Limits{})), "deleted a, deleted b, inexact: root"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
