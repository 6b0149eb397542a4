package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/sandbox"
)

// The policy of the defaults is the operator's: a client may ask for less, no network at all, and
// not for another network. The engine of the test keeps no policies, and says so.
func TestDefaultPolicy(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(_ *house, c *gateway.Config) { c.Defaults.Policy = &egress.Policy{Mode: egress.ModePublic} })
	create := func(network string) (body string) {
		if network != "" {
			network = `,"network":"` + network + `"`
		}
		return `{"image":"debian"` + network + `}`
	}
	const path = "/v1/sandboxes"
	want(t, h.ask(t, "POST", path, path, create("")), 422, "network policies cannot be kept here")
	want(t, h.ask(t, "POST", path, path, create("bridge")), 422, "leave out network bridge")
	want(t, h.ask(t, "POST", path, path, create("none")), 201, `"id"`)
}

// keeper is a driver that keeps network policies. What it does with a policy is the driver's own test.
type keeper struct {
	sandbox.Driver

	mu       sync.Mutex
	specs    []sandbox.Spec // of the creations
	networks map[string]*sandbox.Network
	denied   map[string][]egress.Denial
	down     bool
	waited   chan time.Duration // each wait for denials
}

func (k *keeper) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	k.mu.Lock()
	k.specs = append(k.specs, spec)
	k.mu.Unlock()
	bare := spec
	bare.Policy, bare.Private = nil, nil
	s, err := k.Driver.Create(ctx, bare)
	if err == nil && spec.Policy != nil {
		k.mu.Lock()
		k.networks[s.ID] = &sandbox.Network{Policy: *spec.Policy, Private: spec.Private, Generation: 1}
		k.mu.Unlock()
	}
	return s, err
}

func (k *keeper) state(n sandbox.Network) *sandbox.Network {
	n.Policy = n.Policy.WithoutValues()
	if n.Up = !k.down; k.down {
		n.Problem = "it does not answer"
	} else {
		n.Open, n.Sent, n.Received, n.Denied = 2, 30, 12, 7
	}
	return &n
}

func (k *keeper) Network(_ context.Context, s *sandbox.Sandbox) (*sandbox.Network, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.networks[s.ID]
	if n == nil {
		return nil, sandbox.NoPolicy(s)
	}
	return k.state(*n), nil
}

func (k *keeper) SetNetwork(_ context.Context, s *sandbox.Sandbox, change func(*sandbox.Network) error) (*sandbox.Network, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.networks[s.ID] == nil {
		return nil, sandbox.NoPolicy(s)
	}
	before := k.networks[s.ID]
	n := *before
	n.Policy = before.Policy.WithoutValues()
	if err := change(&n); err != nil {
		return nil, fmt.Errorf("changing it: %w", err)
	}
	if err := errors.Join(n.Policy.KeepValues(&before.Policy), n.Policy.Check()); err != nil {
		return nil, sandbox.Invalid("network policy: %v", err)
	}
	if !n.Policy.Equal(&before.Policy) {
		n.Generation++
	}
	k.networks[s.ID] = &n
	return k.state(n), nil
}

func (k *keeper) Denied(ctx context.Context, s *sandbox.Sandbox, after int64, wait time.Duration) ([]egress.Denial, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		return nil, fmt.Errorf("%w: it does not answer", sandbox.ErrEgress)
	}
	if k.networks[s.ID] == nil {
		return nil, sandbox.NoPolicy(s)
	}
	all := slices.DeleteFunc(slices.Clone(k.denied[s.ID]), func(d egress.Denial) bool { return d.Number <= after })
	if len(all) > 0 || wait == 0 {
		return all, nil
	}
	k.waited <- wait
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (*keeper) RestartEgress(context.Context) error { return errors.ErrUnsupported }

// policyHouse is a gateway whose driver keeps policies.
func policyHouse(t *testing.T, change ...func(*gateway.Config)) (*house, *keeper) {
	t.Helper()
	k := &keeper{networks: map[string]*sandbox.Network{}, denied: map[string][]egress.Denial{}, waited: make(chan time.Duration, 1)}
	h := newHouse(t, func(h *house, c *gateway.Config) {
		k.Driver = h.host
		c.Driver = k
		for _, change := range change {
			change(c)
		}
	})
	return h, k
}

const networkRoute = "/v1/sandboxes/{id}/network"

func (h *house) network(t *testing.T, method, id, body string, header ...string) (int, string) {
	t.Helper()
	w := h.ask(t, method, networkRoute, "/v1/sandboxes/"+id+"/network", body, header...)
	if tag := w.Header().Get("ETag"); (w.Code == 200) != (tag != "") {
		t.Errorf("%s: status %d with tag %q", method, w.Code, tag)
	}
	return w.Code, w.Body.String()
}

// What a creation asks for is what the sandbox gets, beside the operator's private ranges.
func TestCreateWithPolicy(t *testing.T) {
	t.Parallel()
	private := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	h, k := policyHouse(t, func(c *gateway.Config) { c.Defaults.Network, c.Defaults.Private = "bridge", private })
	const body = `{"image":"debian","network":{"mode":"allowlist","allow":["Api.Example.com:443","8.8.8.0/24"],"deny":["*.ads.example"],"max_bytes":99}}`
	s := h.make(t, body, api.IdempotencyKeyHeader, "k")
	spec := k.specs[0]
	if spec.Network != "" || spec.Policy == nil || spec.Policy.Mode != "allowlist" || len(spec.Policy.Allow) != 2 || !slices.Equal(spec.Private, private) {
		t.Errorf("the specification is %+v, %+v", spec, spec.Policy)
	}
	code, got := h.network(t, "GET", s.ID, "")
	if want := `{"mode":"allowlist","allow":["api.example.com:443","8.8.8.0/24"],"deny":["*.ads.example"],"max_bytes":99,"secrets":[],` +
		`"generation":1,"egress":"ok","open":2,"bytes":42,"denied":7}`; code != 200 || got != want {
		t.Errorf("got %d %s\nwant %s", code, got, want)
	}
	h.make(t, `{"image":"debian"}`)
	if spec := k.specs[1]; spec.Network != "bridge" || spec.Policy != nil || spec.Private != nil {
		t.Errorf("without a policy: %+v", spec)
	}
	h.make(t, `{"image":"debian","network":{"network_mode":"public","allowed_hosts":["a.example"]}}`)
	if spec := k.specs[2]; spec.Policy.Mode != "public" || len(spec.Policy.Allow) != 1 {
		t.Errorf("in Harbor's words: %+v", spec.Policy)
	}
}

// What is wrong with a policy is said with its place, and nothing is made.
func TestPolicyRefusals(t *testing.T) {
	t.Parallel()
	h, k := policyHouse(t)
	s := h.make(t, `{"image":"debian","network":{"mode":"public"}}`)
	plain := h.make(t, `{"image":"debian"}`)
	many := `["` + strings.Join(slices.Repeat([]string{"a.example"}, egress.MaxRules+1), `","`) + `"]`
	for _, tt := range []struct {
		policy, at, text string
	}{
		{`{"mode":"public","allow":["a.example","a b"]}`, `/allow/1`, `rule \"a b\": it is neither a host name`},
		{`{"mode":"public","deny":["0x7f.1"]}`, `/deny/0`, `rule \"0x7f.1\"`},
		{`{"mode":"public","allow":["*"]}`, ``, `rule \"*\": only deny`},
		{`{"mode":"open"}`, ``, `mode \"open\"`},
		{`{}`, ``, `mode \"\"`},
		{`{"mode":"public","max_bytes":-1}`, ``, `max_bytes`},
		{`{"mode":"public","max_bytes":"many"}`, `/max_bytes`, ``},
		{`{"mode":"public","allow":"a.example"}`, `/allow`, `string cannot be here`},
		{`{"mode":"public","allow":` + many + `}`, ``, `the policy has 1001 rules`},
		{`{"mode":"public","secrets":[{"name":"API","hosts":["a.example"]}]}`, ``, `secret \"API\": it has no value`},
		{`{"mode":"public","secrets":[{"name":"API","hosts":["*.example"],"value":"0123456789"}]}`, `/secrets/0/hosts/0`, `host`},
		{`{"mode":"public","secrets":[{"name":"API","hosts":["a.example"],"value":"short"}]}`, ``, `secret \"API\": its value must have`},
	} {
		w := h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian","network":`+tt.policy+`}`)
		want(t, w, 422, `"detail":"/network`+tt.at+": "+tt.text)
		text := tt.text
		if tt.at != "" {
			text = tt.at + ": " + text
		}
		if code, body := h.network(t, "PUT", s.ID, tt.policy); code != 422 || !strings.Contains(body, text) {
			t.Errorf("PUT %.80s: %d %s", tt.policy, code, body)
		}
	}
	want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian","network":{"mode":"public","private":["10.0.0.0/8"]}}`), 400, `"detail":"body: /network: member \"private\" is unknown"`)
	for method, bodies := range map[string][]string{
		"PUT":   {`{"mode":"public","private":["10.0.0.0/8"]}`, `{"mode":"public"`, `{"mode":"public","mode":"public"}`, "\xff", ``},
		"PATCH": {`{"private":["10.0.0.0/8"]}`, `{"mode"`, `{} {}`},
	} {
		for _, body := range bodies {
			if code, text := h.network(t, method, s.ID, body, "Content-Type", "application/json"); code != 400 || !strings.Contains(text, "body: ") {
				t.Errorf("%s %s: got %d %s", method, body, code, text)
			}
		}
		if code, text := h.network(t, method, s.ID, `{}`, "Content-Type", "text/plain"); code != 422 || !strings.Contains(text, "application/json") {
			t.Errorf("%s without JSON: got %d %s", method, code, text)
		}
		if code, text := h.network(t, method, s.ID, `{"mode":"`+strings.Repeat("x", 2<<20)+`"}`); code != 413 {
			t.Errorf("%s of two megabytes: got %d %s", method, code, text)
		}
		if code, text := h.network(t, method, s.ID, `{"mode":"`+strings.Repeat("x", egress.MaxPolicy)+`"}`); code != 422 || !strings.Contains(text, "larger") {
			t.Errorf("%s of a quarter: got %d %s", method, code, text)
		}
		if code, text := h.network(t, method, plain.ID, `{"mode":"no-network"}`); code != 409 || !strings.Contains(text, "without a network policy") {
			t.Errorf("%s without a policy: got %d %s", method, code, text)
		}
		if code, text := h.network(t, method, "nowhere", `{"mode":"no-network"}`); code != 404 {
			t.Errorf("%s of no sandbox: got %d %s", method, code, text)
		}
	}
	for patch, text := range map[string]string{
		`{"allow_add":["a.example","x:0"]}`: `/allow_add/1: rule \"x:0\"`,
		`{"mode":"open"}`:                   `mode \"open\"`,
		`{"allow_add":["*"]}`:               "only deny",
		`{"secrets":[{"name":"API"}]}`:      `secret \"API\": it has no value`,
		`{"allow_add":` + many + `}`:        "", // they are one
	} {
		if code, body := h.network(t, "PATCH", s.ID, patch); text != "" && (code != 422 || !strings.Contains(body, text)) {
			t.Errorf("PATCH %.80s: %d %s", patch, code, body)
		}
	}
	if code, text := h.network(t, "GET", plain.ID, ""); code != 409 {
		t.Errorf("GET without a policy: got %d %s", code, text)
	}
	if len(k.specs) != 2 || k.networks[s.ID].Policy.Mode != "public" || k.networks[s.ID].Generation != 2 {
		t.Errorf("%d creations, %+v", len(k.specs), k.networks[s.ID])
	}
}

// Changes have the generation of RFC 9110's conditions; the same PUT and PATCH again change nothing.
func TestChangePolicy(t *testing.T) {
	t.Parallel()
	h, _ := policyHouse(t)
	id := h.make(t, `{"image":"debian","name":"build","network":{"mode":"allowlist","allow":["a.example"]}}`).ID
	for _, step := range []struct {
		method, body, match string
		status              int
		text                string
	}{
		{"PUT", `{"mode":"no-network"}`, ``, 200, `"mode":"no-network","allow":[],"deny":[],"max_bytes":0,"secrets":[],"generation":2`},
		{"PUT", `{"mode":"no-network"}`, ``, 200, `"generation":2`},
		{"PUT", `{"mode":"no-network","allow":[]}`, `"2"`, 200, `"generation":2`},
		{"PUT", `{"mode":"public"}`, `"1"`, 412, `is of generation 2`},
		{"PUT", `{"mode":"public"}`, `"1", "2"`, 200, `"generation":3`},
		{"PUT", `{"mode":"public"}`, `"2"`, 412, `is of generation 3`},
		{"PATCH", `{"mode":"allowlist","allow_add":["a.example","b.example"],"deny_add":["c.example"]}`, `*`, 200, `"mode":"allowlist","allow":["a.example","b.example"],"deny":["c.example"],"max_bytes":0,"secrets":[],"generation":4`},
		{"PATCH", `{"allow_add":["b.example"],"allow_remove":["z.example"]}`, ``, 200, `"generation":4`},
		{"PATCH", `{}`, ``, 200, `"generation":4`},
		{"PATCH", `{"allow_remove":["a.example"],"deny_remove":["c.example"]}`, `"4"`, 200, `"allow":["b.example"],"deny":[],"max_bytes":0,"secrets":[],"generation":5`},
		{"PATCH", `{"mode":"public"}`, `W/"5"`, 400, `header.If-Match`},
		{"PATCH", `{"mode":"public"}`, `5`, 400, `header.If-Match`},
		{"PATCH", `{"mode":"public"}`, `"5`, 400, `header.If-Match`},
		{"PATCH", `{"mode":"public"}`, `"05"`, 400, `header.If-Match`},
		{"GET", ``, ``, 200, `"mode":"allowlist","allow":["b.example"],"deny":[],"max_bytes":0,"secrets":[],"generation":5`},
	} {
		if code, got := h.network(t, step.method, id, step.body, "If-Match", step.match); code != step.status || !strings.Contains(got, step.text) {
			t.Errorf("%s %s, %s: got %d %s\nwant %d with %s", step.method, step.body, step.match, code, got, step.status, step.text)
		}
	}
	want(t, h.ask(t, "GET", networkRoute, "/v1/sandboxes/build/network", ""), 200, `"generation":5`)
}
