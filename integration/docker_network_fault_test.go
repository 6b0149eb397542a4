//go:build integration

package integration

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// TestDockerNetworkDiskFull: where the policies have no room, a change fails and the earlier policy stays,
// over a restart of the proxy too, and a creation leaves nothing.
func TestDockerNetworkDiskFull(t *testing.T) {
	t.Parallel()
	h, state := policyHost(t)
	conf := filepath.Join(state, "egress/conf")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", conf, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Skipf("this machine mounts no tmpfs: %v", err)
	}
	t.Cleanup(func() { // before the state directory is removed; the proxy's container has another mount of it
		if err := syscall.Unmount(conf, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	addr := target(t)
	neighbors := netip.MustParsePrefix(dockerCLI(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge"))
	spec := sandbox.Spec{Image: image(t, busyboxImage), Policy: allow(t, egress.ModeAllowlist, addr+":7"), Private: []netip.Prefix{neighbors}}
	s := create(t, h, spec)
	socket := filepath.Join(state, "egress/run", s.ID, "s")
	open, _, words := connect(t, socket, addr+":7")
	if !testhelp.Echoes(open) {
		t.Fatalf("a connection: %s", words)
	}

	filler := filepath.Join(conf, "filler")
	fill(t, filler)
	widen := func() error {
		_, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy = *allow(t, egress.ModePublic); return nil })
		return err
	}
	if err := widen(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a change: %v", err)
	}
	earlier := func(when string) {
		t.Helper()
		if conn, _, words := connect(t, socket, addr+":7"); !testhelp.Echoes(conn) {
			t.Errorf("%s, what the policy admits: %s", when, words)
		}
		if conn, status, _ := connect(t, socket, addr+":80"); conn != nil || status != http.StatusForbidden {
			t.Errorf("%s, what it refuses: %d", when, status)
		}
		if n, err := h.Network(t.Context(), s); err != nil || !n.Up || n.Generation != 1 || n.Policy.Mode != egress.ModeAllowlist {
			t.Errorf("%s: %+v, %v", when, n, err)
		}
	}
	if !testhelp.Echoes(open) {
		t.Error("a connection did not outlive a change that failed")
	}
	earlier("after a change that failed")
	other := spec
	other.Key = "other"
	if got, err := h.Create(t.Context(), other); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a creation: %v, %v", got, err)
	}
	dockerCLI(t, "kill", egressProxies(t, state)[0])
	if conn, status, _ := connect(t, socket, addr+":7"); conn != nil || status != 0 {
		t.Errorf("without the proxy: %d", status)
	}
	// It starts only where the addresses of this host are as before, or can be written.
	if _, err := h.Prune(t.Context(), false); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Prune: %v", err)
	}
	if conn, status, _ := connect(t, socket, addr+":80"); conn != nil || status != 0 && status != http.StatusForbidden {
		t.Errorf("what the policy refuses, after Prune: %d", status)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Prune(t.Context(), false); err != nil {
		t.Errorf("Prune with room again: %v", err)
	}
	earlier("after a restart of the proxy")
	names, err := filepath.Glob(conf + "/*")
	if err != nil || len(names) != 2 { // host.json, and the sandbox's
		t.Errorf("left: %q, %v", names, err)
	}
	if all, err := h.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("List: %v, %v", all, err)
	}
	if err := widen(); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if conn, status, _ := connect(t, socket, addr+":80"); conn == nil {
		t.Errorf("after the change: %d", status)
	}
}

// fill writes a file until its file system is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDockerNetworkKilled: a command that is killed between the file and its application leaves the earlier
// policy or the next one, and the next command the latter. Its way there is shut, not open.
func TestDockerNetworkKilled(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	t.Cleanup(func() {
		for _, id := range egressProxies(t, c.stateDir) {
			dockerCLI(t, "rm", "-f", id)
		}
	})
	addr := target(t)
	neighbors := dockerCLI(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge")
	id := strings.TrimSpace(c.ok("create", "--name", "box", "--allow", addr+":7", "--private", neighbors, image(t, busyboxImage)))
	socket, conf := filepath.Join(c.stateDir, "egress/run", id, "s"), filepath.Join(c.stateDir, "egress/conf", id+".json")
	proxy := egressProxies(t, c.stateDir)[0]
	for _, change := range []struct {
		args          []string
		before, after bool // whether the policies admit the echo
		generation    string
	}{
		{[]string{"--mode", "no-network"}, true, false, `"generation":2,`},
		{[]string{"--mode", "allowlist"}, false, true, `"generation":3,`},
	} {
		opened, _, words := connect(t, socket, addr+":7")
		if testhelp.Echoes(opened) != change.before {
			t.Fatalf("%q: before: %s", change.args, words)
		}
		dockerCLI(t, "pause", proxy) // it applies nothing
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, c.program, append([]string{"network", "--state-dir", c.stateDir, "box"}, change.args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testhelp.Eventually(t, func() bool {
			text, err := os.ReadFile(conf)
			return err == nil && strings.Contains(string(text), change.generation)
		}, "the file is written")
		cancel() // SIGKILL
		if err := cmd.Wait(); err == nil {
			t.Errorf("%q: the command ended before it was killed", change.args)
		}
		dockerCLI(t, "unpause", proxy)
		if conn, status, _ := connect(t, socket, addr+":80"); conn != nil || status != http.StatusForbidden {
			t.Errorf("%q: what both policies refuse: %d", change.args, status)
		}
		if conn, status, words := connect(t, socket, addr+":7"); conn == nil && status != http.StatusForbidden {
			t.Errorf("%q: what one of them admits: %d %s", change.args, status, words)
		}
		c.ok("network", "box")
		if conn, status, words := connect(t, socket, addr+":7"); testhelp.Echoes(conn) != change.after {
			t.Errorf("%q: after the next command: %d %s", change.args, status, words)
		}
		if !change.after && !testhelp.Ended(opened) {
			t.Errorf("%q: a connection that the policy refuses is open", change.args)
		}
		if left, err := filepath.Glob(conf + ".*"); err != nil || len(left) > 0 {
			t.Errorf("%q: left %q, %v", change.args, left, err)
		}
	}
	c.ok("rm", "box")
}
