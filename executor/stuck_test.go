package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// hang mounts a file system that answers nothing, as one of a network does whose
// server is gone. What waits for it is freed with the test.
func hang(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(testhelp.PublicDir(t), "hanging")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	hangAt(t, dir, false)
	return dir
}

// hangAt is hang at a directory. What waits is freed when free is called, too. A dead file system refuses everything.
func hangAt(t *testing.T, dir string, dead bool) (free func()) {
	t.Helper()
	device := mountFUSE(t, dir)
	if dead {
		_ = device.Close()
	}
	free = sync.OnceFunc(func() {
		_ = device.Close()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(free)
	return free
}

// mountFUSE mounts a file system that nobody serves. It refuses everything once the device is closed.
func mountFUSE(t *testing.T, dir string) (device *os.File) {
	t.Helper()
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no FUSE: %v", err)
	}
	err = unix.Mount("hanging", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device.Fd()))
	if err != nil {
		_ = device.Close()
		t.Skipf("nothing can be mounted here: %v", err)
	}
	return device
}

// Whatever hangs in a file system holds up nothing but itself, and the caller that asked
// for it need not wait.
func TestHangingFiles(t *testing.T) {
	t.Setenv("PATH", "/bin-without-a-browser")
	dir := hang(t)
	e, own := start(t, executor.Config{Browser: true, Shell: "/bin/sh"})
	ctx, giveUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, a := range []api.Action{
		api.ReadAction{Path: dir + "/f"},
		api.ReadAction{Path: dir + "/f", ImplSource: "oh_aci"},
		api.WriteAction{Path: dir + "/f", Content: "x"},
		api.EditAction{Path: dir + "/f", Command: "create", ImplSource: "oh_aci", FileText: new("x")},
		api.GrepAction{Path: dir, Pattern: "x"},
		api.ListAction{Path: dir},
		api.BrowseAction{URL: "file://" + dir + "/f"},
	} {
		all.Go(func() {
			if o, err := e.Do(ctx, api.Request{Action: a}); !errors.Is(err, context.Canceled) {
				t.Errorf("%+v: got %+v, %v", a, o, err)
			}
		})
	}
	if o := run(t, e, "", "echo works"); o.Content != "works" {
		t.Errorf("got %+v", o)
	}
	for i := range 20 {
		path := fmt.Sprintf("%s/f%d", own, i)
		if o, err := e.Do(t.Context(), api.Request{Action: api.WriteAction{Path: path, Content: "x"}}); err != nil {
			t.Fatalf("got %+v, %v", o, err)
		}
	}
	giveUp()
	all.Wait()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
