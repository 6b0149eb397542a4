package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// tree makes files and directories, whose names end in a slash, and returns their root.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if strings.HasSuffix(name, "/") {
			err = errors.Join(err, os.MkdirAll(path, 0o755))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte("x"), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func parent(t *testing.T, path string) files.Named {
	t.Helper()
	n, err := files.Parent(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestRemoval(t *testing.T) {
	t.Parallel()
	root := tree(t, "d/a/b/c/", "d/a/b/x", "d/e/", "d/f", "kept/x")
	if err := errors.Join(os.Symlink("../kept", root+"/d/link"), os.Symlink("../../kept", root+"/d/a/link"), unix.Mkfifo(root+"/d/fifo", 0o600)); err != nil {
		t.Fatal(err)
	}
	var r files.Removal
	if err := r.Remove(parent(t, root+"/d/")); err != nil {
		t.Fatal(err)
	}
	if exists(root+"/d") || !exists(root+"/kept/x") || r.Removed != 10 {
		t.Errorf("%d names were removed", r.Removed)
	}
	if err := r.Remove(parent(t, root+"/d")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("again: got %v", err)
	}
}

// A tree of any depth takes few descriptors.
func TestRemovalOfADeepTree(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const depth = 1900 // the paths of descriptors have at most 4,095 bytes
	at, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		var next int
		if err = unix.Mkdirat(at, "d", 0o700); err == nil {
			next, err = unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		_ = unix.Close(at)
		at = next
	}
	_ = unix.Close(at)
	most := 0
	r := files.Removal{Ended: func() error { // of this tree alone: other tests run beside this one
		open, err := os.ReadDir("/proc/self/fd")
		n := 0
		for _, fd := range open {
			if path, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(path, root) {
				n++
			}
		}
		most = max(most, n)
		return err
	}}
	if err := r.Remove(parent(t, root+"/d")); err != nil || r.Removed != depth {
		t.Errorf("%d removed, %v", r.Removed, err)
	}
	if most < 1 || most > 4 {
		t.Errorf("%d descriptors of the tree were open", most)
	}
}

// At every step of a removal an agent puts a link in the place of a directory, or moves it: what
// is elsewhere stays.
func TestRemovalAttacked(t *testing.T) {
	t.Parallel()
	attacks := map[string]func(root string) error{
		"a link to a directory": func(root string) error {
			return errors.Join(os.Rename(root+"/d/a", root+"/away"), os.Symlink(root+"/kept", root+"/d/a"))
		},
		"a link above": func(root string) error {
			return errors.Join(os.Rename(root+"/d", root+"/away"), os.Symlink(root+"/kept", root+"/d"))
		},
		"a directory moved out": func(root string) error { return os.Rename(root+"/d/a/b", root+"/kept/b") },
		"another directory put in": func(root string) error {
			return errors.Join(os.Rename(root+"/d/a", root+"/away"), os.Mkdir(root+"/d/a", 0o700))
		},
	}
	for name, attack := range attacks {
		for step := 1; ; step++ {
			root := tree(t, "d/a/b/c/e", "d/a/b/x", "d/a/y", "d/z", "kept/a/b/c/e", "kept/x")
			steps := 0
			r := files.Removal{Ended: func() error {
				if steps++; steps == step {
					_ = attack(root) // fails once that directory was removed
				}
				return nil
			}}
			_ = r.Remove(parent(t, root+"/d"))
			for _, kept := range []string{"kept/a/b/c/e", "kept/x"} {
				if !exists(filepath.Join(root, kept)) {
					t.Fatalf("%s at step %d: %s was removed", name, step, kept)
				}
			}
			if steps < step {
				break // the removal has no more steps
			}
		}
	}
}

func TestRemovalEnds(t *testing.T) {
	t.Parallel()
	root := tree(t, "d/a/b", "d/wd/c")
	over := errors.New("over")
	r := files.Removal{Ended: func() error { return over }}
	if err := r.Remove(parent(t, root+"/d")); !errors.Is(err, over) || r.Removed != 0 || !exists(root+"/d/a/b") {
		t.Errorf("got %v", err)
	}
	protected, err := files.Protect(root + "/d/wd")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{root + "/d", root + "/d/wd", root + "/d/wd/", root} {
		if _, err := parent(t, path).Guard(protected); !errors.Is(err, files.ErrProtected) || files.Code(err) != "path_not_allowed" {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if _, err := parent(t, root+"/d/a").Guard(protected); err != nil {
		t.Error(err)
	}
	r = files.Removal{Protected: protected[1:2]} // moved into the tree meanwhile
	if err := r.Remove(parent(t, root+"/d")); !errors.Is(err, files.ErrProtected) || !exists(root+"/d/wd/c") {
		t.Errorf("got %v", err)
	}
	for _, path := range []string{"/", "//", "/tmp/.", "/tmp/..", ".."} {
		if _, err := files.Parent(path); !errors.Is(err, files.ErrProtected) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestRename(t *testing.T) {
	t.Parallel()
	for name, rename := range map[string]func(from, to files.Named, replace bool) error{
		"": files.Named.Rename,
		"on a file system without RENAME_NOREPLACE": func(from, to files.Named, replace bool) error {
			if replace {
				return from.Rename(to, true)
			}
			return from.RenameBy(to, func(int, string, int, string, uint) error { return unix.EINVAL })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testRename(t, rename)
		})
	}
}

func testRename(t *testing.T, rename func(from, to files.Named, replace bool) error) {
	t.Helper()
	root := tree(t, "a", "b", "d/x", "e/", "f/y")
	if err := os.Symlink("a", root+"/l"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from, to string
		replace  bool
		err      error
	}{
		{"a", "b", false, fs.ErrExist},
		{"d", "b", false, fs.ErrExist},
		{"d", "e", false, fs.ErrExist},
		{"a", "l", false, fs.ErrExist},
		{"l", "m", false, nil},
		{"a", "e", true, unix.EISDIR},
		{"d", "d/z", false, unix.EINVAL},
		{"d", "f", true, unix.ENOTEMPTY},
		{"none", "n", false, fs.ErrNotExist},
		{"a", "b", true, nil},
		{"b", "c", false, nil},
		{"d", "e", true, nil},
		{"f", "e/f", false, nil},
	} {
		err := rename(parent(t, filepath.Join(root, tt.from)), parent(t, filepath.Join(root, tt.to)), tt.replace)
		if !errors.Is(err, tt.err) || tt.err == nil && err != nil {
			t.Errorf("%s to %s: got %v, want %v", tt.from, tt.to, err, tt.err)
		}
	}
	if target, err := os.Readlink(root + "/m"); err != nil || target != "a" || exists(root+"/e/z") || exists(root+"/n") {
		t.Errorf("the link leads to %q, %v, or a name is left", target, err)
	}
	if !exists(root+"/e/f/y") || !exists(root+"/c") || exists(root+"/a") {
		t.Error("the files are not where they were moved")
	}
}

func TestMkdir(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	mode := fs.FileMode(0o777)
	if err := parent(t, root+"/a").Mkdir(&mode); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(root + "/a"); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := parent(t, root+"/a").Mkdir(nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("again: got %v", err)
	}
}
