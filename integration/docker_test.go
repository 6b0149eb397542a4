//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// Images that the tests run in. No registry is asked: they are made here, once
// per machine, and found by their tags afterwards.
const (
	debianImage  = "actiond-test/debian:bookworm"
	busyboxImage = "actiond-test/busybox:1"
	scratchImage = "actiond-test/scratch:1"
	fullImage    = "actiond-test/batteries:1" // of our Dockerfile
	browserImage = "actiond-test/browser:1"   // of our Dockerfile, with Chromium
)

func dockerOutput(args ...string) (string, error) {
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func dockerCLI(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := dockerOutput(args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// imagesMu has a lock for each image that is being made, so that one test makes
// it and others wait.
var imagesMu sync.Map

// image makes the image unless this machine has it.
func image(tb testing.TB, tag string) string {
	tb.Helper()
	mu, _ := imagesMu.LoadOrStore(tag, new(sync.Mutex))
	mu.(*sync.Mutex).Lock()
	defer mu.(*sync.Mutex).Unlock()
	if _, err := dockerOutput("image", "inspect", tag); err == nil && tag != fullImage && tag != browserImage {
		return tag
	}
	var cmd *exec.Cmd
	switch tag {
	case debianImage:
		cmd = exec.Command("make", "-C", "..", "image-base", "BASE="+tag)
	case fullImage: // the engine knows what it built of the same file
		cmd = exec.Command("make", "-C", "..", "image", "BASE="+image(tb, debianImage), "IMAGE="+tag)
	case browserImage: // whose first layers are the other's
		image(tb, fullImage)
		cmd = exec.Command("make", "-C", "..", "image-browser", "BASE="+debianImage, "IMAGE="+tag)
	case busyboxImage:
		cmd = imported(tb, tag, `mkdir -p "$1/bin" "$1/tmp" "$1/etc"; chmod 1777 "$1/tmp"; cp "$(command -v busybox)" "$1/bin/busybox"
			for a in $(busybox --list); do test $a = busybox || ln -s busybox "$1/bin/$a"; done; rm -f "$1/bin/bash"
			echo root:x:0:0:root:/root:/bin/sh >"$1/etc/passwd"
			echo nobody:x:65534:65534:nobody:/:/bin/sh >>"$1/etc/passwd"; echo root:x:0: >"$1/etc/group"`)
	case scratchImage:
		cmd = imported(tb, tag, `cp "$(command -v busybox)" "$1/busybox"`)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("making image %s: %v\n%s", tag, err, out)
	}
	return tag
}

// TestImages makes all of them: CI does so first and by itself, for Debian's
// packages are fetched over a network that may fail.
func TestImages(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{debianImage, busyboxImage, scratchImage, fullImage, browserImage} {
		image(t, tag)
	}
}

// imported is the command that makes an image of what the script puts into "$1".
func imported(tb testing.TB, tag, script string) *exec.Cmd {
	tb.Helper()
	return exec.Command("sh", "-ec", script+`; tar -C "$1" -c . | docker import - "$2" >&2`, "sh", tb.TempDir(), tag)
}

// serverBinary is the path of a server built from this checkout. The file has
// no name any more, so nothing is left of it when the tests end or are killed.
var serverBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("ACTIOND_TEST_SERVER"); path != "" { // a child uses its parent's
		return path, nil
	}
	dir, err := os.MkdirTemp("", "actiond-server-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir+"/server", "../cmd/server")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the server: %w\n%s", err, out)
	}
	if serverFile, err = os.Open(dir + "/server"); err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), serverFile.Fd()), nil
})

var serverFile *os.File // keeps the binary alive

// testHost is a host with a prefix of its own; what it left is an error.
func testHost(tb testing.TB, change ...func(*docker.Config)) *docker.Host {
	tb.Helper()
	binary, err := serverBinary()
	if err != nil {
		tb.Fatal(err)
	}
	config := docker.Config{
		StateDir: tb.TempDir(), Servers: map[string]string{runtime.GOARCH: binary}, Agent: agent.Agent{},
	}
	for _, c := range change {
		c(&config)
	}
	h, err := docker.Open(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx := context.WithoutCancel(tb.Context())
		left, err := h.List(ctx)
		if err != nil {
			tb.Errorf("listing what is left: %v", err)
		}
		for _, s := range left {
			if err := h.Delete(ctx, s); err != nil {
				tb.Errorf("removing what is left: %v", err)
			}
		}
		if err := h.Close(); err != nil {
			tb.Error(err)
		}
		for _, id := range egressProxies(tb, config.StateDir) {
			if out, err := dockerOutput("rm", "-f", id); err != nil {
				tb.Errorf("removing the egress proxy: %v\n%s", err, out)
			}
		}
	})
	return h
}

// egressProxies are the containers of the egress proxy of a state directory: one, or none.
func egressProxies(tb testing.TB, stateDir string) []string {
	tb.Helper()
	controller := testhelp.ReadFile(tb, stateDir+"/controller")
	out, err := dockerOutput("ps", "-aq", "--filter", "label=dev.actiond.managed=egress", "--filter", "label=dev.actiond.controller="+string(controller))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Fields(out)
}

// call makes a request of a server.
func call(ctx context.Context, dial sandbox.DialFunc, key, method, path string, body any) ([]byte, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://sandbox"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Session-API-Key", key)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, err
}

// runIn runs a command and gives the whole observation.
func runIn(ctx context.Context, dial sandbox.DialFunc, key, command string) (map[string]any, error) {
	body, err := call(ctx, dial, key, http.MethodPost, "/execute_action",
		map[string]any{"action": map[string]any{"action": "run", "args": map[string]any{"command": command}}})
	if err != nil {
		return nil, err
	}
	var answer map[string]any
	return answer, json.Unmarshal(body, &answer)
}

func exitCode(answer map[string]any) int {
	extras, _ := answer["extras"].(map[string]any)
	metadata, _ := extras["metadata"].(map[string]any)
	code, ok := metadata["exit_code"].(float64)
	if !ok {
		return -2
	}
	return int(code)
}

// run runs a command in the sandbox and gives its output.
func run(tb testing.TB, s *sandbox.Sandbox, command string) (string, int) {
	tb.Helper()
	key := keyOf(tb, s)
	answer, err := runIn(tb.Context(), s.Dial, key, command)
	if err != nil {
		tb.Fatal(err)
	}
	content, _ := answer["content"].(string)
	return content, exitCode(answer)
}

func create(tb testing.TB, h *docker.Host, spec sandbox.Spec) *sandbox.Sandbox {
	tb.Helper()
	s, err := h.Create(tb.Context(), spec)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func keyOf(tb testing.TB, s *sandbox.Sandbox) string {
	tb.Helper()
	key, err := s.Key()
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func TestDockerCreate(t *testing.T) {
	h := testHost(t)
	start := time.Now()
	s := create(t, h, sandbox.Spec{Image: image(t, debianImage), Name: "first"})
	t.Logf("first creation, server delivered: %v", time.Since(start))
	if got, code := run(t, s, "id -un; echo $PPID"); !strings.HasPrefix(got, "agent\n") || code != 0 {
		t.Errorf("id -un: got %q, exit code %d, want agent", got, code)
	}
	start = time.Now()
	again := create(t, h, sandbox.Spec{Image: debianImage})
	t.Logf("second creation: %v", time.Since(start))
	if again.ID == s.ID {
		t.Errorf("two creations without a key gave one sandbox, %s", s.ID)
	}
	if err := h.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Get(t.Context(), "first"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("after Delete: got %v, %v, want ErrNotFound", got, err)
	}
}
