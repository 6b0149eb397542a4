package docker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

const hidden = "hidden-value-987654321"

// withSecret is a policy with one secret.
func withSecret(t *testing.T, value string) *egress.Policy {
	t.Helper()
	p, err := egress.ParsePolicy(fmt.Appendf(nil, `{"mode":"allowlist","secrets":[{"name":"API","hosts":["api.example"],"var":"API_KEY","value":%q}]}`, value))
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// withRoots has a file with the certificate of an authority.
func withRoots(t *testing.T) func(*docker.Config) {
	t.Helper()
	ca, err := egress.NewCA("world")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "roots.pem")
	testhelp.WriteFile(t, name, ca.Certificate, 0o600)
	return func(c *docker.Config) { c.Roots = name }
}

// confOf reads the file of a sandbox, which only its owner may.
func confOf(t *testing.T, state, id string) egress.Conf {
	t.Helper()
	name := filepath.Join(state, "egress/conf", id+".json")
	data := testhelp.ReadFile(t, name)
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	conf, err := egress.ParseConf(data)
	if err != nil {
		t.Fatal(err)
	}
	return conf
}

// TestAttackSecretSeen: the value of a secret and the key of the sandbox's CA are in one file, and in
// nothing that a call returns, the engine keeps or a log says (row 23).
func TestAttackSecretSeen(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	agent, log, state := &fakeAgent{keys: map[string]string{}}, &testhelp.Buffer{}, ""
	h := fakeHost(t, f, withRoots(t), func(c *docker.Config) {
		c.Agent, c.Logger, state = agent, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), c.StateDir
		c.Progress = func(id string, at sandbox.State, waiting string) { fmt.Fprintln(log, id, at, waiting) }
	})
	spec := sandbox.Spec{Image: "debian", Key: "k", Policy: withSecret(t, hidden)}
	s := create(t, h, spec)
	conf := confOf(t, state, s.ID)
	if conf.Policy.Secrets[0].Value != hidden || !strings.Contains(string(conf.CA.Key), "PRIVATE KEY") {
		t.Errorf("the file has %+v", conf)
	}
	claim := agent.last()
	if claim.CA != conf.CA.Certificate || claim.CA == "" || claim.Placeholders["API_KEY"] != "actiond-secret-API" {
		t.Errorf("the claim: %+v", claim)
	}
	network, err := h.Network(t.Context(), s)
	if err != nil || len(network.Policy.Secrets) != 1 || !network.Up {
		t.Errorf("Network: %+v, %v", network, err)
	}
	changed, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error {
		n.Policy.Mode = egress.ModePublic
		return nil
	})
	if err != nil || len(changed.Policy.Secrets) != 1 {
		t.Errorf("SetNetwork: %+v, %v", changed, err)
	}
	_, stolen := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error {
		n.Policy.Secrets[0].Hosts = withSecretHosts(t, "evil.example")
		return nil
	})
	if !errors.Is(stolen, sandbox.ErrInvalid) {
		t.Errorf("a secret for another host without its value: %v", stolen)
	}
	details, err := h.Inspect(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	_, short := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy.Secrets[0].Value = hidden + "\n"; return nil })
	_, missing := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy.Secrets[0].Name = "OTHER"; return nil })
	other := spec
	other.Policy = withSecret(t, hidden+"2")
	again, err := h.Create(t.Context(), other)
	if err != nil || again.ID != s.ID {
		t.Errorf("the same key with another value: %v, %v", again, err)
	}
	findings, err := h.Examine(t.Context())
	if err != nil {
		t.Error(err)
	}
	f.Lock()
	everything := fmt.Sprintf("%+v %+v %+v", *f.Containers[s.Instance].Config, *f.Containers[s.Instance].Host, f.Containers[s.Instance].Host.Mounts)
	f.Unlock()
	proxy := proxyOf(f)
	everything += fmt.Sprintf("%+v %+v", *proxy.Config, *proxy.Host)
	everything += fmt.Sprintf("%+v %+v %+v %+v %+v %v %v %v %+v", *s, *network, *changed, *details, claim, stolen, short, missing, findings) + log.String() + spec.Hash()
	err = filepath.WalkDir(state, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(name, "egress/conf/"+s.ID+".json") {
			return err
		}
		data, err := os.ReadFile(name)
		everything += name + string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	conf = confOf(t, state, s.ID)
	key := string(bytes.Split([]byte(conf.CA.Key), []byte("\n"))[1])
	for name, secret := range map[string]string{"the value": "hidden-value", "the CA's key": key} {
		if at := strings.Index(everything, secret); at >= 0 {
			t.Errorf("%s is in %q", name, everything[max(0, at-100):at])
		}
	}
	if conf.Generation != 2 || conf.Policy.Mode != egress.ModePublic || conf.Policy.Secrets[0].Value != hidden || conf.CA.Certificate != claim.CA {
		t.Errorf("after the change the file has %+v", conf)
	}
}

func withSecretHosts(t *testing.T, name string) []egress.Host {
	t.Helper()
	host, err := egress.ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	return []egress.Host{host}
}

// TestSecretInPool: what waits in a pool has no secret; its claimer brings it, and the CA stays.
func TestSecretInPool(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	agent, state := &fakeAgent{keys: map[string]string{}}, ""
	h := fakeHost(t, f, withRoots(t), func(c *docker.Config) { c.Agent, state = agent, c.StateDir })
	spec := sandbox.Spec{Image: "debian", Policy: withSecret(t, hidden)}
	pool := newPool(t, h, spec, 1)
	fillOnce(t, h, pool, 1)
	all, err := h.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("List: %v, %v", all, err)
	}
	before := confOf(t, state, all[0].ID)
	if len(before.Policy.Secrets) != 0 || before.CA.Certificate == "" {
		t.Errorf("a warm one has %+v", before)
	}
	spec.Key = "claimer"
	if _, warm, err := pool.Claim(t.Context(), spec); err != nil || !warm {
		t.Fatalf("Claim: %v, %v", warm, err)
	}
	after := confOf(t, state, all[0].ID)
	if len(after.Policy.Secrets) != 1 || after.Policy.Secrets[0].Value != hidden || after.CA != before.CA {
		t.Errorf("the claimed one has %+v", after)
	}
	if claim := agent.last(); claim.CA != before.CA.Certificate || claim.Placeholders["API_KEY"] == "" {
		t.Errorf("the claim: %+v", claim)
	}
}

// TestSecretRefused: a machine without roots, and a sandbox without a CA, can have no secrets.
func TestSecretRefused(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	state, roots := "", filepath.Join(t.TempDir(), "roots.pem")
	h := fakeHost(t, f, func(c *docker.Config) { c.Roots, state = roots, c.StateDir })
	spec := sandbox.Spec{Image: "debian", Policy: withSecret(t, hidden)}
	for _, content := range []string{"", "no certificate", strings.Repeat("x", egress.MaxRoots+1)} {
		if content != "" {
			testhelp.WriteFile(t, roots, content, 0o600)
		}
		if _, err := h.Check(t.Context(), &spec); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "secrets cannot be kept here") {
			t.Errorf("%.20q: got %v", content, err)
		}
	}
	says := func(want string) {
		t.Helper()
		found, err := h.Examine(t.Context())
		if err != nil || !strings.Contains(fmt.Sprint(found), want) {
			t.Errorf("Examine: %+v, %v, want %q", found, err, want)
		}
	}
	says("network policies can have no secrets")
	s := create(t, h, sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModePublic}})
	set := func() error {
		_, err := h.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { n.Policy = *spec.Policy; return nil })
		return err
	}
	if err := set(); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "no certificate") && !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a secret for a sandbox, without roots: %v", err)
	}
	ca, err := egress.NewCA("world")
	if err = errors.Join(err, os.WriteFile(roots, []byte(ca.Certificate), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := set(); err != nil {
		t.Errorf("a secret for a sandbox: %v", err)
	}
	says("verified by the certificates in " + roots)
	if copied, err := os.ReadFile(filepath.Join(state, "egress/conf", s.ID+".pem")); err != nil || string(copied) != ca.Certificate {
		t.Errorf("the proxy's roots: %s, %v", copied, err)
	}
	earlier := `{"generation":7,"policy":{"mode":"public"}}`
	testhelp.WriteFile(t, filepath.Join(state, "egress/conf", s.ID+".json"), earlier, 0o600)
	if err := set(); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "create it anew") {
		t.Errorf("a secret for a sandbox of an earlier version: %v", err)
	}
}

// TestSecretRoots: the hosts of a secret are verified by the roots of the command that gave it, whatever
// roots later commands have.
func TestSecretRoots(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	var state, first, second string
	h := fakeHost(t, f, withRoots(t), func(c *docker.Config) { state, first = c.StateDir, c.Roots })
	later := fakeHost(t, f, withRoots(t), func(c *docker.Config) { c.StateDir, second = state, c.Roots })
	s := create(t, h, sandbox.Spec{Image: "debian", Policy: withSecret(t, hidden)})
	file := filepath.Join(state, "egress/conf", s.ID+".pem")
	set := func(change func(p *egress.Policy)) {
		t.Helper()
		if _, err := later.SetNetwork(t.Context(), s, func(n *sandbox.Network) error { change(&n.Policy); return nil }); err != nil {
			t.Error(err)
		}
	}
	want := func(roots string) {
		t.Helper()
		if got, want := testhelp.ReadFile(t, file), testhelp.ReadFile(t, roots); string(got) != string(want) {
			t.Errorf("the roots are not those in %s", roots)
		}
	}
	want(first)
	other := create(t, later, sandbox.Spec{Image: "debian", Policy: withSecret(t, hidden)})
	plain := create(t, later, sandbox.Spec{Image: "debian", Policy: &egress.Policy{Mode: egress.ModePublic}})
	if _, err := later.Prune(t.Context(), false); err != nil {
		t.Error(err)
	}
	set(func(p *egress.Policy) { p.Mode = egress.ModePublic })
	set(func(p *egress.Policy) { p.Secrets[0].Value = hidden })
	want(first)
	set(func(p *egress.Policy) { p.Secrets[0].Value = hidden + "2" })
	want(second)
	set(func(p *egress.Policy) { p.Secrets = nil })
	orphan := filepath.Join(state, "egress/conf/0123456789ab.pem")
	past := time.Now().Add(-11 * time.Minute)
	testhelp.WriteFile(t, orphan, "", 0o600)
	if err := errors.Join(os.Chtimes(orphan, past, past), os.Chtimes(file, past, past), later.Delete(t.Context(), other)); err != nil {
		t.Fatal(err)
	}
	if _, err := later.Prune(t.Context(), false); err != nil {
		t.Error(err)
	}
	if exists(t, orphan) || !exists(t, file) || exists(t, filepath.Join(state, "egress/conf", plain.ID+".pem")) || exists(t, filepath.Join(state, "egress/conf", other.ID+".pem")) {
		t.Error("roots are left, or removed")
	}
}

// TestAttackHalfWritten: a file with secrets that a killed controller left half written goes with its
// sandbox, or with the next prune.
func TestAttackHalfWritten(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h, s, state := egressHost(t, f)
	conf := filepath.Join(state, "egress/conf")
	own, others, young := filepath.Join(conf, s.ID+".json.0123abcd.tmp"), filepath.Join(conf, "0123456789ab.json.0123abcd.tmp"), filepath.Join(conf, "ba9876543210.json.0123abcd.tmp")
	for _, name := range []string{own, others, young} {
		testhelp.WriteFile(t, name, hidden, 0o600)
	}
	past := time.Now().Add(-11 * time.Minute)
	if err := os.Chtimes(others, past, past); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Prune(t.Context(), false); err != nil {
		t.Error(err)
	}
	if exists(t, others) || !exists(t, young) || !exists(t, own) {
		t.Errorf("after Prune: %v, %v, %v", exists(t, others), exists(t, young), exists(t, own))
	}
	if err := h.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
	if exists(t, own) || !exists(t, young) {
		t.Errorf("after Delete: %v, %v", exists(t, own), exists(t, young))
	}
}
