package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/local"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
	"github.com/actiond/actiond/sandbox/drivertest"
)

func TestDriver(t *testing.T) {
	t.Parallel()
	server := drivertest.BuildServer(t)
	drivertest.Suite{Open: func(t *testing.T) sandbox.Driver {
		t.Helper()
		dir, err := os.MkdirTemp("", "local-") //nolint:usetesting // short: sockets are in it
		if err != nil {
			t.Fatal(err)
		}
		d, err := local.Open(local.Config{StateDir: dir, Agent: agent.Agent{}, Server: func() (string, error) { return server, nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			all, err := d.List(context.WithoutCancel(t.Context()))
			for _, s := range all {
				t.Errorf("sandbox %s is left", s.ID)
				_ = d.Delete(context.WithoutCancel(t.Context()), s)
			}
			if err := fmt.Sprint(err, d.Close(), os.RemoveAll(dir)); err != "<nil> <nil> <nil>" {
				t.Error(err)
			}
		})
		return d
	}}.Run(t)
}

// A look at a stopped sandbox, which locks a file of it for a moment, does not make its
// start fail.
func TestStartWhileLooked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := local.Open(local.Config{StateDir: dir, Agent: agent.Agent{}, Server: func() (string, error) { return "/bin/false", nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	id := sandbox.ID("one")
	box := filepath.Join(dir, "local", id)
	if err := os.MkdirAll(filepath.Join(box, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"facts": `{"name": "one", "pid": 2}`, "key": "k", "alive": ""} {
		if err := os.WriteFile(filepath.Join(box, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look, err := os.Open(filepath.Join(box, "alive"))
	if err != nil {
		t.Fatal(err)
	}
	if err := filelock.Flock(look, syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = look.Close() })
	err = d.Start(t.Context(), &sandbox.Sandbox{ID: id})
	if _, ok := errors.AsType[*sandbox.StartError](err); !ok {
		t.Errorf("got %v, want that the program ended", err)
	}
}

// A sandbox whose facts name no process ends none.
func TestStopWithoutProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := local.Open(local.Config{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	id := sandbox.ID("one")
	box := filepath.Join(dir, "local", id)
	if err := os.MkdirAll(box, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(box, "facts"), []byte(`{"name": "one"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := os.Create(filepath.Join(box, "alive"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := filelock.Flock(server, syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context(), &sandbox.Sandbox{ID: id}, time.Hour); err == nil {
		t.Error("Stop did not fail")
	}
}

// What was left in a sandbox keeps no user from removing it.
func TestDeleteReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := local.Open(local.Config{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	id := sandbox.ID("one")
	for i, mode := range []os.FileMode{0o500, 0} {
		closed := filepath.Join(dir, "local", id, "work", fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Join(closed, "in"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(closed, "in", "file"), nil, 0o400); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{filepath.Join(closed, "in"), closed} {
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(name, 0o700) })
		}
	}
	if err := d.Delete(t.Context(), &sandbox.Sandbox{ID: id}); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "local", id)); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
}
