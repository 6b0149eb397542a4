package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestListenNear(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

func TestReplaceFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "url"), filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(path, "http://localhost:1"); err != nil {
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
	if replaceFile(filepath.Join(dir, "no", "url"), "x") == nil {
		t.Error("a file was made in a directory that is not there")
	}
}
