package gateway_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

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

	mu    sync.Mutex
	specs []sandbox.Spec // of the creations
}

func (k *keeper) Create(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
	k.mu.Lock()
	k.specs = append(k.specs, spec)
	k.mu.Unlock()
	bare := spec
	bare.Policy, bare.Private = nil, nil
	return k.Driver.Create(ctx, bare)
}

// policyHouse is a gateway whose driver keeps policies.
func policyHouse(t *testing.T, change ...func(*gateway.Config)) (*house, *keeper) {
	t.Helper()
	k := &keeper{}
	h := newHouse(t, func(h *house, c *gateway.Config) {
		k.Driver = h.host
		c.Driver = k
		for _, change := range change {
			change(c)
		}
	})
	return h, k
}

// What a creation asks for is what the sandbox gets, beside the operator's private ranges.
func TestCreateWithPolicy(t *testing.T) {
	t.Parallel()
	private := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	h, k := policyHouse(t, func(c *gateway.Config) { c.Defaults.Network, c.Defaults.Private = "bridge", private })
	const body = `{"image":"debian","network":{"mode":"allowlist","allow":["Api.Example.com:443","8.8.8.0/24"],"deny":["*.ads.example"],"max_bytes":99}}`
	h.make(t, body, api.IdempotencyKeyHeader, "k")
	spec := k.specs[0]
	if spec.Network != "" || spec.Policy == nil || spec.Policy.Mode != "allowlist" || len(spec.Policy.Allow) != 2 || !slices.Equal(spec.Private, private) {
		t.Errorf("the specification is %+v, %+v", spec, spec.Policy)
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
	}
	want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian","network":{"mode":"public","private":["10.0.0.0/8"]}}`), 400, `"detail":"body: /network: member \"private\" is unknown"`)
	if len(k.specs) != 0 {
		t.Errorf("%d creations", len(k.specs))
	}
}
