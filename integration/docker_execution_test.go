//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/testhelp"
)

const executionKey = "actiond-test-execution-key-0123456789"

// executionImage makes the image of 'make image-execution', with a program beside ours that only answers /health.
func executionImage(tb testing.TB) string {
	tb.Helper()
	const made, tag = "actiond-test/execution:1", "actiond-test/execution:2"
	dir := tb.TempDir()
	testhelp.WriteFile(tb, filepath.Join(dir, "Dockerfile"), "FROM "+made+"\nCOPY busybox health /bare/\n", 0o644)
	testhelp.WriteFile(tb, filepath.Join(dir, "health"), "OK", 0o644)
	for _, cmd := range []*exec.Cmd{
		exec.Command("make", "-C", "..", "image-execution", "BASE="+image(tb, debianImage), "IMAGE="+image(tb, fullImage), "EXECUTION_IMAGE="+made),
		exec.Command("sh", "-ec", `cp "$(command -v busybox)" "$1/busybox"; docker build -t "$2" "$1"`, "sh", dir, tag),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	return tag
}

// guideImage makes the image of docs/guides/openhands.md, from an image that names no directory.
func guideImage(tb testing.TB) string {
	tb.Helper()
	const tag = "actiond-test/execution-guide:1"
	guide := string(testhelp.ReadFile(tb, "../docs/guides/openhands.md"))
	_, text, _ := strings.Cut(guide, "```dockerfile\n")
	text, _, _ = strings.Cut(text, "```\n")
	binary, err := serverBinary()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	testhelp.WriteFile(tb, filepath.Join(dir, "server"), testhelp.ReadFile(tb, binary), 0o755)
	testhelp.WriteFile(tb, filepath.Join(dir, "Dockerfile"), strings.ReplaceAll(text, "python:3.12", image(tb, debianImage)), 0o644)
	dockerCLI(tb, "build", "-t", tag, dir)
	return tag
}

// freePort is a port of this machine that nothing listens at.
func freePort(tb testing.TB) string {
	tb.Helper()
	listener := testhelp.Listen(tb)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	_ = listener.Close()
	return port
}

// startExecution starts a container as OpenHands does for a conversation, with the program and its arguments, and waits
// until it is healthy. It returns the address, the container and what this took.
func startExecution(tb testing.TB, image string, entrypoint []string, args ...string) (base, container string, took time.Duration) {
	tb.Helper()
	env := filepath.Join(tb.TempDir(), "env")
	testhelp.WriteFile(tb, env, "OH_EXECUTION_ONLY=true\nOH_SESSION_API_KEYS_0="+executionKey+"\n", 0o600)
	port := freePort(tb)
	command := slices.Concat([]string{
		"run", "-d", "--platform", "linux/" + dockerCLI(tb, "version", "-f", "{{.Server.Arch}}"), "--label", "ai.openhands.execution-scope=test", "--cap-drop", "ALL",
		"--security-opt", "no-new-privileges", "--tmpfs", "/workspace:rw,exec,nosuid,nodev,uid=10001,gid=10001,mode=0775",
		"--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777,size=512m", "--pids-limit", "512", "-p", "127.0.0.1:" + port + ":8000", "--env-file", env,
	}, entrypoint, []string{image}, args)
	base = "http://127.0.0.1:" + port
	start := time.Now()
	container = dockerCLI(tb, command...)
	tb.Cleanup(func() {
		if out, err := dockerOutput("rm", "-f", container); err != nil {
			tb.Errorf("%v: %s", err, out)
		}
	})
	testhelp.Eventually(tb, func() bool {
		status, _ := executionGet(tb.Context(), http.MethodGet, base+"/health", "", "")
		return status == http.StatusOK
	}, "the container is healthy")
	return base, container, time.Since(start)
}

// executionGet makes a request; its status is 0 where there is no answer.
func executionGet(ctx context.Context, method, url, key, body string) (status int, answer string) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Session-API-Key", key)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(data)
}

// TestDockerExecution: the image of 'make image-execution', and any that became one as the guide says, is what OpenHands'
// server expects of the container of a conversation, and the key is no command's.
func TestDockerExecution(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(testing.TB) string{"ours": executionImage, "guide": guideImage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkExecution(t, made(t))
		})
	}
}

func checkExecution(t *testing.T, image string) {
	t.Helper()
	base, container, _ := startExecution(t, image, nil, "--host", "0.0.0.0", "--port", "8000")
	for _, tt := range []struct{ command, text, rest string }{
		{"pwd && printf isolated > proof.txt", "/workspace", `"exit_code":0,"pid":-1,"username":"openhands","hostname":"` + container[:12] + `","working_dir":"/workspace"`},
		{"id -u; env | grep -c " + executionKey, `10001\n0`, `"exit_code":1`},
		{"cat /proc/1/environ", "cat: /proc/1/environ: Permission denied", `"exit_code":1`},
		{"cat /proc/[0-9]*/environ 2>/dev/null | grep -ac 'actiond-test-execution-ke[y]'", "0", ""},
		{ // with 512 processes, not all at a time
			"for n in 1 2 3 4 5; do for i in $(seq 200); do (setsid true &); done; while grep -qs '^Name:.true$' /proc/[0-9]*/status; do sleep .01; done; done; grep -s '^State:.Z' /proc/[0-9]*/status | wc -l", "0", "",
		},
	} {
		body, err := json.Marshal(map[string]any{"tool_name": "terminal", "action": map[string]any{"command": tt.command, "timeout": 60}})
		if err != nil {
			t.Fatal(err)
		}
		status, answer := executionGet(t.Context(), http.MethodPost, base+"/api/execution/tools", executionKey, string(body))
		if status != 200 || !strings.Contains(answer, `"text":"`+tt.text+`"`) || !strings.Contains(answer, tt.rest) {
			t.Errorf("%s: %d %s, want %s and %s", tt.command, status, answer, tt.text, tt.rest)
		}
	}
	if got := dockerCLI(t, "exec", container, "cat", "/workspace/proof.txt"); got != "isolated" {
		t.Errorf("the file has %q", got)
	}
	for _, tt := range []struct {
		method, path, key, body string
		status                  int
	}{
		{http.MethodPost, "/api/execution/tools", executionKey, `{"tool_name":"task_tracker","action":{"command":"view"}}`, 422},
		{http.MethodPost, "/api/execution/tools", "", `{"tool_name":"terminal","action":{"command":"id"}}`, 403},
		{http.MethodGet, "/api/conversations/search", executionKey, "", 404},
	} {
		if status, answer := executionGet(t.Context(), tt.method, base+tt.path, tt.key, tt.body); status != tt.status {
			t.Errorf("%s %s: %d %s, want %d", tt.path, tt.body, status, answer, tt.status)
		}
	}
	if _, answer := executionGet(t.Context(), http.MethodGet, base+"/v1/changes", executionKey, ""); !strings.Contains(answer, `{"op":"created","path":"proof.txt"}`) {
		t.Errorf("the changes: %s", answer)
	}
	if log := dockerCLI(t, "logs", container); strings.Contains(log, "level=WARN") || !strings.Contains(log, "msg=serving") {
		t.Errorf("the log: %s", log)
	}
}

// BenchmarkDockerExecution measures from 'docker run' to the first 200 of /health, in turn with the same image where a
// static program does nothing but answer it.
func BenchmarkDockerExecution(b *testing.B) {
	image := executionImage(b)
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, command := range map[string][]string{"ours": {"--host", "0.0.0.0", "--port", "8000"}, "bare": {"httpd", "-f", "-p", "8000", "-h", "/bare"}} {
			var entrypoint []string
			if name == "bare" {
				entrypoint = []string{"--entrypoint", "/bare/busybox"}
			}
			_, container, time := startExecution(b, image, entrypoint, command...)
			took[name] = append(took[name], time)
			if out, err := dockerOutput("kill", container); err != nil {
				b.Fatal(out, err)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of two containers
	for name, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-p50-ms")
	}
	b.ReportMetric(float64(took["ours"][b.N/2])/float64(took["bare"][b.N/2]), "ours/bare")
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		b.Logf("load %s", load)
	}
}
