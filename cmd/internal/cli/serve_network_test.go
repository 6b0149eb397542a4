package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/docker/dockertest"
)

// TestServeNetwork: the operator's secrets are for sandboxes whose creator names them, and the private
// ranges for all policies; commands on the host see the same policies as clients do.
func TestServeNetwork(t *testing.T) {
	f := dockertest.New(t)
	f.Rooted = os.Geteuid() == 0 // only root's engine shares sockets
	f.Serve = func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"observation": "run", "content": "", "extras": {"command": "true", "hidden": true, "metadata": {"exit_code": 0}}}`))
		})
	}
	t.Setenv("DOCKER_HOST", f.Address)
	dir := filepath.Join(shortDir(t), "state")
	s := serveHere(t, dir, map[string]string{"TOKEN": "operator-value"}, "--addr", "unix:"+filepath.Join(shortDir(t), "gateway"), "--debug",
		"--no-names", "--private", "10.0.0.0/8", "--secret", "id=GIT,env=TOKEN,host=git.example,format=Basic x:{}", "debian")
	var said strings.Builder
	ask := func(method, path, body string, status int, has string) {
		t.Helper()
		got, answer := s.ask(method, path, body)
		said.WriteString(answer)
		if got != status || !strings.Contains(answer, has) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", method, path, body, got, answer, status, has)
		}
	}
	run := func(want int, has string, args ...string) {
		t.Helper()
		code, stdout, stderr := inProcess(t.Context(), nil, slices.Concat(args[:1], []string{"--state-dir", dir}, args[1:])...)
		said.WriteString(stdout + stderr)
		if code != want || !strings.Contains(stdout+stderr, has) {
			t.Errorf("%q: exit code %d, %s%s, want %d with %s", args, code, stdout, stderr, want, has)
		}
	}
	if !f.Rooted {
		ask("POST", "/v1/sandboxes", `{"network":{"mode":"public"}}`, 422, "network policies cannot be kept here")
		return
	}
	ask("POST", "/v1/sandboxes", `{"name":"box","network":{"mode":"allowlist","allow":["10.1.2.3"],"secrets":[{"name":"GIT"}]}}`, 201, `"id"`)
	ask("GET", "/v1/sandboxes/box/network", "", 200, `"secrets":[{"name":"GIT","hosts":["git.example"],"format":"Basic x:{}"}],"generation":1,"egress":"ok"`)
	run(0, "private       10.0.0.0/8\nsecret        GIT to git.example", "network", "box")
	run(0, "allowed   allow 10.1.2.3", "network", "--check", "10.1.2.3:80", "box")
	run(1, "denied   not in the allow list", "network", "--check", "192.168.0.1:80", "box")
	run(0, "", "network", "--mode", "no-network", "box")
	ask("GET", "/v1/sandboxes/box/network", "", 200, `"mode":"no-network","allow":["10.1.2.3"],"deny":[],"max_bytes":0,"secrets":[{"name":"GIT"`)
	ask("PATCH", "/v1/sandboxes/box/network", `{"mode":"allowlist"}`, 200, `"generation":3,"egress":"ok"`)
	ask("PATCH", "/v1/sandboxes/box/network", `{"secrets":[{"name":"GIT","hosts":["evil.example"]}]}`, 422, "cannot change")
	ask("PUT", "/v1/sandboxes/box/network", `{"mode":"allowlist","secrets":[{"name":"GIT"},{"name":"OWN","hosts":["own.example"],"value":"client-value"}]}`, 200, `"generation":4`)
	ask("PUT", "/v1/sandboxes/box/network", `{"mode":"allowlist","secrets":[{"name":"GIT"},{"name":"OWN","hosts":["own.example"],"value":"client-value"}]}`, 200, `"generation":4`)
	ask("POST", "/v1/sandboxes", `{"name":"plain"}`, 201, `"id"`)
	ask("GET", "/v1/sandboxes/plain/network", "", 409, "without a network policy")
	ask("GET", "/metrics", "", 200, `actiond_gateway_network_changes_total{outcome="unchanged"} 1`)
	names, err := filepath.Glob(filepath.Join(dir, "egress/conf/????????????.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("got %q, %v", names, err)
	}
	conf, err := os.ReadFile(names[0])
	if err != nil || !strings.Contains(string(conf), "operator-value") || !strings.Contains(string(conf), "client-value") || !strings.Contains(string(conf), `"10.0.0.0/8"`) {
		t.Errorf("the file of the egress proxy: %s, %v", conf, err)
	}
	ask("DELETE", "/v1/sandboxes/box", "", 204, "")
	ask("DELETE", "/v1/sandboxes/plain", "", 204, "")
	if names, err := filepath.Glob(filepath.Join(dir, "egress/*/????????????*")); err != nil || len(names) != 0 {
		t.Errorf("left: %q, %v", names, err)
	}
	s.stop()
	said.WriteString(s.said)
	f.Lock()
	for _, c := range f.Containers {
		fmt.Fprintf(&said, "%+v %+v", *c.Config, *c.Host)
	}
	f.Unlock()
	for _, value := range []string{"operator-value", "client-value"} {
		if all := said.String(); strings.Contains(all, value) {
			t.Errorf("%s was said: %.300s", value, all[max(strings.Index(all, value)-100, 0):])
		}
	}
}
