package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/system"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// egressHost is a host with a sandbox that has a policy, and its state directory.
func egressHost(t *testing.T, f *dockertest.Engine) (h *docker.Host, s *sandbox.Sandbox, state string) {
	t.Helper()
	h = fakeHost(t, f, func(c *docker.Config) { state = c.StateDir })
	s = create(t, h, sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModeAllowlist}})
	return h, s, state
}

// proxyOf returns the container of the egress proxy, nil where there is none.
func proxyOf(f *dockertest.Engine) *dockertest.Container {
	f.Lock()
	defer f.Unlock()
	for _, c := range f.Containers {
		if c.Config.Labels["dev.actiond.managed"] == "egress" {
			return c
		}
	}
	return nil
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestEgressContainers: a sandbox with a policy has no network and the socket read-only; the proxy
// has no privilege, and is no sandbox.
func TestEgressContainers(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h, s, state := egressHost(t, f)
	f.Lock()
	box := f.Containers[s.Instance].Host
	f.Unlock()
	if box.NetworkMode != "none" || len(box.PortBindings) != 0 {
		t.Errorf("the sandbox has network %s, ports %v", box.NetworkMode, box.PortBindings)
	}
	if !slices.Equal(box.DNS, []string{"127.0.0.1"}) || !slices.Equal(box.DNSSearch, []string{"."}) {
		t.Errorf("the sandbox has name servers %q, domains %q", box.DNS, box.DNSSearch)
	}
	var bound []string
	for _, m := range box.Mounts {
		if strings.HasPrefix(m.Source, filepath.Join(state, "egress")) {
			bound = append(bound, m.Source+" "+m.Target)
			if !m.ReadOnly {
				t.Errorf("%s can be written to", m.Target)
			}
		}
	}
	if want := []string{filepath.Join(state, "egress/run", s.ID) + " /run/actiond-egress"}; !slices.Equal(bound, want) {
		t.Errorf("mounted %q, want %q", bound, want)
	}
	if got := box.Tmpfs["/run/actiond-tls"]; got != "rw,nosuid,nodev,size=10485760,nr_inodes=64,mode=0755,noexec" {
		t.Errorf("the certificates are in %q", got)
	}
	if !slices.Contains(f.Command(s.Instance), "--start-fifo") {
		t.Error("the server does not wait until the socket's directory was checked")
	}
	proxy := proxyOf(f)
	if proxy == nil {
		t.Fatal("there is no egress proxy")
	}
	host := proxy.Host
	if host.NetworkMode != "bridge" || len(host.PortBindings) != 0 || !host.ReadonlyRootfs || host.Privileged || !slices.Equal(host.CapDrop, []string{"ALL"}) || len(host.CapAdd) != 0 ||
		!slices.Contains(host.SecurityOpt, "no-new-privileges") || host.RestartPolicy.Name != "unless-stopped" || host.Memory != 128<<20 || *host.PidsLimit != 512 ||
		len(host.Ulimits) != 1 || host.Ulimits[0].Hard != 16384 {
		t.Errorf("the proxy's container: %+v", *host)
	}
	if proxy.Config.User != "0:0" || !slices.Equal(proxy.Config.Cmd, []string{"egress", "/egress"}) || !slices.Contains(proxy.Config.Env, "GOMEMLIMIT=96MiB") {
		t.Errorf("the proxy: %+v", *proxy.Config)
	}
	for _, m := range host.Mounts {
		if m.Target != "/egress" && !m.ReadOnly {
			t.Errorf("the proxy can write to %s", m.Target)
		}
	}
	addresses, err := os.ReadFile(filepath.Join(state, "egress/conf/host.json"))
	if err != nil || !strings.Contains(string(addresses), `"172.17.0.1"`) || !strings.Contains(string(addresses), `"127.0.0.1"`) {
		t.Errorf("host.json is %s, %v", addresses, err)
	}
	if all, err := h.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("List: %v, %v", all, err)
	}
	if d, err := h.Inspect(t.Context(), s); err != nil || d.Network != "allowlist" || len(d.Mounts) != 0 || len(d.GainedProtection) != 1 || !strings.Contains(d.GainedProtection[0], "policy") {
		t.Errorf("Inspect: %+v, %v", d, err)
	}
	if removed, err := h.Prune(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("Prune: %v, %v", removed, err)
	}
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Mounts: []sandbox.Mount{{Source: t.TempDir(), Target: "/run/actiond-egress/x"}}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a mount in the place of the socket: %v", err)
	}
}

// TestEgressNames: whether programs connect to names is said by the network, inspect and doctor.
func TestEgressNames(t *testing.T) {
	t.Parallel()
	const problem = "listen udp4 127.0.0.1:53: bind: permission denied"
	for name, tc := range map[string]struct {
		off, problem bool
		want         string
		doctor       string
	}{
		"on":      {false, false, "on", "connect to names (1 of 1"},
		"off":     {true, true, "off", ""},
		"problem": {false, true, problem, "cannot connect to names: " + problem},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := dockertest.New(t)
			agent := &fakeAgent{keys: map[string]string{}}
			if tc.problem {
				agent.status.NamesProblem = problem
			}
			h := fakeHost(t, f, func(c *docker.Config) { c.Agent = agent })
			s := create(t, h, sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModePublic}, NoNames: tc.off})
			f.Lock()
			dns := len(f.Containers[s.Instance].Host.DNS)
			f.Unlock()
			if (dns == 0) != tc.off {
				t.Errorf("%d name servers", dns)
			}
			if n, err := h.Network(t.Context(), s); err != nil || n.Names != tc.want {
				t.Errorf("Network: %+v, %v", n, err)
			}
			if d, err := h.Inspect(t.Context(), s); err != nil || d.Names != tc.want {
				t.Errorf("Inspect: %+v, %v", d, err)
			}
			found, err := h.Examine(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			said := slices.ContainsFunc(found, func(one sandbox.Finding) bool { return tc.doctor != "" && strings.Contains(one.Text, tc.doctor) })
			names := slices.ContainsFunc(found, func(one sandbox.Finding) bool { return strings.Contains(one.Text, "connect to names") })
			if said != (tc.doctor != "") || names != said {
				t.Errorf("Examine: %+v", found)
			}
			if err := h.Stop(t.Context(), s, 0); err != nil {
				t.Fatal(err)
			}
			want := tc.want
			if tc.problem && !tc.off {
				want = "on" // as far as one can say
			}
			if d, err := h.Inspect(t.Context(), s); err != nil || d.Names != want {
				t.Errorf("Inspect of a stopped one: %+v, %v", d, err)
			}
		})
	}
}

// TestEgressFirst: a change is applied before the sandbox's server is asked for what it does about names,
// which an agent may keep busy.
func TestEgressFirst(t *testing.T) {
	t.Parallel()
	state, agent := "", &fakeAgent{keys: map[string]string{}}
	h := fakeHost(t, dockertest.New(t), func(c *docker.Config) { c.Agent, state = agent, c.StateDir })
	s := create(t, h, sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModePublic}})
	var asked []int64
	agent.setAsked(func() { asked = append(asked, generation(t, state, s.ID)) })
	n, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy.Mode = egress.ModeNoNetwork; return nil })
	agent.setAsked(nil)
	if err != nil || !n.Up || !slices.Equal(asked, []int64{n.Generation}) {
		t.Errorf("%+v, %v: the server was asked at the generations %d", n, err, asked)
	}
}

// TestEgressRises: a proxy that ended is started again by what needs it. While it cannot be, a change
// is stored, and the network is closed.
func TestEgressRises(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h, s, state := egressHost(t, f)
	proxy := proxyOf(f)
	for name, use := range map[string]func() error{
		"Network": func() error {
			n, err := h.Network(t.Context(), s)
			if err == nil && !n.Up {
				err = errors.New("it is down")
			}
			return err
		},
		"Prune": func() error { _, err := h.Prune(t.Context(), false); return err },
		"Create": func() error {
			_, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModePublic}})
			return err
		},
		"Start": func() error {
			if err := h.Stop(t.Context(), s, 0); err != nil {
				return err
			}
			return h.Start(t.Context(), s)
		},
	} {
		f.Kill(proxy.Name, false)
		if exists(t, filepath.Join(state, "egress/control")) {
			t.Fatal("the proxy was not killed")
		}
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !exists(t, filepath.Join(state, "egress/control")) {
			t.Errorf("%s did not start the proxy", name)
		}
	}
	f.Kill(proxy.Name, false)
	f.Lock()
	f.Refusals = map[string]error{"start": errors.New("out of memory")}
	f.Unlock()
	n, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy.Mode = egress.ModePublic; return nil })
	if err != nil || n.Up || n.Policy.Mode != egress.ModePublic {
		t.Errorf("a change without the proxy: %+v, %v", n, err)
	}
	if _, err := h.Denied(t.Context(), s, 0, 0); err == nil {
		t.Error("Denied without the proxy does not fail")
	}
	f.Lock()
	f.Refusals = nil
	f.Unlock()
	if n, err := h.Network(t.Context(), s); err != nil || !n.Up || n.Policy.Mode != egress.ModePublic {
		t.Errorf("the stored change: %+v, %v", n, err)
	}
}

// TestEgressLeaves: nothing is left of a sandbox that was removed, of one that could not be created,
// of a policy whose sandbox is gone, and at last of the proxy.
func TestEgressLeaves(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h, s, state := egressHost(t, f)
	conf, run := filepath.Join(state, "egress/conf"), filepath.Join(state, "egress/run")
	left := func() (names []string) {
		for _, dir := range []string{conf, run} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				names = append(names, e.Name())
			}
		}
		return names
	}
	if got := left(); !slices.Contains(got, s.ID+".json") || !slices.Contains(got, s.ID) {
		t.Fatalf("there are %q", got)
	}
	if err := h.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
	f.Lock()
	f.Refusals = map[string]error{"start": errors.New("no")}
	f.Unlock()
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModePublic}}); err == nil {
		t.Error("a container that does not start became a sandbox")
	}
	f.Lock()
	f.Refusals = nil
	f.Unlock()
	if got := left(); !slices.Equal(got, []string{"host.json"}) {
		t.Errorf("left: %q", got)
	}
	orphan := sandbox.ID("orphan")
	if err := errors.Join(os.WriteFile(filepath.Join(conf, orphan+".json"), []byte("torn"), 0o600), os.Mkdir(filepath.Join(run, orphan), 0o700)); err != nil {
		t.Fatal(err)
	}
	prune := func(want ...string) {
		t.Helper()
		for _, dryRun := range []bool{true, false} {
			removed, err := h.Prune(t.Context(), dryRun)
			var ids []string
			for _, r := range removed {
				ids = append(ids, r.ID)
			}
			if err != nil || !slices.Equal(ids, want) {
				t.Errorf("Prune: %v, %v, want %v", ids, err, want)
			}
		}
	}
	proxy := proxyOf(f)
	prune(orphan)
	if got := left(); !slices.Equal(got, []string{"host.json"}) {
		t.Errorf("left: %q", got)
	}
	prune() // it was needed a moment ago
	past := time.Now().Add(-11 * time.Minute)
	if err := os.Chtimes(conf, past, past); err != nil {
		t.Fatal(err)
	}
	prune(proxy.Name)
	if proxyOf(f) != nil {
		t.Error("the proxy is left")
	}
}

// TestEgressRefused: an engine that cannot keep a policy refuses it, and says why.
func TestEgressRefused(t *testing.T) {
	t.Parallel()
	root := system.Info{DefaultRuntime: "runc"}
	for name, tt := range map[string]struct {
		info    system.Info
		socket  bool
		runtime string
		want    string // empty: kept
	}{
		"root":            {root, true, "", ""},
		"no root":         {root, false, "", "sudo"},
		"Docker Desktop":  {system.Info{OperatingSystem: "Docker Desktop"}, false, "", "Docker Desktop"},
		"rootless":        {system.Info{SecurityOptions: []string{"name=rootless"}}, true, "", "rootless"},
		"remapped":        {system.Info{SecurityOptions: []string{"name=userns"}}, true, "", "userns-remap"},
		"gVisor":          {root, true, "runsc", "runtime runsc"},
		"gVisor for all":  {system.Info{DefaultRuntime: "runsc"}, true, "", "runtime runsc"},
		"runc on request": {system.Info{DefaultRuntime: "runsc"}, true, "runc", ""},
	} {
		err := docker.KeepsPolicies(tt.info, tt.socket, tt.runtime)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	h := fakeHost(t, dockertest.New(t), func(c *docker.Config) { c.Transport = "port" })
	if _, err := h.Check(t.Context(), &sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModePublic}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a policy without sockets: got %v", err)
	}
}

// TestEgressCatchesUp: a policy that a controller stored and did not live to apply, is applied by the
// next one that tends the proxy; a file that cannot be read hinders no other.
func TestEgressCatchesUp(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h, s, state := egressHost(t, f)
	torn := create(t, h, sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModePublic}})
	conf := func(id string) string { return filepath.Join(state, "egress/conf", id+".json") }
	testhelp.WriteFile(t, conf(torn.ID), "torn", 0o600)
	testhelp.WriteFile(t, conf(s.ID), `{"generation":2,"policy":{"mode":"no-network"}}`, 0o600)
	if _, err := h.Prune(t.Context(), true); err != nil || generation(t, state, s.ID) != 1 {
		t.Errorf("a dry run: %v, generation %d", err, generation(t, state, s.ID))
	}
	if _, err := h.Prune(t.Context(), false); err == nil || !strings.Contains(err.Error(), torn.ID) || generation(t, state, s.ID) != 2 {
		t.Errorf("Prune: %v, generation %d", err, generation(t, state, s.ID))
	}
}

// TestEgressSame: a change to the same policy, whose secrets come with their values or without, keeps the
// generation, and is applied where that was not done.
func TestEgressSame(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	state := ""
	h := fakeHost(t, f, withRoots(t), func(c *docker.Config) { state = c.StateDir })
	s := create(t, h, sandbox.Spec{Image: "debian", Policy: withSecret(t, hidden)})
	for _, tt := range []struct {
		change     func(p *egress.Policy)
		generation int64
	}{
		{func(*egress.Policy) {}, 1},
		{func(p *egress.Policy) { *p = *withSecret(t, hidden) }, 1},
		{func(p *egress.Policy) { *p = *withSecret(t, hidden+"2") }, 2},
		{func(p *egress.Policy) { p.Mode = egress.ModePublic }, 3},
		{func(p *egress.Policy) { p.Mode = egress.ModePublic }, 3},
	} {
		n, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { tt.change(&n.Policy); return nil })
		if err != nil || !n.Up || n.Generation != tt.generation || generation(t, state, s.ID) != tt.generation {
			t.Errorf("got %+v, %v, want generation %d", n, err, tt.generation)
		}
	}
	conf := confOf(t, state, s.ID)
	conf.Generation++
	data, err := conf.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(state, "egress/conf", s.ID+".json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := h.SetNetwork(t.Context(), s, func(*sandbox.Network) error { return nil }); err != nil || n.Generation != 4 || generation(t, state, s.ID) != 4 {
		t.Errorf("what another controller stored: %+v, %v", n, err)
	}
}

// generation asks the proxy for the generation of the policy that it applies to a sandbox.
func generation(t *testing.T, state, id string) int64 {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(state, "egress/control"))
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://egress/"+id, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var status egress.Status
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	return status.Generation
}

// TestEgressReplaced: the first creation of a later release replaces the egress proxy, whose policies the
// next one has; an earlier one, or one that is no release, leaves it alone.
func TestEgressReplaced(t *testing.T) {
	t.Parallel()
	for version, than := range map[string]string{"v0.2.0": "v0.1.9", "v1.0.0": "v0.10.0", "v0.10.0": "v0.9.0", "v0.1.0": "", "v2.0.0": "(devel)"} {
		if !docker.Later(version, than) || docker.Later(than, version) || docker.Later(version, version) {
			t.Errorf("%s and %s", version, than)
		}
	}
	f := dockertest.New(t)
	h, s, state := egressHost(t, f) // without a version
	create := func(h *docker.Host) string {
		t.Helper()
		create(t, h, sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModePublic}})
		return proxyOf(f).ID
	}
	of := func(version string) *docker.Host {
		return fakeHost(t, f, func(c *docker.Config) {
			c.StateDir, c.Version = state, version
			testhelp.WriteFile(t, c.Servers[runtime.GOARCH], "a program of "+version, 0o700)
		})
	}
	first := proxyOf(f).ID
	if got := create(h); got != first {
		t.Error("the same program replaced the proxy")
	}
	if got := create(of("(devel)")); got != first {
		t.Error("a program that is no release replaced the proxy")
	}
	second := create(of("v0.2.0"))
	if second == first || generation(t, state, s.ID) != 1 {
		t.Errorf("a later release did not replace the proxy, or it does not know sandbox %s", s.ID)
	}
	for _, version := range []string{"v0.1.9", "v0.2.0", ""} {
		if got := create(of(version)); got != second {
			t.Errorf("release %q replaced the proxy of v0.2.0", version)
		}
	}
}
