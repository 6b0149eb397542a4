//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// ownEngine is a Docker engine of a test's own, which can be killed without
// harm to anybody. It has no network, and its network namespace is its own: an
// engine that is started without a bridge removes docker0.
type ownEngine struct {
	dir     string
	address string
	args    []string
	cmd     *exec.Cmd
}

// newEngine starts an engine that has no images.
func newEngine(t *testing.T, options map[string]any) *ownEngine {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "actiond-engine-") //nolint:usetesting // sockets want a short path
	if err != nil {
		t.Fatal(err)
	}
	driver := dockerCLI(t, "info", "-f", "{{.Driver}}") // what works for the machine's engine
	config, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	file, address := filepath.Join(dir, "daemon.json"), "unix://"+filepath.Join(dir, "sock")
	testhelp.WriteFile(t, file, config, 0o600)
	e := &ownEngine{dir: dir, address: address, args: []string{
		"--net", "dockerd", "--config-file", file, "--storage-driver", driver, "--data-root", filepath.Join(dir, "data"),
		"--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"), "--host", address,
		"--bridge=none", "--iptables=false", "--ip6tables=false",
	}}
	t.Cleanup(func() { e.remove(t) })
	e.start(t)
	return e
}

// start starts the engine and waits until it answers.
func (e *ownEngine) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.cmd = exec.Command("unshare", e.args...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	cmd := e.cmd
	go func() { ended <- cmd.Wait() }()
	testhelp.Eventually(t, func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the engine ended: %v\n%s", err, e.log())
		default:
		}
		_, err := e.docker("version")
		return err == nil
	}, "the engine of %s answers", e.dir)
}

func (e *ownEngine) log() string {
	data, _ := os.ReadFile(filepath.Join(e.dir, "log"))
	return string(data[max(0, len(data)-2000):])
}

func (e *ownEngine) docker(args ...string) (string, error) {
	return dockerOutput(append([]string{"--host", e.address}, args...)...)
}

// stop ends the engine by a signal and waits until it is gone, its containerd
// too: an engine that is killed takes that along, and one that starts before it
// is gone waits for it in vain.
func (e *ownEngine) stop(t *testing.T, signal syscall.Signal) {
	t.Helper()
	containerd := e.containerd()
	if err := e.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if signal == syscall.SIGKILL && containerd > 0 {
		_ = syscall.Kill(containerd, syscall.SIGKILL)
	}
	gone := func() bool {
		return e.cmd.Process.Signal(syscall.Signal(0)) != nil && (containerd == 0 || syscall.Kill(containerd, 0) != nil)
	}
	testhelp.Eventually(t, gone, "the engine of %s ends", e.dir)
}

// containerd is the id of the engine's containerd, 0 if it has none.
func (e *ownEngine) containerd() int {
	data, _ := os.ReadFile(filepath.Join(e.dir, "exec", "containerd", "containerd.pid"))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

// remove ends the engine with everything that it started.
func (e *ownEngine) remove(t *testing.T) {
	t.Helper()
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	for deadline := time.Now().Add(time.Minute); e.cmd.Process.Signal(syscall.Signal(0)) == nil && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	_ = e.cmd.Process.Kill()
	// An engine that was killed leaves its containerd.
	if pid := e.containerd(); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, e.dir+"/") {
			_ = syscall.Unmount(at, syscall.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		t.Error(err)
	}
}

// load gives the engine an image of this machine's.
func (e *ownEngine) load(t *testing.T, tag string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `docker save "$1" | docker --host "$2" load`, "sh", image(t, tag), e.address)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("loading %s: %v\n%s", tag, err, out)
	}
}

// TestDockerEngineRestart kills the engine, or asks it to end, while a sandbox
// works, and starts it again.
func TestDockerEngineRestart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		signal      syscall.Signal
		liveRestore bool
		lives       bool // the sandbox, while the engine is away
		after       sandbox.State
	}{
		{"killed, with live restore", syscall.SIGKILL, true, true, sandbox.Ready},
		{"stopped, with live restore", syscall.SIGTERM, true, true, sandbox.Ready},
		{"killed", syscall.SIGKILL, false, true, sandbox.Stopped},
		{"stopped", syscall.SIGTERM, false, false, sandbox.Stopped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			e := newEngine(t, map[string]any{"live-restore": tt.liveRestore})
			e.load(t, busyboxImage)
			h := testHost(t, func(c *docker.Config) { c.Engine = e.address })
			spec := sandbox.Spec{Image: busyboxImage, Network: "none", Key: t.Name()}
			s := create(t, h, spec)
			run(t, s, "lives=same; echo kept > /workspace/file")
			e.stop(t, tt.signal)

			// Nothing is known now, which is not the same as nothing being there.
			if _, err := h.List(ctx); !errors.Is(err, sandbox.ErrUnknown) {
				t.Errorf("List: got %v, want ErrUnknown", err)
			}
			if _, err := h.Get(ctx, s.ID); !errors.Is(err, sandbox.ErrUnknown) {
				t.Errorf("Get: got %v, want ErrUnknown", err)
			}
			if _, err := h.Create(ctx, spec); !errors.Is(err, sandbox.ErrUnknown) {
				t.Errorf("Create: got %v, want ErrUnknown", err)
			}
			if removed, err := h.Prune(ctx, false); !errors.Is(err, sandbox.ErrUnknown) || len(removed) > 0 {
				t.Errorf("Prune: removed %+v, %v, want nothing and ErrUnknown", removed, err)
			}
			if tt.lives {
				if out, _ := run(t, s, "echo $lives"); out != "same" {
					t.Errorf("while the engine is away: got %q, want the same shell", out)
				}
			}

			e.start(t)
			got, err := h.Get(ctx, s.ID)
			if err != nil || got.Instance != s.Instance || got.State != tt.after {
				t.Fatalf("afterwards: got %+v, %v, want the same sandbox, %s", got, err, tt.after)
			}
			if removed, err := h.Prune(ctx, false); err != nil || len(removed) > 0 {
				t.Errorf("Prune afterwards: removed %+v, %v, want nothing", removed, err)
			}
			want := "same kept"
			if tt.after == sandbox.Stopped {
				want = " kept"
			}
			again := create(t, h, spec) // the controller tries again
			if again.Instance != s.Instance {
				t.Errorf("the key gives another sandbox")
			}
			if out, _ := run(t, again, `echo "$lives $(cat /workspace/file)"`); out != want {
				t.Errorf("afterwards: got %q, want %q", out, want)
			}
		})
	}
}

// tmpfs mounts a file system of so many bytes.
func tmpfs(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// runLong runs a command that may be silent for long, and gives its output.
func runLong(t *testing.T, s *sandbox.Sandbox, command string) string {
	t.Helper()
	o, err := clientOf(t, s).Do(t.Context(), api.Request{Action: api.RunAction{Command: command, Blocking: true}})
	if err != nil {
		t.Fatal(err)
	}
	observation, _ := o.(api.RunObservation)
	return observation.Content
}

// TestDockerWorkspaceFull fills the file system that is mounted as workspace.
// A file that cannot be written is an error, and the one before stays as it was.
func TestDockerWorkspaceFull(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	dir := tmpfs(t, 4<<20)
	if err := os.Chown(dir, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), Mounts: []sandbox.Mount{{Source: dir, Target: "/workspace"}}})
	c := clientOf(t, s)
	text := strings.Repeat("a line of the file\n", 50_000) // 950 KB
	if o, err := c.Do(t.Context(), api.Request{Action: api.WriteAction{Path: "/workspace/f", Content: text, End: -1}}); err != nil || o.Kind() != "write" {
		t.Fatalf("got %.200v, %v", o, err)
	}
	before := testhelp.ReadFile(t, filepath.Join(dir, "f"))
	out := runLong(t, s, "dd if=/dev/zero of=fill bs=64k; df . | tail -1")
	if !strings.Contains(out, "No space left") || !strings.Contains(out, "100%") {
		t.Fatalf("filling it: got %q", out)
	}
	for name, action := range map[string]api.Action{
		"write": api.WriteAction{Path: "/workspace/f", Content: text + text, End: -1},
		"edit": api.EditAction{
			Path: "/workspace/f", Command: "insert", ImplSource: "oh_aci", InsertLine: new(api.LineNumber("0")), NewStr: &text, Start: 1, End: -1,
		},
	} {
		o, err := c.Do(t.Context(), api.Request{Action: action})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if said := fmt.Sprintf("%.2000v", o); !strings.Contains(said, "No space left") && !strings.Contains(said, "no space left") {
			t.Errorf("%s: got %.300s, want it to say that there is no space", name, said)
		}
	}
	if _, err := c.Upload(t.Context(), "/workspace", "up", strings.NewReader(text), false); err == nil {
		t.Error("the upload of what there is no space for succeeded")
	}
	if data, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(data) != string(before) {
		t.Errorf("the file has %d bytes, %v, want it as it was", len(data), err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if out, _ := run(t, s, "rm fill; ls"); out != "f" {
		t.Errorf("afterwards: got %q, want f alone", out)
	}
}
