package hostpath_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
