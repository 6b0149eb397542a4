package files_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestOpenNonBlocking(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.WriteFile(path("file"), []byte("text"), 0o600), syscall.Mkfifo(path("fifo"), 0o600),
		os.Symlink("file", path("link")), os.Symlink("fifo", path("odd link")), os.Symlink("/dev/zero", path("device")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"file": nil, "link": nil,
		"fifo": files.ErrNotRegular, "odd link": files.ErrNotRegular, "device": files.ErrNotRegular, ".": files.ErrNotRegular,
		"none": fs.ErrNotExist,
	} {
		f, err := files.OpenNonBlocking(path(name))
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
		if err != nil {
			continue
		}
		if data, err := io.ReadAll(files.NonBlockingReader(f)); string(data) != "text" || err != nil {
			t.Errorf("%s: got %q, %v", name, data, err)
		}
		_ = f.Close()
	}
}

// TestFileThatWaits must not block: files such as /proc/kmsg say that they are
// regular, and wait for more as this pipe does.
func TestFileThatWaits(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	if _, err := w.WriteString("what there is"); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(files.NonBlockingReader(r)); string(data) != "what there is" || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("got %q, %v, want what there is and EAGAIN", data, err)
	}
}

// Opening a file with a lease would wait 45 seconds for the holder.
func TestLease(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	testhelp.WriteFile(t, path, "", 0o600)
	owner, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Close() }()
	if _, err := unix.FcntlInt(owner.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this file system has no leases: %v", err)
	}
	if _, err := files.OpenNonBlocking(path); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("got %v, want %v", err, unix.EAGAIN)
	}
}

func TestWriteNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo, link, file, target := filepath.Join(dir, "fifo"), filepath.Join(dir, "link"), filepath.Join(dir, "file"), filepath.Join(dir, "target")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink(target, link), files.WriteNew(file, []byte("text"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, link, file} {
		if err := files.WriteNew(path, []byte("secret"), 0o600); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: got %v, want %v", path, err, fs.ErrExist)
		}
	}
	if data, err := os.ReadFile(file); string(data) != "text" {
		t.Errorf("got %q, %v", data, err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link was followed: %v", err)
	}
}

// The bytes in a pipe are read after the deadline, and nothing waits for more.
func TestReadNow(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = w.WriteString("text")
	if err = errors.Join(err, r.SetReadDeadline(time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if _, err := r.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read: got %v, want that the deadline is over", err)
	}
	if n, err := files.ReadNow(r, b); string(b[:n]) != "text" || err != nil {
		t.Errorf("got %q and %v", b[:n], err)
	}
	if _, err := files.ReadNow(r, b); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("an empty pipe: got %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := files.ReadNow(r, b); !errors.Is(err, io.EOF) {
		t.Errorf("a pipe without a writer: got %v", err)
	}
}
