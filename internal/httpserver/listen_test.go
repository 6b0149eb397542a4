package httpserver_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/testhelp"
)

// socketDir is a directory whose name leaves room for a socket's.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "listen-") //nolint:usetesting // t.TempDir is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A socket is its owner's alone; that of a server that was killed is replaced, and neither one
// that is answered nor any other file.
func TestListenSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	l, err := httpserver.Listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info, err)
	}
	if _, err := httpserver.Listen(t.Context(), "unix:"+path); err == nil || !strings.Contains(err.Error(), "another server answers there") {
		t.Errorf("a socket in use: got %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as if its server were killed
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = httpserver.Listen(t.Context(), "unix:"+path); err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	target := path + "-target"
	testhelp.WriteFile(t, target, "mine", 0o600)
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{target, path} {
		if l, err := httpserver.Listen(t.Context(), "unix:"+other); err == nil {
			_ = l.Close()
			t.Errorf("%s was replaced", other)
		}
	}
	if data, err := os.ReadFile(target); string(data) != "mine" {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestListenLongPath(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	long := filepath.Join(dir, strings.Repeat("s", 107-len(dir)-1))
	l, err := httpserver.Listen(t.Context(), "unix:"+long)
	if err != nil {
		t.Fatalf("107 bytes: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := httpserver.Listen(t.Context(), "unix:"+long+"s"); err == nil || !strings.Contains(err.Error(), "at most 107 bytes and this has 108") {
		t.Errorf("108 bytes: got %v", err)
	}
}

func TestIsAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"127.0.0.1:0": true, ":80": true, "[::1]:80": true, "unix:s": true, "unix:": false, "": false, "80": false, "unix": false, "/run/s": false,
	} {
		if got := httpserver.IsAddress(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
