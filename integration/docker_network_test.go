//go:build integration

package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/drivertest"
)

// policyHost is a host whose sandboxes may have network policies, and its state directory.
func policyHost(t *testing.T) (*docker.Host, string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "policy-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return testHost(t, func(c *docker.Config) { c.StateDir = dir }), dir
}

// target starts a container with a web server at port 80 and an echo at port 7, and returns its address.
func target(t *testing.T) string {
	t.Helper()
	id := dockerCLI(t, "run", "-d", "--name", "actiond-test-target-"+random.Hex(4), image(t, busyboxImage),
		"sh", "-c", "mkdir /www; echo welcome >/www/index.html; httpd -p 80 -h /www; exec nc -ll -p 7 -e cat")
	t.Cleanup(func() {
		if out, err := dockerOutput("rm", "-f", id); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	addr := dockerCLI(t, "inspect", "-f", "{{.NetworkSettings.IPAddress}}", id)
	testhelp.Eventually(t, func() bool {
		for _, port := range []string{"80", "7"} {
			conn, err := net.Dial("tcp", net.JoinHostPort(addr, port))
			if err != nil {
				return false
			}
			conn.Close()
		}
		return true
	}, "the target listens")
	return addr
}

// nameHosts makes a proxy's container know names: there is no DNS that tests could use.
func nameHosts(t *testing.T, proxy string, hosts map[string]string) {
	t.Helper()
	file, err := os.OpenFile(dockerCLI(t, "inspect", "-f", "{{.HostsPath}}", proxy), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, addr := range hosts {
		fmt.Fprintf(file, "%s\t%s\n", addr, name)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// connect asks a sandbox's socket for a target, as root of the sandbox could. It returns the
// connection if it is open, and else the status and the words.
func connect(t *testing.T, socket, to string) (conn net.Conn, status int, words string) {
	t.Helper()
	opened, err := net.Dial("unix", socket)
	if err != nil {
		return nil, 0, err.Error()
	}
	t.Cleanup(func() { opened.Close() })
	fmt.Fprintf(opened, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	answer, err := http.ReadResponse(bufio.NewReaderSize(opened, 16), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, 0, err.Error()
	}
	defer answer.Body.Close() // which is not the connection
	if answer.StatusCode == http.StatusOK {
		return opened, answer.StatusCode, ""
	}
	text, _ := io.ReadAll(answer.Body)
	return nil, answer.StatusCode, string(text)
}

func allow(t *testing.T, mode egress.Mode, rules ...string) *egress.Policy {
	t.Helper()
	return &egress.Policy{Mode: mode, Allow: drivertest.Rules(t, rules...)}
}

// TestDockerNetwork: a policy admits what it names, a change ends what it refuses, and without the
// egress proxy nothing passes.
func TestDockerNetwork(t *testing.T) {
	t.Parallel()
	h, state := policyHost(t)
	addr := target(t)
	neighbors := dockerCLI(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge")
	s := create(t, h, sandbox.Spec{
		Image: image(t, busyboxImage), Policy: allow(t, egress.ModeAllowlist, "target.example", "host.example", "metadata.example"),
		Private: []netip.Prefix{netip.MustParsePrefix(neighbors)},
	})
	socket := filepath.Join(state, "egress/run", s.ID, "s")
	proxies := egressProxies(t, state)
	if len(proxies) != 1 {
		t.Fatalf("there are %d egress proxies", len(proxies))
	}
	proxy := proxies[0]
	gateway := dockerCLI(t, "inspect", "-f", "{{.NetworkSettings.Gateway}}", proxy) // which is this host
	nameHosts(t, proxy, map[string]string{"target.example": addr, "host.example": gateway, "metadata.example": "169.254.169.254"})

	if got, code := run(t, s, "wget -q -O - http://target.example/"); code != 0 || !strings.Contains(got, "welcome") {
		t.Errorf("an allowed host: exit code %d, %s", code, got)
	}
	if got, code := run(t, s, "wget -q -O - http://evil.example/"); code == 0 || !strings.Contains(got, "403") {
		t.Errorf("another host: exit code %d, %s", code, got)
	}
	open, _, words := connect(t, socket, "target.example:7")
	if !testhelp.Echoes(open) {
		t.Fatalf("a connection by hand: %s", words)
	}
	for to, want := range map[string]string{
		"evil.example:443": "(not in the allow list)", addr + ":7": "(not in the allow list)", "host.example:22": "(private address)", "metadata.example:80": "(private address)",
	} {
		if conn, status, words := connect(t, socket, to); conn != nil || status != http.StatusForbidden || !strings.Contains(words, "Blocked by this sandbox's network policy: ") || !strings.Contains(words, want) {
			t.Errorf("%s: %d, %s, want %s", to, status, words, want)
		}
	}
	set := func(p *egress.Policy) {
		t.Helper()
		if n, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy = *p; return nil }); err != nil || !n.Up || n.Open != 0 {
			t.Errorf("SetNetwork: %+v, %v", n, err)
		}
	}
	set(&egress.Policy{Mode: egress.ModeNoNetwork})
	if !testhelp.Ended(open) {
		t.Error("a connection that the new policy refuses is open")
	}
	if _, status, words := connect(t, socket, "target.example:7"); status != http.StatusForbidden || !strings.Contains(words, "mode no-network") {
		t.Errorf("after the change: %d, %s", status, words)
	}
	denied, err := h.Denied(t.Context(), s, 0, 0)
	if err != nil || len(denied) != 7 || denied[0].Host != "evil.example" || denied[6].Reason != "mode no-network" {
		t.Errorf("Denied: %+v, %v", denied, err)
	}

	set(allow(t, egress.ModeAllowlist, addr+":7"))
	open, _, words = connect(t, socket, addr+":7")
	if !testhelp.Echoes(open) {
		t.Fatalf("a connection to the address: %s", words)
	}
	if err := h.Pause(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if !testhelp.Ended(open) {
		t.Error("a connection outlived the pause")
	}
	if err := h.Resume(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	open, _, _ = connect(t, socket, addr+":7")
	if !testhelp.Echoes(open) {
		t.Fatal("no connection after the pause")
	}
	pid, err := strconv.Atoi(dockerCLI(t, "inspect", "-f", "{{.State.Pid}}", proxy))
	if err != nil || pid <= 1 {
		t.Fatalf("the proxy is process %d, %v", pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !testhelp.Ended(open) {
		t.Error("a connection outlived the proxy")
	}
	testhelp.Eventually(t, func() bool { conn, _, _ := connect(t, socket, addr+":7"); return testhelp.Echoes(conn) }, "the engine starts the proxy again")
	dockerCLI(t, "kill", proxy) // which the engine does not undo
	if conn, status, _ := connect(t, socket, addr+":7"); conn != nil || status != 0 {
		t.Errorf("without the proxy: %d", status)
	}
	if n, err := h.Network(t.Context(), s); err != nil || !n.Up {
		t.Errorf("Network: %+v, %v", n, err)
	}
	conn, _, words := connect(t, socket, addr+":7")
	if !testhelp.Echoes(conn) {
		t.Errorf("after Network: %s", words)
	}
	if err := h.Stop(t.Context(), s, 0); err != nil {
		t.Fatal(err)
	}
	dockerCLI(t, "rm", "-f", proxy)
	if err := h.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got, code := run(t, s, "http_proxy=http://127.0.0.1:3128 wget -q -O - http://"+addr+":80/"); code == 0 || !strings.Contains(got, "403") {
		t.Errorf("another port after stop and start: exit code %d, %s", code, got)
	}
	if got, code := run(t, s, "httpd -p 8123 -h /etc; for at in localhost 0.0.0.0 127.0.0.2; do wget -q -O - http://$at:8123/resolv.conf || exit; done"); code != 0 || strings.Count(got, "nameserver") < 3 {
		t.Errorf("a server of the sandbox: exit code %d, %s", code, got)
	}
	if err := h.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"egress/run/" + s.ID, "egress/conf/" + s.ID + ".json", "sandboxes/" + s.ID} {
		if _, err := os.Lstat(filepath.Join(state, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// TestDockerNetworkAttacks: root in a sandbox reaches no network but the socket, and can neither
// remove nor replace that; the agent cannot use it at all.
func TestDockerNetworkAttacks(t *testing.T) {
	t.Parallel()
	h, state := policyHost(t)
	addr := target(t)
	for _, user := range []string{"root", "agent"} {
		s := create(t, h, sandbox.Spec{
			Image: image(t, busyboxImage), User: user, Policy: allow(t, egress.ModePublic), Private: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		})
		for command, want := range map[string]string{
			"unset http_proxy https_proxy all_proxy HTTP_PROXY; wget -q -O - http://" + addr + "/":  "unreachable",
			"nc -w 2 " + addr + " 7 </dev/null":                                                     "unreachable",
			"nc -w 2 fe80::1 7 </dev/null":                                                          "",
			"ping -c 1 -W 1 " + addr:                                                                "",
			"ping6 -c 1 -W 1 2001:4860:4860::8888":                                                  "",
			"nslookup target.example 1.1.1.1":                                                       "",
			"rm -f /run/actiond-egress/s":                                                           "Read-only",
			"mv /run/actiond-egress/s /tmp/s":                                                       "Read-only",
			"ln -s /tmp/other /run/actiond-egress/t":                                                "Read-only",
			"chmod 666 /run/actiond-egress/s":                                                       "Read-only",
			"mount -o remount,rw /run/actiond-egress":                                               "",
			"umount /run/actiond-egress":                                                            "",
			"http_proxy=http://127.0.0.1:3128 wget -q -O - http://169.254.169.254/latest/meta-data": "403",
			"http_proxy=http://127.0.0.1:3128 wget -q -O - http://127.0.0.1:1/":                     "502",
			"http_proxy=http://127.0.0.1:3128 wget -q -O - http://127.0.0.1:3128/":                  "403",
			"grep -v -e '^ *lo:' -e Inter- -e ' face' /proc/net/dev":                                "",
			"grep -v lo$ /proc/net/if_inet6":                                                        "",
			"ls /egress /run/actiond-egress/../actiond-egress/conf":                                 "",
		} {
			got, code := run(t, s, command+" 2>&1")
			if code == 0 || !strings.Contains(got, want) && !(user == "agent" && strings.Contains(got, "ermi")) {
				t.Errorf("as %s: %s: exit code %d, %s, want %q", user, command, code, got, want)
			}
		}
		if info, err := os.Lstat(filepath.Join(state, "egress/run", s.ID, "s")); err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("the socket: %v, %v", info, err)
		}
		if conn, _, words := connect(t, filepath.Join(state, "egress/run", s.ID, "s"), addr+":7"); !testhelp.Echoes(conn) {
			t.Errorf("the socket no longer leads to the proxy: %s", words)
		}
	}
	// The proxy itself has no way back.
	proxy := egressProxies(t, state)[0]
	if got := dockerCLI(t, "inspect", "-f", "{{.HostConfig.Privileged}} {{.HostConfig.CapDrop}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.PortBindings}}", proxy); got != "false [ALL] true map[]" {
		t.Errorf("the proxy's container: %s", got)
	}
	if removed, err := h.Prune(context.WithoutCancel(t.Context()), true); err != nil || len(removed) != 0 {
		t.Errorf("Prune: %v, %v", removed, err)
	}
}

// TestDockerNetworkUpgrade: a later release replaces the egress proxy of an earlier one when it creates a
// sandbox and no connection is open; the policies of others hold on.
func TestDockerNetworkUpgrade(t *testing.T) {
	t.Parallel()
	addr := target(t)
	neighbors := netip.MustParsePrefix(dockerCLI(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge"))
	state := ""
	of := func(version string) *docker.Host {
		return testHost(t, func(c *docker.Config) {
			program := testhelp.ReadFile(t, c.Servers[runtime.GOARCH])
			name := filepath.Join(t.TempDir(), "server") // another one, which does the same
			testhelp.WriteFile(t, name, append(program, version...), 0o700)
			if state == "" {
				var err error
				state, err = os.MkdirTemp("/tmp", "policy-") //nolint:usetesting // a socket's path must be short
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.RemoveAll(state) })
			}
			c.StateDir, c.Version, c.Servers = state, version, map[string]string{runtime.GOARCH: name}
		})
	}
	earlier := of("v0.1.0")
	later := of("v0.2.0")
	made := func(h *docker.Host) (s *sandbox.Sandbox, proxy string) {
		t.Helper()
		s = create(t, h, sandbox.Spec{Image: image(t, busyboxImage), Policy: allow(t, egress.ModeAllowlist, addr+":7"), Private: []netip.Prefix{neighbors}})
		proxies := egressProxies(t, state)
		if len(proxies) != 1 {
			t.Fatalf("there are %d egress proxies", len(proxies))
		}
		return s, proxies[0]
	}
	s, first := made(earlier)
	socket := filepath.Join(state, "egress/run", s.ID, "s")
	open, _, words := connect(t, socket, addr+":7")
	if !testhelp.Echoes(open) {
		t.Fatalf("a connection: %s", words)
	}
	if _, got := made(later); got != first || !testhelp.Echoes(open) {
		t.Error("the proxy was replaced while a connection was open")
	}
	open.Close()
	testhelp.Eventually(t, func() bool { n, err := earlier.Network(t.Context(), s); return err == nil && n.Open == 0 }, "the connection has ended")
	_, second := made(later)
	if got := dockerCLI(t, "inspect", "-f", `{{index .Config.Labels "dev.actiond.version"}}`, second); second == first || got != "v0.2.0" {
		t.Errorf("the proxy was not replaced: it is of %s", got)
	}
	if conn, _, words := connect(t, socket, addr+":7"); !testhelp.Echoes(conn) {
		t.Errorf("the earlier sandbox: %s", words)
	}
	if conn, status, _ := connect(t, socket, addr+":80"); conn != nil || status != http.StatusForbidden {
		t.Errorf("what the earlier sandbox's policy refuses: %d", status)
	}
	if _, got := made(earlier); got != second {
		t.Error("an earlier release replaced the proxy of a later one")
	}
}
