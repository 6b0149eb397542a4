package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestMakeDirs makes what is missing, also behind links, and says what it made.
func TestMakeDirs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, dir string
		made      []string
		err       error
	}{
		{"there", "d", nil, nil},
		{"missing", "d/e/f", []string{"d/e", "d/e/f"}, nil},
		{"a link that leads nowhere", "g", []string{"gone"}, nil},
		{"below it", "g/x/y", []string{"gone", "g/x", "g/x/y"}, nil},
		{"links to links", "chain/x", []string{"d/far", "d/far/gone", "chain/x"}, nil},
		{"an absolute link", "absolute", []string{"there"}, nil},
		{"a link to a directory", "dir/new", []string{"dir/new"}, nil},
		{"a file", "file", nil, syscall.ENOTDIR},
		{"below a file", "file/x", nil, syscall.ENOTDIR},
		{"a circle", "loop/x", nil, syscall.ELOOP},
	} {
		dir := t.TempDir()
		err := errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o700), os.Symlink(filepath.Join(dir, "there"), filepath.Join(dir, "absolute")))
		for link, to := range map[string]string{"g": "gone", "chain": "d/second", "d/second": "far/gone", "dir": "d", "loop": "loop"} {
			err = errors.Join(err, os.Symlink(to, filepath.Join(dir, link)))
		}
		if err != nil {
			t.Fatal(err)
		}
		testhelp.WriteFile(t, filepath.Join(dir, "file"), "", 0o600)
		made, err := files.MakeDirs(filepath.Join(dir, tc.dir))
		for i := range made {
			made[i], _ = filepath.Rel(dir, made[i])
		}
		if !slices.Equal(made, tc.made) || !errors.Is(err, tc.err) {
			t.Errorf("%s: made %q, %v", tc.name, made, err)
		}
		if info, statErr := os.Stat(filepath.Join(dir, tc.dir)); tc.err == nil && (statErr != nil || !info.IsDir()) {
			t.Errorf("%s: %v, %v", tc.name, info, statErr)
		}
	}
}
