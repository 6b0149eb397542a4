package changes_test

import (
	"testing"

	"github.com/actiond/actiond/executor/changes"
)

// One action is taken back, and what changed since stays.
func TestRevert(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, action, since, want, refused string }{
		{"a file", "write a 1\nwrite b 1", "write a 2", "write b 2", "write a 1\nwrite b 2", ""},
		{"changed since", "write a 1\nwrite b 1", "write a 2\nwrite b 2", "write b 3", "write a 1\nwrite b 3", "b: it changed since"},
		{"removed since", "write a 1\nwrite b 1", "write a 2\nwrite b 2", "rm b", "write a 1", "b: it changed since"},
		{"made", "", "write a 1\nmkdir d/e\nwrite d/e/f 1", "write b 1", "write b 1", ""},
		{"made, and no longer empty", "", "mkdir d/e\nwrite d/e/f 1", "write d/b 1", "mkdir d\nwrite d/b 1", "d: the directory is no longer empty"},
		{"made, and gone", "", "mkdir d\nwrite a 1", "rm d\nrm a", "", ""},
		{"rm -r", "mkdir d/e\nwrite d/e/f 1\nsymlink x d/l", "rm d", "write b 1", "mkdir d/e\nwrite d/e/f 1\nsymlink x d/l\nwrite b 1", ""},
		{"rm -r, and made again", "mkdir d\nwrite d/e 1\nwrite a 1", "rm d\nrm a", "mkdir d", "mkdir d\nwrite a 1", "d: it changed since"},
		{"renamed", "mkdir d\nwrite d/a 1\nwrite f 1", "mv d e\nmv f g", "", "mkdir d\nwrite d/a 1\nwrite f 1", ""},
		{"types", "write a 1\nmkdir d\nwrite d/a 1", "rm a\nmkdir a\nrm d\nwrite d 1", "", "write a 1\nmkdir d\nwrite d/a 1", ""},
		{"modes", "write a 1\nmkdir d\nwrite b 1", "chmod a 700\nchmod d 700\nchmod b 700", "write b 2", "write a 1\nmkdir d\nwrite b 2\nchmod b 700", "b: it changed since"},
		{"the same once more", "write a 1\ntouch a 1", "write a 2", "write a 1\ntouch a 1", "write a 1\ntouch a 1", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, like := t.TempDir(), t.TempDir()
			do(t, dir, test.before)
			do(t, like, test.want)
			tracker, before := undoable(t, changes.Config{Root: dir})
			do(t, dir, test.action)
			after := step(t, tracker)
			keep(t, tracker)
			do(t, dir, test.since)
			now := image(t, dir)
			r, err := tracker.Revert(before, after, true, changes.RestoreOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if test.refused != "" {
				if d := different(now, image(t, dir)); d != "" || refusals(r) != test.refused {
					t.Fatalf("all or nothing: refused %s, and\n%s", refusals(r), d)
				}
				if r, err = tracker.Revert(before, after, false, changes.RestoreOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			got, want := tree(t, dir), tree(t, like)
			for path, e := range want {
				g := got[path]
				if path != "." && (g.kind != e.kind || g.content != e.content || g.mode != e.mode) {
					t.Errorf("%s: got %+v, want %+v", path, g, e)
				}
			}
			if len(got) != len(want) || refusals(r) != test.refused {
				t.Errorf("got %d names, want %d; refused %s", len(got), len(want), refusals(r))
			}
			back := restore(t, tracker, r.Before, changes.RestoreOptions{})
			if d := different(now, image(t, dir)); d != "" || refusals(back) != "" {
				t.Errorf("taken back: refused %s, and\n%s", refusals(back), d)
			}
		})
	}
}
