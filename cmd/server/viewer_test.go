package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/testhelp"
)

func TestListenNear(t *testing.T) {
	t.Parallel()
	taken := testhelp.Listen(t)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	for _, addr := range []string{"0.0.0.0:" + strconv.Itoa(port-1), "unix:/run/a.sock"} {
		near, err := listenNear(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		got := near.Addr().(*net.TCPAddr)
		if !got.IP.IsLoopback() || got.Port == port {
			t.Errorf("%s: got %v", addr, got)
		}
		_ = near.Close()
	}
	if near, err := listenNear(t.Context(), "127.0.0.1:65535"); err == nil {
		_ = near.Close()
		t.Error("there is a port above the last one")
	}
}

// A server with a port has the viewer also where nothing is browsed.
func TestViewerWithoutBrowser(t *testing.T) {
	t.Parallel()
	free := testhelp.Listen(t)
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	args := []string{"--addr", "127.0.0.1:" + strconv.Itoa(port), "--working-dir", t.TempDir(), "--no-enable-browser"}
	go func() {
		done <- run(ctx, args, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, io.Discard, t.Output())
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	get := func(port int) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+strconv.Itoa(port)+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return ""
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for get(port) == "" {
		<-look.C
	}
	const others = 20 // ports above that may be taken
	for near := port + 1; near <= port+others; near++ {
		if strings.Contains(get(near), "File viewer server is running") {
			return
		}
	}
	t.Errorf("there is no viewer on the %d ports above %d", others, port)
}

func TestReplaceFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "url"), filepath.Join(dir, "victim")
	testhelp.WriteFile(t, victim, "precious", 0o600)
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(nil, path, "http://localhost:1"); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{path: "http://localhost:1", victim: "precious"} {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", file, got, err, want)
		}
	}
	if names, _ := os.ReadDir(dir); len(names) != 2 {
		t.Errorf("got %d files, want 2", len(names))
	}
	if replaceFile(nil, filepath.Join(dir, "no", "url"), "x") == nil {
		t.Error("a file was made in a directory that is not there")
	}
}
