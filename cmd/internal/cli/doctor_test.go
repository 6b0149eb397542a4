package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
)

// diagnose runs doctor and gives what it found by what it is about.
func diagnose(t *testing.T, env map[string]string, args ...string) (code int, found map[string][]finding) {
	t.Helper()
	args = append([]string{"doctor", "-o", "json", "--state-dir", shortDir(t)}, args...)
	code, stdout, stderr := inProcess(t.Context(), env, args...)
	var report checkup
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%q: %v: %q, %s", args, err, stdout, stderr)
	}
	found = map[string][]finding{}
	for _, f := range report {
		found[f.About] = append(found[f.About], f)
	}
	return code, found
}

func TestDoctor(t *testing.T) {
	server := filepath.Join(programs(t), "server")
	code, found := diagnose(t, nil, "--on=local", "--server", server)
	if code != 0 || found["server"][0].Status != "ok" || found["local"][0].Status != "weaker" || found["sandboxes"][0].Text != "0 are there" {
		t.Errorf("--on=local: exit code %d, %+v", code, found)
	}

	// The engine's library looks at the environment itself.
	gone := "unix://" + filepath.Join(t.TempDir(), "docker.sock")
	t.Setenv("DOCKER_HOST", gone)
	code, found = diagnose(t, map[string]string{"DOCKER_HOST": gone}, "--server", server)
	if got := found["engine"]; code != command.ExitUnavailable || len(got) != 1 || got[0].Status != "missing" ||
		got[0].Text != "there is no Docker engine at DOCKER_HOST="+gone || !strings.Contains(got[0].So, "--on local") {
		t.Errorf("no engine: exit code %d, %+v", code, found)
	}

	code, found = diagnose(t, nil, "--on=local", "--server", "/no/such/server")
	if got := found["server"]; code != command.ExitFailed || got[0].Status != "missing" || !strings.Contains(got[0].So, "no such file") {
		t.Errorf("no server: exit code %d, %+v", code, found)
	}
	code, found = diagnose(t, nil, "--on=local", "--server", "/bin/sh")
	if got := found["server"]; code != command.ExitFailed || !strings.Contains(got[0].So, "build it with CGO_ENABLED=0") {
		t.Errorf("a server that is not static: exit code %d, %+v", code, found)
	}
}

// Of an engine that cannot be reached each command says where it was looked for and what
// to do, in two clauses.
func TestNoEngine(t *testing.T) {
	host := "unix://" + filepath.Join(t.TempDir(), "docker.sock")
	t.Setenv("DOCKER_HOST", host)
	text := "runtimectl: the Docker engine at DOCKER_HOST=" + host + " cannot be reached\nRun 'runtimectl doctor' to see what is missing.\n"
	server := filepath.Join(programs(t), "server")
	for line, want := range map[string]int{
		"ls": 6, "inspect x": 6, "rm x": 6, "exec x true": 125, "cp x:a b": 6, "cat x a": 6, "logs x": 6, "ports x": 6,
		"create --server " + server + " image": 6, "run --server " + server + " image true": 125, "prune": 6, "stats": 6, "events": 6,
	} {
		words := strings.Fields(line)
		args := append([]string{words[0], "--state-dir", shortDir(t)}, words[1:]...)
		if code, stdout, stderr := inProcess(t.Context(), nil, args...); code != want || stdout != "" || stderr != text {
			t.Errorf("%s: exit code %d, %q, %q\nwant %d, %q", line, code, stdout, stderr, want, text)
		}
	}
}
