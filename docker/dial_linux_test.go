package docker_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/sandbox"
)

func listen(t *testing.T, path string) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

func TestDialSocket(t *testing.T) {
	t.Parallel()
	me := os.Geteuid()
	for _, tt := range []struct {
		name  string
		put   func(dir, outside string) error // dir/sock; outside is a directory with a socket "engine"
		uid   int
		want  error
		fails bool
	}{
		{"the socket", func(dir, outside string) error { return os.Rename(outside+"/engine", dir+"/sock") }, me, nil, false},
		{"nothing", func(string, string) error { return nil }, me, fs.ErrNotExist, true},
		{"a link to another socket", func(dir, outside string) error { return os.Symlink(outside+"/engine", dir+"/sock") }, me, docker.ErrUnsafeSocket, true},
		{"a file", func(dir, _ string) error { return os.WriteFile(dir+"/sock", nil, 0o600) }, me, docker.ErrUnsafeSocket, true},
		{"a directory", func(dir, _ string) error { return os.Mkdir(dir+"/sock", 0o700) }, me, docker.ErrUnsafeSocket, true},
		{"another user's", func(dir, outside string) error { return os.Rename(outside+"/engine", dir+"/sock") }, me + 1, docker.ErrUnsafeSocket, true},
		{"the directory a link", func(dir, outside string) error {
			if err := os.Rename(outside+"/engine", outside+"/sock"); err != nil {
				return err
			}
			if err := os.Remove(dir); err != nil {
				return err
			}
			return os.Symlink(outside, dir)
		}, me, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			dir, outside := filepath.Join(base, "d"), filepath.Join(base, "o")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(outside, 0o700)); err != nil {
				t.Fatal(err)
			}
			listen(t, outside+"/engine")
			if err := tt.put(dir, outside); err != nil {
				t.Fatal(err)
			}
			conn, err := docker.DialSocket(t.Context(), dir, "sock", tt.uid)
			if conn != nil {
				_ = conn.Close()
			}
			if (err != nil) != tt.fails || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v (an error: %v)", err, tt.want, tt.fails)
			}
		})
	}
}

// TestDialSocketSwap swaps the socket for a link to another one and back, as
// fast as it can, while it is dialled: no connection may reach the other.
func TestDialSocketSwap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var config net.ListenConfig
	engine, err := config.Listen(t.Context(), "unix", dir+"/engine")
	if err != nil {
		t.Fatal(err)
	}
	listen(t, dir+"/real")
	if err := errors.Join(os.Link(dir+"/real", dir+"/sock"), os.Symlink("engine", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			from := dir + "/link"
			if i%2 == 1 {
				from = dir + "/real"
			}
			_ = os.Remove(dir + "/next")
			_ = os.Link(from, dir+"/next") // a link to the link itself, or to the socket
			_ = os.Rename(dir+"/next", dir+"/sock")
		}
	})
	reached := make(chan struct{})
	group.Go(func() {
		if conn, err := engine.Accept(); err == nil {
			_ = conn.Close()
			close(reached)
		}
	})
	connected := 0
	for range 2000 {
		if conn, err := docker.DialSocket(t.Context(), dir, "sock", os.Geteuid()); err == nil {
			connected++
			_ = conn.Close()
		}
	}
	select {
	case <-reached:
		t.Error("a connection reached the other socket")
	default:
	}
	cancel()
	_ = engine.Close()
	group.Wait()
	if connected == 0 {
		t.Error("no connection at all")
	}
}

func TestCheckMounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b, link := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(a, 0o700), os.Mkdir(b, 0o700), os.Symlink("a", link)); err != nil {
		t.Fatal(err)
	}
	swap := func() {
		if err := errors.Join(os.Rename(a, a+".old"), os.Symlink("b", a)); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name           string
		source, target string
		between        func()
		want           error
	}{
		{"as it was", a, a, func() {}, nil},
		{"by a link of the image", a, link, func() {}, nil},
		{"something else", a, b, func() {}, sandbox.ErrInvalid},
		{"a link on the host", link, a, func() {}, sandbox.ErrInvalid},
		{"swapped in between", a, a, swap, sandbox.ErrInvalid}, // the last: it stays so
	} {
		err := docker.CheckMounts([]sandbox.Mount{{Source: tt.source, Target: tt.target}}, os.Getpid(), tt.between)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}
