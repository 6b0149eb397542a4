package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/internal/testhelp"
)

// machineWithGPUs puts a fake engine beside a program that lists two GPUs.
func machineWithGPUs(t *testing.T) {
	t.Helper()
	f := dockertest.New(t)
	f.Rooted = os.Geteuid() == 0 // only root's engine shares sockets
	f.Serve = func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"observation": "run", "content": "", "extras": {"command": "true", "hidden": true, "metadata": {"exit_code": 0}}}`))
		})
	}
	bin := t.TempDir()
	testhelp.WriteFile(t, filepath.Join(bin, "nvidia-smi"), "#!/bin/sh\necho 'GPU 0: Fake (UUID: GPU-a)'\necho 'GPU 1: Fake (UUID: GPU-b)'\n", 0o700)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("DOCKER_HOST", f.Address)
}

// The gateway gives out the GPUs of its flag, and the commands on the host share them with it.
func TestServeGPUs(t *testing.T) {
	machineWithGPUs(t)
	dir := filepath.Join(shortDir(t), "state")
	s := serveHere(t, dir, nil, "--addr", "unix:"+filepath.Join(shortDir(t), "gateway"), "--gpus", "all", "debian")
	ask := func(method, path, body string, status int, has string) {
		t.Helper()
		if got, answer := s.ask(method, path, body); got != status || !strings.Contains(answer, has) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", method, path, body, got, answer, status, has)
		}
	}
	run := func(want int, has string, args ...string) {
		t.Helper()
		args = slices.Concat(args[:1], []string{"--state-dir", dir}, args[1:])
		if slices.Contains(args, "debian") {
			args = slices.Insert(args, 1, "--server", filepath.Join(programs(t), "server"))
		}
		code, stdout, stderr := inProcess(t.Context(), nil, args...)
		if code != want || !strings.Contains(stdout+stderr, has) {
			t.Errorf("%q: exit code %d, %s%s, want %d with %s", args, code, stdout, stderr, want, has)
		}
	}
	ask("POST", "/v1/sandboxes", `{"name":"without"}`, 201, `"idle_limit_seconds":0,"labels"`)
	ask("POST", "/v1/sandboxes", `{"name":"first","gpus":1}`, 201, `"gpus":"device=GPU-a"`)
	run(0, `"gpus": "device=GPU-a"`, "ls", "-o", "json", "--filter", "name=first")
	run(0, "device=GPU-a\n", "ls", "--filter", "name=first", "--format", "{{.GPUs}}")
	run(0, "gpus          device=GPU-a\n", "inspect", "first")
	run(0, "", "create", "--name", "second", "--gpus", "1", "debian")
	run(0, "device=GPU-b\n", "ls", "--filter", "name=second", "--format", "{{.GPUs}}")
	ask("POST", "/v1/sandboxes", `{"gpus":1}`, 429, "GPUs needed: 1, free: 0 of 2; in use are GPU-a by sandbox ")
	run(1, "GPU-b by sandbox ", "create", "--gpus", "device=GPU-b", "debian")
	run(0, "", "stop", "second")
	ask("POST", "/v1/sandboxes", `{"name":"third","gpus":"device=GPU-b"}`, 201, `"gpus":"device=GPU-b"`)
	run(1, "GPU-b by sandbox ", "start", "--server", filepath.Join(programs(t), "server"), "second")
	for _, name := range []string{"first", "third"} {
		ask("DELETE", "/v1/sandboxes/"+name, "", 204, "")
	}
	run(0, "", "rm", "second")
	ask("POST", "/v1/sandboxes", `{"gpus":"all"}`, 201, `"gpus":"device=GPU-a,GPU-b"`)
}

// A number is refused where it is not known which GPUs there are: the engine would give the first ones to every sandbox.
func TestServeGPUsRefused(t *testing.T) {
	machineWithGPUs(t)
	serve := func(want string, args ...string) {
		t.Helper()
		code, stdout, stderr := inProcess(t.Context(), nil, append([]string{
			"serve", "--addr", "127.0.0.1:0", "--state-dir", t.TempDir(), "--server", filepath.Join(programs(t), "server"),
		}, args...)...)
		if code == 0 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %q, %q, want %q", args, code, stdout, stderr, want)
		}
	}
	serve("--gpus 3: there are 2, GPU-a, GPU-b", "--gpus", "3")
	serve("--gpus: invalid specification: GPUs \"first\"", "--gpus", "first")
	serve("--gpus cannot be honoured without an engine", "--gpus", "1", "--on", "local")
	t.Setenv("PATH", t.TempDir())
	serve("no nvidia-smi beside the engine; name them: --gpus UUID,UUID", "--gpus", "1")
}
