package changes_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// owned makes a directory of the user nobody, and has the rights of that user in do.
func owned(t *testing.T, script string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir := public(t)
	asNobody(t, dir, ".")
	do(t, dir, script)
	return dir
}

// asNobody gives files to the user nobody.
func asNobody(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Lchown(filepath.Join(dir, name), int(nobody.UID), int(nobody.GID)); err != nil {
			t.Fatal(err)
		}
	}
}

// Files of others that the user may move come back, and keep their names where more cannot be set.
func TestUndoOthersMoved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ change, own, refused, missing string }{
		"into a new directory":         {"mkdir n\nmv R n/R", "n", "", ""},
		"renamed":                      {"mv R S", "", "", ""},
		"exchanged":                    {"swap R A", "", "", ""},
		"exchanged with one below":     {"swap R d/F", "", "", ""},
		"another time":                 {"mkdir n\nmv R n/R\ntouch n/R 1", "n", "R: operation not permitted", "R"},
		"another mode, and exchanged":  {"chmod R 700\nswap R A", "", "R: operation not permitted", "R"},
		"out of a directory of others": {"mkdir n\nmv others/O n/O", "n", "n: it is not in the target, others: operation not permitted, others/O: operation not permitted", "others/O"},
		"the same, further down":       {"mkdir n/m\nmv others/O n/m/O\nmv R n/R", "n n/m", "n: it is not in the target, others: operation not permitted, others/O: operation not permitted", "others/O"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := owned(t, "write R 1\nwrite A 2\nmkdir d\nwrite d/F 3\nmkdir others\nwrite others/O 4")
			asNobody(t, dir, "A", "d", "d/F", "others/O")
			first := image(t, dir)
			tracker, before := undoable(t, changes.Config{Root: dir, User: nobody})
			do(t, dir, test.change)
			asNobody(t, dir, strings.Fields(test.own)...)
			now := image(t, dir)
			r := restore(t, tracker, before, changes.RestoreOptions{})
			if got := refusals(r); got != test.refused {
				t.Errorf("refused %s, want %s", got, test.refused)
			}
			got := image(t, dir)
			for path, want := range first {
				if path != test.missing && path != "others" && path != "." && got[path] != want {
					t.Errorf("%s\n is     %s\nshould %s", path, got[path], want)
				}
			}
			switch {
			case test.missing == "R" && got["R"] == "":
				t.Error("R is gone")
			case test.missing == "others/O" && (got["n/O"] != now["n/O"] || got["n/m/O"] != now["n/m/O"]):
				t.Errorf("others/O is gone: %q", got)
			}
			for path := range got {
				if strings.HasPrefix(path, ".actiond") {
					t.Errorf("%s is left", path)
				}
			}
		})
	}
}

// Directories that the user closed are opened, whatever is in them, and closed again by a restore to the present.
func TestUndoClosed(t *testing.T) {
	t.Parallel()
	modes := map[string]uint32{"644": 0o644, "000": 0, "200": 0o200, "u-x": 0o655}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := owned(t, "mkdir p/q/r\nwrite p/q/f 1\nwrite p/g 2\nmkdir p/e\nwrite other 1")
			asNobody(t, dir, "p", "p/q", "p/q/r", "p/q/f", "p/g", "p/e", "other")
			first := image(t, dir)
			tracker, before := undoable(t, changes.Config{Root: dir, User: nobody})
			do(t, dir, "rm p/g\nwrite p/q/new 1\nmkdir made\nwrite made/a 1")
			asNobody(t, dir, "p/q/new", "made", "made/a")
			step(t, tracker)
			keep(t, tracker)
			if err := errors.Join(chmodAll(filepath.Join(dir, "p"), mode), chmodAll(filepath.Join(dir, "made"), mode)); err != nil {
				t.Fatal(err)
			}
			closed := image(t, dir)
			if r := restore(t, tracker, before, changes.RestoreOptions{DryRun: true}); refusals(r) != "" {
				t.Errorf("a dry run refused %s", refusals(r))
			}
			if d := different(closed, image(t, dir)); d != "" {
				t.Errorf("after a dry run:\n%s", d)
			}
			r := restore(t, tracker, before, changes.RestoreOptions{})
			if refusals(r) != "" || !r.After.Exact() {
				t.Errorf("refused %s", refusals(r))
			}
			if d := different(first, image(t, dir)); d != "" {
				t.Error(d)
			}
			if r := restore(t, tracker, r.Before, changes.RestoreOptions{}); refusals(r) != "" {
				t.Errorf("the second refused %s", refusals(r))
			}
			if d := different(closed, image(t, dir)); d != "" {
				t.Errorf("after the second:\n%s", d)
			}
		})
	}
}

// chmodAll is chmod -R; what cannot be read by anyone are directories alone.
func chmodAll(dir string, mode uint32) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if mode&0o400 == 0 && !d.IsDir() {
			return err
		}
		return errors.Join(err, unix.Chmod(path, mode))
	})
}

// A directory that cannot be searched after a restart has not lost its entries, and those that were made in it are not claimed.
func TestClosedAtStart(t *testing.T) {
	t.Parallel()
	dir := owned(t, "mkdir p/q\nwrite p/q/f 1\nwrite p/g 2")
	asNobody(t, dir, "p", "p/q", "p/q/f", "p/g")
	before := step(t, track(t, changes.Config{Root: dir, User: nobody}))
	if err := chmodAll(filepath.Join(dir, "p"), 0o644); err != nil {
		t.Fatal(err)
	}
	tracker := track(t, changes.Config{Root: dir, User: nobody})
	tracker.Adopt(before)
	if got := facts(changes.Compare(before, step(t, tracker), changes.Limits{})); got != "meta p, inexact: unsure, p" {
		t.Errorf("got %s", got)
	}
}
