package changes_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// refusals are the refused paths with their reasons.
func refusals(r *changes.Restored) string {
	var all []string
	for _, x := range r.Refused {
		all = append(all, x.Path+": "+x.Why)
	}
	return strings.Join(all, ", ")
}

// undoable tracks a directory and keeps all that is in it.
func undoable(t *testing.T, cfg changes.Config) (*changes.Tracker, *changes.State) {
	t.Helper()
	if cfg.Store == nil {
		cfg.Store = contents(t, 0)
	}
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	tracker := track(t, cfg)
	state := step(t, tracker)
	keep(t, tracker)
	return tracker, state
}

// What is done after the first state is undone, and done again by undoing that.
func TestUndo(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, after string }{
		{"nothing", "write a 1", ""},
		{"a file", "write a 1", "write a 2"},
		{"a new file", "mkdir d", "write d/a 1"},
		{"rm -r", "mkdir d/e/f\nwrite d/a 1\nwrite d/e/b 2\nsymlink a d/e/link\nfifo d/e/f/fifo\nln d/a d/e/f/c\nxattr d/a 1", "rm d"},
		{"a swap", "mkdir a\nmkdir b\nwrite a/x 1\nwrite b/y 2", "swap a b"},
		{"a swap of files", "write a 1\nwrite b 22", "swap a b"},
		{"a swap with a directory", "mkdir d\nwrite d/a 1\nwrite f 2", "swap d f"},
		{"a cycle", "mkdir a/b/c\nwrite a/b/c/x 1", "mv a/b b\nmv a b/c/a\nmv b/c c"},
		{"a directory below its child", "mkdir a/b\nwrite a/x 1\nwrite a/b/y 2", "mv a/b b\nmv a b/a"},
		{"taken aside twice", "mkdir a/b/c\nmkdir d", "mv a/b/c d/c\nmv a/b d/c/b\nmv d e"},
		{"an identity that is wanted elsewhere", "mkdir a\nwrite a/x 1\nmkdir b\nwrite b/y 2", "rm a\nmv b a\nmkdir b\nwrite b/z 3"},
		{"types", "mkdir d\nwrite d/a 1\nwrite f 1\nsymlink f l\nfifo p", "rm d\nwrite d 1\nrm f\nmkdir f\nwrite f/b 1\nrm l\nfifo l\nrm p\nsymlink f p"},
		{"a backup", "write a 1", "mv a a~\nwrite a 2"},
		{"an equal file", "write a 1\ntouch a 1", "rm a\nwrite a 1\ntouch a 1\nmv a b\nwrite a 1"},
		{"links made", "write a 1\nwrite b 1", "ln a c\nrm b\nln a b"},
		{"links broken", "mkdir d\nwrite a 1\nln a b\nln a d/c", "rm b\nwrite b 1\nrm d/c\nwrite d/c 2\nchmod a 700"},
		{"links of which one changed", "write a 1\nln a b\nln a c", "rm a\nwrite a 2\nchmod b 700\ntouch c 12"},
		{"link groups while directories move", "mkdir d\nmkdir e\nwrite d/a 1\nln d/a e/a", "mv d f\nmv e d\nrm f/a"},
		{"links of links", "symlink x a\nln a b", "rm a\nwrite a 1"},
		{"modes and times", "mkdir d\nwrite d/a 1\ntouch d 1\ntouch d/a 12", "chmod d 700\nchmod d/a 700\ntouch d 123\ntouch d/a 1234"},
		{"extended attributes", "mkdir d\nwrite a 1\nxattr a 1\nxattr d 1\nwrite b 1", "xattr a 2\nxattr d 2\nxattr b 2"},
		{"names that are no text", "mkdir \xff\nwrite \xff/\xfe 1\nwrite -n 1", "rm \xff\nwrite \xff 1\nmv -n \xfd"},
		{"a renamed directory that changed", "mkdir d/e\nwrite d/a 1\nwrite d/e/b 1\nwrite d/e/c 1", "mv d x\nwrite x/a 2\nrm x/e/b\nmv x/e x/f\nwrite x/f/new 1"},
		{"holes", "write a 1", "rm a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for place, dir := range places(t) {
				t.Run(place, func(t *testing.T) {
					t.Parallel()
					cfg := changes.Config{Root: dir}
					do(t, dir, test.before)
					if test.name == "holes" {
						if err := os.Truncate(filepath.Join(dir, "a"), 1<<20+7); err != nil {
							t.Fatal(err)
						}
					}
					first := image(t, dir)
					tracker, before := undoable(t, cfg)
					do(t, dir, test.after)
					second := image(t, dir)
					dry := restore(t, tracker, before, changes.RestoreOptions{DryRun: true})
					if d := different(second, image(t, dir)); d != "" {
						t.Fatalf("a dry run changed\n%s", d)
					}
					r := restore(t, tracker, before, changes.RestoreOptions{})
					if d := different(first, image(t, dir)); d != "" || refusals(r) != "" {
						t.Fatalf("undone: refused %s, and\n%s", refusals(r), d)
					}
					// Without times of creation, a new file may have the number of an old one.
					exact := tree(t, dir)["."].btime != 0 && test.name != "a backup"
					if got, want := facts(dry.Changes), facts(r.Changes); got != want && exact || len(dry.Refused) > 0 {
						t.Errorf("dry run\n%s\nthen\n%s", got, want)
					}
					if now := step(t, tracker); facts(changes.Compare(r.After, now, changes.Limits{})) != "" {
						t.Errorf("the state after the restore differs from the next one: %s", facts(changes.Compare(r.After, now, changes.Limits{})))
					}
					r = restore(t, tracker, r.Before, changes.RestoreOptions{})
					if d := different(second, image(t, dir)); d != "" || refusals(r) != "" {
						t.Fatalf("done again: refused %s, and\n%s", refusals(r), d)
					}
				})
			}
		})
	}
}

// A restore of some paths changes no other name.
func TestUndoPaths(t *testing.T) {
	t.Parallel()
	const before = "mkdir d/e\nwrite a 1\nwrite b 1\nwrite d/c 1\nwrite d/e/f 1\nln b d/b\nmkdir gone/x\nwrite gone/x/y 1\nwrite gone/z 1\ntouch d 1\ntouch gone 12"
	const after = "write a 2\nwrite b 2\nwrite d/c 2\nmv d/e g\nwrite g/f 2\nrm gone\nwrite new 1\nmkdir n\nwrite n/a 1"
	tests := []struct {
		paths         []string
		same, changed string // of the names: as before, and as after
		refused       string
		split         string
	}{
		{paths: []string{"a"}, same: "a"},
		{paths: []string{"."}, same: "a b d d/c d/e d/e/f d/b gone gone/x gone/x/y gone/z"},
		{paths: []string{"d/c"}, same: "d/c"},
		{paths: []string{"d/e"}, same: "d/e d/e/f", changed: "g g/f"},
		{paths: []string{"g"}, changed: "d"},
		{paths: []string{"gone/x/y"}, same: "gone gone/x gone/x/y"},
		{paths: []string{"gone/"}, same: "gone gone/x gone/x/y gone/z"},
		{paths: []string{"new", "n/a"}},
		{paths: []string{"b"}, same: "b", changed: "d/b", split: "b"},
		{paths: []string{"b", "d/b"}, same: "b d/b"},
		{paths: []string{"missing", "a"}, same: "a", refused: "missing: it is neither there nor in the target"},
		{paths: []string{"a/below"}, refused: "a/below: it is neither there nor in the target"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.paths, ","), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			do(t, dir, before)
			first := image(t, dir)
			tracker, state := undoable(t, changes.Config{Root: dir})
			do(t, dir, after)
			second := image(t, dir)
			r := restore(t, tracker, state, changes.RestoreOptions{Paths: test.paths})
			got := image(t, dir)
			if refusals(r) != test.refused || strings.Join(r.Split, " ") != test.split {
				t.Errorf("refused %s, split %s", refusals(r), r.Split)
			}
			// The number of names is not that of one name.
			links := func(text string) string {
				i, j := strings.Index(text, " names, the first is "), strings.LastIndex(text[:max(strings.Index(text, " names, "), 0)], " ")
				if i < 0 {
					return text
				}
				return text[:j]
			}
			wanted := map[string]string{}
			for path, text := range second {
				asked := slices.ContainsFunc(test.paths, func(p string) bool {
					p = strings.TrimSuffix(p, "/")
					return p == "." || path == p || strings.HasPrefix(path, p+"/")
				})
				if !asked {
					wanted[path] = text
				}
			}
			for path := range strings.FieldsSeq(test.same) {
				wanted[path] = first[path]
			}
			for path := range strings.FieldsSeq(test.changed) {
				wanted[path] = second[path]
			}
			if test.paths[0] == "." {
				wanted["."] = first["."]
			}
			for _, all := range []map[string]string{wanted, got} {
				for path, text := range all {
					all[path] = links(text)
				}
			}
			if d := different(wanted, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// What cannot be brought back is named and left as it is, and all else is restored.
func TestUndoRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	do(t, dir, "write large 1\nwrite a 1\nmkdir d\nwrite moved 1")
	for _, name := range []string{"large", "moved"} {
		if err := os.Truncate(filepath.Join(dir, name), 2<<20); err != nil {
			t.Fatal(err)
		}
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: filepath.Join(dir, "s")}); err != nil {
		t.Fatal(err)
	}
	device := unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) == nil
	first := image(t, dir)
	tracker, before := undoable(t, changes.Config{Root: dir, MaxFile: 1 << 20})
	do(t, dir, "write b pending")
	pending := step(t, tracker)
	do(t, dir, "rm s\nrm null\nwrite large 2\nrm a\nwrite d/b 1\nwrite b 2\nmv moved d/moved")
	now := image(t, dir)
	want := "large: its content was not kept: it is larger than 1048576 bytes"
	if device {
		want += ", null: a device cannot be brought back"
	}
	want += ", s: a socket cannot be brought back"
	if got := refusals(restore(t, tracker, before, changes.RestoreOptions{DryRun: true})); got != want {
		t.Errorf("a dry run refuses\n%s\nwant\n%s", got, want)
	}
	r := restore(t, tracker, before, changes.RestoreOptions{})
	if refusals(r) != want {
		t.Errorf("refused\n%s\nwant\n%s", refusals(r), want)
	}
	if fmt.Sprint(r.Unsure) != "[moved]" {
		t.Errorf("unsure are %v", r.Unsure)
	}
	wanted := maps.Clone(first)
	wanted["large"] = now["large"]
	delete(wanted, "s")
	delete(wanted, "null")
	if d := different(wanted, image(t, dir)); d != "" {
		t.Error(d)
	}
	r = restore(t, tracker, pending, changes.RestoreOptions{Paths: []string{"b"}})
	if got := refusals(r); got != "b: its content was not kept" {
		t.Errorf("a file that was not kept: %s", got)
	}
	// The present large file goes, and this is said.
	do(t, dir, "rm large\nwrite large 3")
	if err := os.Truncate(filepath.Join(dir, "large"), 3<<20); err != nil {
		t.Fatal(err)
	}
	last := step(t, tracker)
	do(t, dir, "write other 1")
	if err := os.Truncate(filepath.Join(dir, "other"), 3<<20); err != nil {
		t.Fatal(err)
	}
	if r := restore(t, tracker, last, changes.RestoreOptions{}); refusals(r) != "" || fmt.Sprint(r.Lost) != "[other]" {
		t.Errorf("refused %s, lost %v", refusals(r), r.Lost)
	}
}

// An access control list is brought back with the mode.
func TestUndoACL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	do(t, dir, "write a 1\nchmod a 755\nmkdir d")
	// user::rwx, user:65534:rwx, group::r-x, mask::rwx, other::r-x (acl(5)).
	acl := []byte{2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 254, 255, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255}
	for name, attribute := range map[string]string{"a": "system.posix_acl_access", "d": "system.posix_acl_default"} {
		if err := unix.Lsetxattr(filepath.Join(dir, name), attribute, acl, 0); err != nil {
			t.Skip(err)
		}
	}
	first := image(t, dir)
	if !strings.Contains(first["a"], "acl") {
		t.Fatal(first)
	}
	tracker, before := undoable(t, changes.Config{Root: dir})
	for _, after := range []string{"rm a\nrm d", "chmod a 700\nwrite d/b 1"} {
		do(t, dir, after)
		if r := restore(t, tracker, before, changes.RestoreOptions{}); refusals(r) != "" {
			t.Errorf("refused %s", refusals(r))
		}
		if d := different(first, image(t, dir)); d != "" {
			t.Error(d)
		}
	}
}
