//go:build integration

package integration

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// noProxy is what a program sees that knows no proxy.
const noProxy = "unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; "

// namedSandbox is a sandbox whose policy allows target.example, which is a target of its own, by rules.
func namedSandbox(t *testing.T, spec sandbox.Spec, rules ...string) (*docker.Host, *sandbox.Sandbox, string) {
	t.Helper()
	h, state := policyHost(t)
	addr := target(t)
	spec.Policy = allow(t, egress.ModeAllowlist, rules...)
	spec.Private = []netip.Prefix{netip.MustParsePrefix(dockerCLI(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge"))}
	s := create(t, h, spec)
	nameHosts(t, egressProxies(t, state)[0], map[string]string{"target.example": addr})
	return h, s, addr
}

// TestDockerNetworkNames: programs that know no proxy reach what the policy allows, at the ports that
// it names at that time, and are told what it refuses.
func TestDockerNetworkNames(t *testing.T) {
	t.Parallel()
	h, s, _ := namedSandbox(t, sandbox.Spec{Image: image(t, busyboxImage)}, "target.example:80")
	expect := func(command, want string, wantCode int) {
		t.Helper()
		if got, code := run(t, s, noProxy+command+" 2>&1"); code != wantCode || !strings.Contains(got, want) {
			t.Errorf("%s: exit code %d, %s, want %d, %q", command, code, got, wantCode, want)
		}
	}
	expect("cat /etc/resolv.conf", "nameserver 127.0.0.1", 0)
	expect("grep -c nameserver /etc/resolv.conf; grep search /etc/resolv.conf", "1", 1)
	expect("wget -q -O - http://target.example/", "welcome", 0)
	expect("wget -q -O - http://TARGET.example:80/", "welcome", 0)
	expect("wget -q -O - http://evil.example/", "403 Forbidden", 1)
	expect("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 20 evil.example 80", "Blocked by this sandbox's network policy: evil.example:80 (not in the allow list)", 0)
	expect("nc -w 20 evil.example 22 </dev/null; echo ended", "ended", 0)
	expect("nslookup target.example", "Address: 127.", 0)
	expect("nslookup localhost 127.0.0.1", "Address: 127.0.0.1", 0)
	expect("nslookup $(hostname)", "127.0.0.1", 0)
	expect("nslookup nothing", "NXDOMAIN", 1)

	expect("echo hello | nc -w 2 target.example 7", "refused", 1) // no rule names it
	if _, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error {
		n.Policy.Allow = allow(t, egress.ModeAllowlist, "target.example:7").Allow
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	expect("echo hello | nc -w 20 target.example 7", "hello", 0)
	expect("wget -q -O - http://target.example/", "403 Forbidden", 1)

	// The price, which is documented.
	expect("httpd -p 80 -h /", "Address", 1)
	expect("httpd -p 127.0.0.1:80 -h /etc", "", 0)
	expect("wget -q -O - http://127.0.0.1/resolv.conf", "nameserver", 0)
	key := keyOf(t, s)
	c, err := agent.Client(s.Dial, key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	forwarded, err := c.DialPort(t.Context(), 80)
	if err != nil {
		t.Fatalf("a port of the agent's beside that of a name cannot be forwarded: %v", err)
	}
	_, _ = io.WriteString(forwarded, "GET /resolv.conf HTTP/1.0\r\n\r\n")
	if got, _ := io.ReadAll(forwarded); !strings.Contains(string(got), "nameserver") {
		t.Errorf("the forwarded port: %s", got)
	}
	forwarded.Close()

	state, err := c.Network(t.Context())
	if err != nil || !state.Names || state.NamesProblem != "" {
		t.Errorf("the state: %+v, %v", state, err)
	}
	found := false
	for _, d := range state.Denied {
		found = found || d.Host == "evil.example" && d.Port == 80 && d.Process == "wget"
	}
	if !found {
		t.Errorf("no denial is known to be of wget: %+v", state.Denied)
	}
	if n, err := h.Network(t.Context(), s); err != nil || n.Names != "on" {
		t.Errorf("Network: %+v, %v", n, err)
	}
	if err := errors.Join(h.Stop(t.Context(), s, 0), h.Start(t.Context(), s)); err != nil {
		t.Fatal(err)
	}
	expect("echo hello | nc -w 20 target.example 7", "hello", 0)
}

// TestDockerNetworkNamesOff: without names a program needs the proxy, and the ports are the agent's.
func TestDockerNetworkNamesOff(t *testing.T) {
	t.Parallel()
	h, s, _ := namedSandbox(t, sandbox.Spec{Image: image(t, busyboxImage), NoNames: true}, "target.example")
	if got, code := run(t, s, "("+noProxy+"wget -q -O - http://target.example/) 2>&1"); code == 0 || !strings.Contains(got, "bad address") {
		t.Errorf("without a proxy: exit code %d, %s", code, got)
	}
	if got, code := run(t, s, "wget -q -O - http://target.example/ 2>&1"); code != 0 || !strings.Contains(got, "welcome") {
		t.Errorf("by the proxy: exit code %d, %s", code, got)
	}
	if got, code := run(t, s, "httpd -p 80 -h / && httpd -p 53 -h / 2>&1"); code != 0 {
		t.Errorf("the ports are taken: %s", got)
	}
	if n, err := h.Network(t.Context(), s); err != nil || n.Names != "off" {
		t.Errorf("Network: %+v, %v", n, err)
	}
}

// TestDockerNetworkNamesPool: warm sandboxes resolve names for the policy of their claimer.
func TestDockerNetworkNamesPool(t *testing.T) {
	t.Parallel()
	h, state := policyHost(t)
	addr := target(t)
	subnet := netip.MustParsePrefix(dockerCLI(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge"))
	warm := sandbox.Spec{Image: image(t, busyboxImage), Policy: &egress.Policy{Mode: egress.ModeNoNetwork}}
	if err := h.Warm(t.Context(), "names", warm); err != nil {
		t.Fatal(err)
	}
	all, err := h.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("List: %v, %v", all, err)
	}
	t.Cleanup(func() { _ = h.Delete(context.WithoutCancel(t.Context()), all[0]) })
	nameHosts(t, egressProxies(t, state)[0], map[string]string{"target.example": addr})
	s, claimed, err := h.Claim(t.Context(), sandbox.Spec{Image: warm.Image, Policy: allow(t, egress.ModeAllowlist, "target.example:7"), Private: []netip.Prefix{subnet}}, all)
	if err != nil || !claimed {
		t.Fatalf("Claim: %v, %v", claimed, err)
	}
	if got, code := run(t, s, noProxy+"echo hello | nc -w 20 target.example 7 2>&1"); code != 0 || !strings.Contains(got, "hello") {
		t.Errorf("exit code %d, %s", code, got)
	}
}

// TestDockerNetworkNamesAttacks: neither the agent nor root of a sandbox takes the resolver's place,
// and floods and wrong packets leave it as it was.
func TestDockerNetworkNamesAttacks(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"root", "agent"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			h, s, addr := namedSandbox(t, sandbox.Spec{Image: image(t, busyboxImage), User: user}, "target.example")
			fails := func(command, want string) {
				t.Helper()
				if got, code := run(t, s, noProxy+command+" 2>&1"); code == 0 || !strings.Contains(got, want) {
					t.Errorf("%s: exit code %d, %s, want %q", command, code, got, want)
				}
			}
			fails("httpd -f -p 127.0.0.1:53 -h /", "Address")
			fails("nc -l -p 53", "Address")
			fails("wget -q -O - http://"+addr+"/", "unreachable") // no name for it
			fails("wget -q -O - http://127.64.0.1/", "refused")
			fails("nslookup 'a b.example'", "")
			fails("nslookup $(printf 'a\\033b.example')", "")
			fails("nslookup 0x7f.1", "")
			if got, code := run(t, s, noProxy+`
				head -c 3000 /dev/urandom | nc -u -w 1 127.0.0.1 53
				printf '\000\007\001\000\000\001\000\000\000\000\000\000\300\014\000\001\000\001' | nc -u -w 1 127.0.0.1 53 | head -c 12 >/dev/null
				for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (printf '\377\377'; sleep 3) | nc -w 3 127.0.0.1 53 & done
				i=0; while [ $i -lt 300 ]; do i=$((i+1)); nslookup n$i.example >/dev/null 2>&1; done
				wait; echo done`); code != 0 || !strings.Contains(got, "done") {
				t.Fatalf("the floods: exit code %d, %s", code, got)
			}
			if err := h.Stop(t.Context(), s, 0); err != nil { // names of the flood go with the server
				t.Fatal(err)
			}
			if err := h.Start(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			testhelp.Eventually(t, func() bool {
				got, code := run(t, s, noProxy+"wget -q -O - http://target.example/")
				return code == 0 && strings.Contains(got, "welcome")
			}, "a name after the floods")
		})
	}
}
