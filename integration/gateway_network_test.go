//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/testhelp"
)

// policyGateway is a gateway whose sandboxes may reach containers of this host by their policies, and
// that offers the secret TOKEN.
func policyGateway(t *testing.T) (g *gatewayProcess, args []string) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	testhelp.WriteFile(t, token, "operator-value\n", 0o600)
	t.Cleanup(func() { // after the gateway's own
		if g == nil {
			return // it did not start
		}
		for _, id := range egressProxies(t, g.stateDir) {
			if out, err := dockerOutput("rm", "-f", id); err != nil {
				t.Errorf("removing the egress proxy: %v\n%s", err, out)
			}
		}
	})
	neighbors := dockerCLI(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge")
	args = []string{"--debug", "--private", neighbors, "--secret", "id=TOKEN,src=" + token + ",host=token.example", image(t, busyboxImage)}
	return serveGateway(t, args...), args
}

// network asks for the network of a sandbox, or changes it, and fails the test where that is refused.
func (g *gatewayProcess) network(t *testing.T, method, id, body string) api.SandboxNetwork {
	t.Helper()
	got, answer, err := g.ask(t.Context(), method, "/v1/sandboxes/"+id+"/network", body)
	if err != nil || got != http.StatusOK {
		t.Fatalf("%s %s: %d %s, %v", method, body, got, answer, err)
	}
	var n api.SandboxNetwork
	if err := json.Unmarshal(answer, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestGatewayNetwork: a client changes what a sandbox reaches while it runs, and reads what was denied;
// the value of the operator's secret is in neither answers nor the sandbox.
func TestGatewayNetwork(t *testing.T) {
	t.Parallel()
	addr := target(t)
	g, _ := policyGateway(t)
	status, answer, err := g.ask(t.Context(), http.MethodPost, "/v1/sandboxes", `{"name":"task","network":{"mode":"allowlist","allow":["`+addr+`:7"],"secrets":[{"name":"TOKEN"}]}}`)
	if err != nil || status != http.StatusCreated {
		t.Fatalf("creation: %d %s, %v", status, answer, err)
	}
	var s api.Sandbox
	if err := json.Unmarshal(answer, &s); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(g.stateDir, "egress/run", s.ID, "s")
	open, _, words := connect(t, socket, addr+":7")
	if !testhelp.Echoes(open) {
		t.Fatalf("what the policy admits: %s", words)
	}
	if n := g.network(t, "GET", "task", ""); n.Open != 1 || n.Bytes != 10 || n.Egress != "ok" || len(n.Secrets) != 1 || n.Generation != 1 {
		t.Errorf("the network: %+v", n)
	}
	run := func(command string) string {
		t.Helper()
		body, err := json.Marshal(map[string]any{"action": map[string]any{"action": "run", "args": map[string]any{"command": command}}})
		if err != nil {
			t.Fatal(err)
		}
		status, answer, err := g.ask(t.Context(), http.MethodPost, "/sandboxes/task/v1/actions", string(body))
		if err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", command, status, answer, err)
		}
		return string(answer)
	}
	if got := run("wget -q -O - http://" + addr + "/"); !strings.Contains(got, `"denied":[{"host":"`+addr+`","port":80,"reason":"not in the allow list"`) {
		t.Errorf("another port: %s", got)
	}
	if got := run("env; cat /proc/*/environ"); strings.Contains(got, "operator-value") {
		t.Errorf("the sandbox has the value: %s", got)
	}
	waits := make(chan string, 1)
	go func() {
		_, answer, err := g.ask(t.Context(), http.MethodGet, "/v1/sandboxes/task/network/denied?after=1&wait=60", "")
		waits <- fmt.Sprint(string(answer), err)
	}()
	if n := g.network(t, "PUT", "task", `{"mode":"no-network"}`); n.Open != 0 || n.Generation != 2 {
		t.Errorf("after PUT: %+v", n)
	}
	if !testhelp.Ended(open) {
		t.Error("a connection that the new policy refuses is open")
	}
	if _, status, words := connect(t, socket, addr+":7"); status != http.StatusForbidden || !strings.Contains(words, "mode no-network") {
		t.Errorf("after PUT: %d, %s", status, words)
	}
	if got := <-waits; !strings.Contains(got, `{"denied":[{"number":2,`) || !strings.Contains(got, `"reason":"mode no-network"`) {
		t.Errorf("the wait for denials: %s", got)
	}
	if n := g.network(t, "PATCH", "task", `{"mode":"allowlist","allow_add":["`+addr+`"]}`); n.Generation != 3 {
		t.Errorf("after PATCH: %+v", n)
	}
	if got := run("wget -q -O - http://" + addr + "/"); !strings.Contains(got, "welcome") || strings.Contains(got, `"denied"`) {
		t.Errorf("what the change admits: %s", got)
	}
	g.removed(t, s.ID)
}

// removed removes a sandbox, of which nothing is left.
func (g *gatewayProcess) removed(t *testing.T, id string) {
	t.Helper()
	status, answer, err := g.ask(t.Context(), http.MethodDelete, "/v1/sandboxes/"+id, "")
	if err != nil || status != http.StatusNoContent {
		t.Errorf("DELETE: %d %s, %v", status, answer, err)
	}
	for _, name := range []string{"egress/run/" + id, "egress/conf/" + id + ".json", "sandboxes/" + id} {
		if _, err := os.Lstat(filepath.Join(g.stateDir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// TestGatewayNetworkKilled: a gateway that is killed during changes leaves a policy that one of its
// clients asked for, and no connection that the present one refuses. Killed between the file and the
// application, it leaves the sandbox closed, until the next gateway applies the file.
func TestGatewayNetworkKilled(t *testing.T) {
	t.Parallel()
	addr := target(t)
	g, args := policyGateway(t)
	opened, closed := `{"mode":"allowlist","allow":["`+addr+`:7"]}`, `{"mode":"no-network"}`
	status, answer, err := g.ask(t.Context(), http.MethodPost, "/v1/sandboxes", `{"network":`+opened+`}`)
	if err != nil || status != http.StatusCreated {
		t.Fatalf("creation: %d %s, %v", status, answer, err)
	}
	var s api.Sandbox
	if err := json.Unmarshal(answer, &s); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(g.stateDir, "egress/run", s.ID, "s")
	reaches := func() bool { conn, _, _ := connect(t, socket, addr+":7"); return testhelp.Echoes(conn) }

	// Clients change the policy to and fro. The gateway is killed after some of the changes.
	for _, changes := range []int64{1, 2, 5} {
		first := g.network(t, "GET", s.ID, "").Generation
		var clients sync.WaitGroup
		for _, body := range []string{opened, closed} {
			clients.Go(func() {
				for {
					if _, _, err := g.ask(t.Context(), http.MethodPut, "/v1/sandboxes/"+s.ID+"/network", body); err != nil {
						return
					}
				}
			})
		}
		testhelp.Eventually(t, func() bool { return generation(t, g.stateDir, s.ID) >= first+changes }, "%d changes", changes)
		g.signal(syscall.SIGKILL)
		clients.Wait()
		g.start(args...)
		n := g.network(t, "GET", s.ID, "")
		if n.Egress != "ok" || n.Generation != generation(t, g.stateDir, s.ID) || reaches() != (n.Mode == "allowlist") {
			t.Errorf("after %d changes: %+v, reached: %v", changes, n, reaches())
		}
	}

	// The egress proxy is down and cannot be started while the test has its lock.
	g.network(t, "PUT", s.ID, opened)
	root, err := os.OpenRoot(g.stateDir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	unlock, err := filelock.Lock(t.Context(), root, "locks/egress")
	if err != nil {
		t.Fatal(err)
	}
	unlock = sync.OnceFunc(unlock)
	defer unlock()
	open, _, words := connect(t, socket, addr+":7")
	if !testhelp.Echoes(open) {
		t.Fatalf("before the crash: %s", words)
	}
	proxy := egressProxies(t, g.stateDir)[0]
	dockerCLI(t, "kill", proxy)
	if !testhelp.Ended(open) {
		t.Error("a connection outlived the proxy")
	}
	before := generation(t, g.stateDir, s.ID)
	answered := make(chan error, 1)
	go func() {
		_, _, err := g.ask(t.Context(), http.MethodPut, "/v1/sandboxes/"+s.ID+"/network", closed)
		answered <- err
	}()
	testhelp.Eventually(t, func() bool { return generation(t, g.stateDir, s.ID) > before }, "the change is stored")
	g.signal(syscall.SIGKILL)
	if err := <-answered; err == nil {
		t.Error("the change was answered before it was applied")
	}
	if _, err := net.DialTimeout("unix", socket, time.Minute); err == nil {
		t.Error("the sandbox is not closed")
	}
	unlock()
	g.start(args...)
	// The first tick of the gateway starts the proxy.
	testhelp.Eventually(t, func() bool { _, status, _ := connect(t, socket, addr+":7"); return status == http.StatusForbidden }, "the proxy is started, with the stored policy")
	if n := g.network(t, "GET", s.ID, ""); n.Mode != "no-network" || n.Egress != "ok" {
		t.Errorf("after the crash: %+v", n)
	}
	g.network(t, "PUT", s.ID, opened)
	if !reaches() {
		t.Error("what the last change admits is not reached")
	}
	g.removed(t, s.ID)
	if left, err := filepath.Glob(filepath.Join(g.stateDir, "egress/*", s.ID+"*")); err != nil || len(left) > 0 { // halves of files, too
		t.Errorf("left: %q, %v", left, err)
	}
}

// generation is that of the stored policy of a sandbox.
func generation(t *testing.T, state, id string) int64 {
	t.Helper()
	data := testhelp.ReadFile(t, filepath.Join(state, "egress/conf", id+".json"))
	var conf struct {
		Generation int64 `json:"generation"`
	}
	if err := json.Unmarshal(data, &conf); err != nil {
		t.Fatal(err)
	}
	return conf.Generation
}
