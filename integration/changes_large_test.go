//go:build integration

package integration

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/testhelp"
)

// mounted makes a file system in a file, and mounts it.
func mounted(t *testing.T, mkfs ...string) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 2<<30); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		t.Skipf("%s: %v\n%s", mkfs[0], err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("this machine mounts no image: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil { // which gives the loop device back
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return dir
}

// serve starts a server whose workspace and state lie below a directory, and returns its end.
func serve(t *testing.T, dir string) (c *client.Client, stop func()) {
	t.Helper()
	program, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	cmd := exec.Command(program, "--addr", "unix:"+socket, "--working-dir", filepath.Join(dir, "work"), "--state-dir", filepath.Join(dir, "state"), "--changes", "undo")
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the server ended: %v\n%s", err, &log)
		}
	}
	t.Cleanup(stop)
	if c, err = client.New(client.Config{BaseURL: "unix://" + socket}); err != nil {
		t.Fatal(err)
	}
	kept(t, c)
	return c, stop
}

// kept waits until the present contents are kept, and returns how many cannot be.
func kept(t *testing.T, c *client.Client) int {
	t.Helper()
	var now api.Checkpoint
	testhelp.Eventually(t, func() (ok bool) {
		var err error
		now, err = c.Checkpoint(t.Context(), api.CheckpointRequest{Name: "now"})
		return err == nil && c.RemoveCheckpoint(t.Context(), "now") == nil
	}, "the server keeps no contents")
	return now.Missing
}

// TestLargeFiles: on file systems that clone files, what a command does to a file of 100 MiB is undone, also by the next server, and nothing of it is
// left once the clones have no state. Elsewhere it is refused.
func TestLargeFiles(t *testing.T) {
	t.Parallel()
	for name, mkfs := range map[string][]string{
		"XFS":   {"mkfs.xfs", "-q", "-m", "reflink=1"},
		"Btrfs": {"mkfs.btrfs", "-q"},
		"ext4":  {"mkfs.ext4", "-q"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := mounted(t, mkfs...)
			work := filepath.Join(dir, "work")
			if err := os.Mkdir(work, 0o755); err != nil {
				t.Fatal(err)
			}
			c, stop := serve(t, dir)
			act := func(command string) {
				t.Helper()
				o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: command, Blocking: true}})
				if ran, ok := o.(api.RunObservation); err != nil || !ok || ran.Content != "" {
					t.Fatalf("%s: got %+v (%v)", command, o, err)
				}
				if missing := kept(t, c); missing > 0 && name != "ext4" {
					t.Fatalf("%s: %d files are not kept", command, missing)
				}
			}
			sum := func() string {
				data, err := os.ReadFile(filepath.Join(work, "large"))
				if err != nil {
					return err.Error()
				}
				info, err := os.Stat(filepath.Join(work, "large"))
				if err != nil {
					return err.Error()
				}
				return fmt.Sprintf("%x %d %v %v", sha256.Sum256(data), len(data), info.Mode(), info.ModTime())
			}
			undo := func() (refused []string) {
				t.Helper()
				r, err := c.Restore(t.Context(), api.RestoreRequest{Last: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range r.Refused {
					refused = append(refused, fmt.Sprint(x.Path, ": ", x.Why))
				}
				return refused
			}
			act("head -c 100M /dev/urandom >large; chmod 640 large; touch -d 2001-02-03 large")
			first := sum()
			for i, command := range []string{
				"rm large", "echo overwritten >large", "echo middle | dd of=large bs=1M seek=50 conv=notrunc status=none", "mv large other; chmod 600 other",
			} {
				act(command)
				if i == 2 {
					stop()
					c, stop = serve(t, dir)
				}
				refused := undo()
				switch {
				case name == "ext4" && len(refused) == 0:
					t.Errorf("%s: nothing is refused", command)
				case name == "ext4":
					return
				case len(refused) > 0 || sum() != first:
					t.Fatalf("%s: refused %v, got %s, want %s", command, refused, sum(), first)
				}
			}
			info, err := c.ServerInfo(t.Context())
			if store := info.Changes.Store; err != nil || store.LargeBytes < 200<<20 || store.LargeBound == 0 || store.Bytes > 1<<20 {
				t.Errorf("got %+v (%v)", store, err)
			}
		})
	}
}
