package files_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// Both ways of opening refuse the same: links anywhere, "..", and mounts.
func TestOpenBeneath(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a/b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"out": "/etc", "a/up": "..", "a/self": "b", "a/b/file": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(root, "a/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path string
		want []error // one of them
	}{
		{"a", nil},
		{"a/b", nil},
		{"a/fifo", nil}, // and it does not wait
		{"missing", []error{unix.ENOENT}},
		{"out", []error{unix.ELOOP}},
		{"out/ssl", []error{unix.ELOOP, unix.ENOTDIR}},
		{"a/self/x", []error{unix.ELOOP, unix.ENOTDIR}},
		{"a/b/file", []error{unix.ELOOP}},
		{"../" + filepath.Base(root), []error{unix.EXDEV}},
	}
	for _, openat2 := range []bool{true, false} {
		dir := openOnlyPath(t, root)
		for _, test := range tests {
			t.Run(fmt.Sprintf("%t/%s", openat2, test.path), func(t *testing.T) {
				t.Parallel()
				checkBeneath(t, dir, test.path, openat2, test.want)
			})
		}
		t.Run(fmt.Sprintf("%t/mount", openat2), func(t *testing.T) {
			t.Parallel()
			checkBeneath(t, openOnlyPath(t, "/"), "proc/self", openat2, []error{unix.EXDEV, unix.ELOOP})
			checkBeneath(t, openOnlyPath(t, "/"), "proc", openat2, []error{unix.EXDEV})
		})
	}
}

func openOnlyPath(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func checkBeneath(t *testing.T, dir int, path string, openat2 bool, want []error) {
	t.Helper()
	fd, err := files.OpenBeneathBy(dir, path, unix.O_RDONLY, openat2)
	if err == nil {
		_ = unix.Close(fd)
		if fd, err = files.OpenBeneathBy(dir, path, unix.O_PATH, openat2); err == nil {
			_ = unix.Close(fd)
		}
	}
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	if err != nil || want != nil {
		t.Errorf("%s: got %v, want %v", path, err, want)
	}
}

// A path longer than the kernel takes at once is opened in parts.
func TestOpenBeneathLong(t *testing.T) {
	t.Parallel()
	const depth = 200
	name := strings.Repeat("n", 100)
	at := openOnlyPath(t, t.TempDir())
	root := at
	for range depth {
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(next) })
		at = next
	}
	path := strings.TrimSuffix(strings.Repeat(name+"/", depth), "/")
	for _, openat2 := range []bool{true, false} {
		checkBeneath(t, root, path, openat2, nil)
		checkBeneath(t, root, path+"/x", openat2, []error{unix.ENOENT})
	}
}
