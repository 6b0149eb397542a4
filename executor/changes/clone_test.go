package changes_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/testhelp"
)

// clonable is a new directory to track all files of which are large ones, with a store that takes clones of them.
func clonable(t *testing.T) (dir string, cfg changes.Config) {
	t.Helper()
	dir = t.TempDir()
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil || system.Type == unix.TMPFS_MAGIC {
		t.Skip("the times of tmpfs say nothing, so that no file is cloned", err)
	}
	return dir, changes.Config{
		Root: dir, MaxFile: -1,
		Store: openStore(t, store.Config{Dir: filepath.Join(t.TempDir(), "contents"), Clone: testhelp.Cloner(t, t.TempDir())}),
	}
}
