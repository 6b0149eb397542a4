package hostpath_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/hostpath"
)

func TestOpenPrivate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path       string      // in a directory of the test's own
		mode, want fs.FileMode // of the directory dir, before and afterwards
		err        string      // part of it
	}{
		"missing":      {path: "dir/a/b", mode: 0o755, want: 0o755},
		"own":          {path: "dir", mode: 0o777, want: 0o700},
		"shared":       {path: "dir", mode: fs.ModeSticky | 0o777, want: fs.ModeSticky | 0o777, err: "other users share it"},
		"with files":   {path: "full", mode: 0o755, want: 0o755, err: "other users may use file in it"},
		"own files":    {path: "closed", mode: 0o755, want: 0o755},
		"below a file": {path: "file/a", mode: 0o755, want: 0o755, err: "file: not a directory"},
		"a file":       {path: "file", mode: 0o755, want: 0o755, err: "not a directory"},
		"a link":       {path: "link", mode: 0o755, want: 0o755, err: "links are not followed"},
		"a link's end": {path: "link/.", mode: 0o755, want: 0o755, err: "links are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			dir, path := filepath.Join(base, "dir"), base+"/"+tt.path
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, tt.mode), os.Symlink("dir", filepath.Join(base, "link")),
				os.Mkdir(filepath.Join(base, "full"), 0o755), os.WriteFile(filepath.Join(base, "full", "file"), nil, 0o644),
				os.Mkdir(filepath.Join(base, "closed"), 0o755), os.WriteFile(filepath.Join(base, "closed", "file"), nil, 0o600),
				os.WriteFile(filepath.Join(base, "file"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			root, err := hostpath.OpenPrivate(path)
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
			case err != nil:
				t.Error(err)
			default:
				if info, err := root.Stat("."); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("got %v, %v, want mode 0700", info, err)
				}
				_ = root.Close()
			}
			if info, err := os.Stat(dir); err != nil || info.Mode() != tt.want|fs.ModeDir {
				t.Errorf("the directory is %v, %v, want mode %v", info.Mode(), err, tt.want)
			}
		})
	}
	other := "/"
	if os.Geteuid() == 0 {
		other = t.TempDir()
		if err := os.Chown(other, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := hostpath.OpenPrivate(other); err == nil || !strings.Contains(err.Error(), "does not belong to user") {
		t.Errorf("a directory of another user: got %v", err)
	}
}

// The target of a link stays, also where it is in the directory.
func TestRemoveLinks(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(other, "file"), nil, 0o600), os.WriteFile(filepath.Join(dir, "own"), nil, 0o600), os.Symlink(other, filepath.Join(dir, "a")),
		os.Symlink(filepath.Join(other, "file"), filepath.Join(dir, "b")), os.Symlink("own", filepath.Join(dir, "c")), os.Symlink("none", filepath.Join(dir, "d"))); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if got, err := hostpath.RemoveLinks(root, "own", "c", "missing"); err != nil || !slices.Equal(got, []string{"c"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := hostpath.RemoveLinks(root); err != nil || !slices.Equal(got, []string{"a", "b", "d"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(other, "file")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "own" {
		t.Errorf("got %v, %v", left, err)
	}
}
