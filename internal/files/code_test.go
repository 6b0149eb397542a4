package files_test

import (
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// Each error has a code, and words that say what is wrong with the path.
func TestCode(t *testing.T) {
	t.Parallel()
	for errno, want := range map[unix.Errno][3]string{
		unix.EBUSY:     {"path_not_allowed", "EBUSY", "it is a mount point, or the system uses it"},
		unix.ENOTEMPTY: {"directory_not_empty", "ENOTEMPTY", "directory not empty"},
		unix.EEXIST:    {"already_exists", "EEXIST", "file exists"},
		unix.EIO:       {"command_failed", "EIO", "input/output error"},
	} {
		err := &fs.PathError{Op: "rename", Path: "/x", Err: errno}
		if got := [3]string{files.Code(err), files.Errno(err), files.Words(errno)}; got != want {
			t.Errorf("%v: got %q, want %q", errno, got, want)
		}
	}
}
