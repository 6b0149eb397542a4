package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
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
	h := newFixture(t, func(_ *fixture, c *gateway.Config) { c.Defaults.Policy = &egress.Policy{Mode: egress.ModePublic} })
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
func policyHouse(t *testing.T, change ...func(*gateway.Config)) (*fixture, *keeper) {
	t.Helper()
	k := &keeper{networks: map[string]*sandbox.Network{}, denied: map[string][]egress.Denial{}, waited: make(chan time.Duration, 1)}
	h := newFixture(t, func(h *fixture, c *gateway.Config) {
		k.Driver = h.host
		c.Driver = k
		for _, change := range change {
			change(c)
		}
	})
	return h, k
}

const networkRoute = "/v1/sandboxes/{id}/network"

func (h *fixture) network(t *testing.T, method, id, body string, header ...string) (int, string) {
	t.Helper()
	w := h.ask(t, method, networkRoute, "/v1/sandboxes/"+id+"/network", body, header...)
	if tag := w.Header().Get("ETag"); (w.Code == 200) != (tag != "") {
		t.Errorf("%s: status %d with tag %q", method, w.Code, tag)
	}
	return w.Code, w.Body.String()
}

// The sandbox gets the policy of its creation, beside the operator's private ranges.
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

// With a policy of the operator's, clients ask for less, and its rules of deny stay.
func TestOperatorsPolicy(t *testing.T) {
	t.Parallel()
	operators, err := egress.ParsePolicy([]byte(`{"mode":"allowlist","allow":["*.example"],"deny":["ads.example"],"secrets":[{"name":"OWN","hosts":["own.example"],"value":"operator-value"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	h, k := policyHouse(t, func(c *gateway.Config) { c.Defaults.Policy = &operators })
	id := h.make(t, `{"image":"debian"}`).ID
	if !k.specs[0].Policy.Equal(&operators) {
		t.Errorf("a creation that names no network: %+v", k.specs[0].Policy)
	}
	other := h.make(t, `{"image":"debian","network":{"mode":"allowlist","allow":["a.example"],"secrets":[{"name":"OWN"}]}}`).ID
	if code, got := h.network(t, "GET", other, ""); code != 200 || !strings.Contains(got, `"allow":["a.example"],"deny":["ads.example"],"max_bytes":0,"secrets":[{"name":"OWN","hosts":["own.example"]}]`) {
		t.Errorf("GET: %d %s", code, got)
	}
	for _, wide := range []string{`"mode":"public"`, `"mode":"allowlist","allow":["evil.test"]`, `"mode":"allowlist","secrets":[{"name":"S","hosts":["evil.test"],"value":"0123456789"}]`} {
		want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian","network":{`+wide+`}}`), 422, "operator")
		if code, got := h.network(t, "PUT", id, `{`+wide+`}`); code != 422 || !strings.Contains(got, "operator") {
			t.Errorf("PUT %s: %d %s", wide, code, got)
		}
	}
	for _, step := range []struct{ method, body, text string }{
		{"PUT", `{"mode":"no-network"}`, `"mode":"no-network","allow":[],"deny":["ads.example"]`},
		{"PUT", `{"mode":"allowlist","allow":["b.example"]}`, `"allow":["b.example"],"deny":["ads.example"],"max_bytes":0,"secrets":[],"generation":3`},
		{"PATCH", `{"deny_remove":["ads.example"]}`, `"deny":["ads.example"],"max_bytes":0,"secrets":[],"generation":3`},
		{"PATCH", `{"allow_add":["c.example"],"secrets":[{"name":"OWN"}]}`, `"allow":["b.example","c.example"]`},
	} {
		if code, got := h.network(t, step.method, id, step.body); code != 200 || !strings.Contains(got, step.text) {
			t.Errorf("%s %s: %d %s", step.method, step.body, code, got)
		}
	}
	for _, wide := range []string{`"mode":"public"`, `"allow_add":["evil.test"]`} {
		if code, got := h.network(t, "PATCH", id, `{`+wide+`}`); code != 422 || !strings.Contains(got, "operator") {
			t.Errorf("PATCH %s: %d %s", wide, code, got)
		}
	}
	want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian","network":"none"}`), 201, `"id"`)
}

// An error in a policy is said with its place, and nothing is made.
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

// While the egress proxy is down, a change is stored and says so, and so does the state.
func TestEgressDown(t *testing.T) {
	t.Parallel()
	h, k := policyHouse(t)
	id := h.make(t, `{"image":"debian","network":{"mode":"public"}}`).ID
	k.down = true
	for method, body := range map[string]string{"PUT": `{"mode":"no-network"}`, "PATCH": `{"mode":"no-network"}`} { // one finds it stored
		w := h.ask(t, method, networkRoute, "/v1/sandboxes/"+id+"/network", body)
		want(t, w, 503, `"errors":[],"code":"egress_down","applied":false,"generation":2}`)
		want(t, w, 503, "is stored, and applies once the egress proxy answers")
		if w.Header().Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
		}
	}
	if code, got := h.network(t, "GET", id, ""); code != 200 || !strings.Contains(got, `"egress":"down","problem":"it does not answer","open":0,`) {
		t.Errorf("GET: %d %s", code, got)
	}
	want(t, h.ask(t, "GET", networkRoute+"/denied", "/v1/sandboxes/"+id+"/network/denied", ""), 503, `"detail":"the egress proxy is not ready`)
	k.down = false
	if code, got := h.network(t, "PUT", id, `{"mode":"no-network"}`); code != 200 || !strings.Contains(got, `"generation":2`) {
		t.Errorf("again: %d %s", code, got)
	}
}

// Concurrent changes of parts do not undo one another, and of conditional ones one wins.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	h, k := policyHouse(t)
	id := h.make(t, `{"image":"debian","network":{"mode":"allowlist"}}`).ID
	var clients sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 40 {
		clients.Go(func() {
			if code, got := h.network(t, "PATCH", id, fmt.Sprintf(`{"allow_add":["h%d.example"]}`, i)); code != 200 {
				t.Errorf("PATCH: %d %s", code, got)
			}
		})
		clients.Go(func() {
			code, got := h.network(t, "PATCH", id, fmt.Sprintf(`{"deny_add":["d%d.example"]}`, i), "If-Match", `"1"`)
			mu.Lock()
			defer mu.Unlock()
			switch code {
			case 200:
				won++
			case 412:
			default:
				t.Errorf("conditional PATCH: %d %s", code, got)
			}
		})
	}
	clients.Wait()
	if n := k.networks[id]; len(n.Policy.Allow) != 40 || won > 1 || len(n.Policy.Deny) != won || n.Generation != int64(41+won) {
		t.Errorf("%d allowed, %d denied, %d won, generation %d", len(n.Policy.Allow), len(n.Policy.Deny), won, n.Generation)
	}
}

func TestDenials(t *testing.T) {
	t.Parallel()
	h, k := policyHouse(t)
	id := h.make(t, `{"image":"debian","network":{"mode":"allowlist"}}`).ID
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
	for n := range 3 {
		k.denied[id] = append(k.denied[id], egress.Denial{Number: int64(n + 1), Time: at, Host: "evil.example", Port: 443, Reason: "not in the allow list", Connection: 9})
	}
	path := "/v1/sandboxes/" + id + "/network/denied"
	ask := func(query string) (int, string) {
		w := h.ask(t, "GET", networkRoute+"/denied", path+query, "")
		return w.Code, w.Body.String()
	}
	const one = `"time":"2025-12-31T23:00:00Z","host":"evil.example","port":443,"reason":"not in the allow list"}`
	for query, want := range map[string]string{
		"":                 `{"denied":[{"number":1,` + one + `,{"number":2,` + one + `,{"number":3,` + one + `]}`,
		"?after=2&wait=60": `{"denied":[{"number":3,` + one + `]}`,
		"?after=3":         `{"denied":[]}`,
	} {
		if code, got := ask(query); code != 200 || got != want {
			t.Errorf("%s: %d %s, want %s", query, code, got, want)
		}
	}
	for _, query := range []string{"?after=-1", "?after=x", "?after=1e3", "?after=9223372036854775808", "?wait=61", "?wait=-1", "?wait=", "?since=1", "?after=%zz"} {
		if code, got := ask(query); code != 400 {
			t.Errorf("%s: %d %s", query, code, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path+"?after=3&wait=60", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(api.GatewayKeyHeader, theKey)
	done := make(chan struct{})
	go func() { h.ServeHTTP(&discard{header: http.Header{}}, r); close(done) }()
	if wait := <-k.waited; wait != time.Minute {
		t.Errorf("it waits for %v", wait)
	}
	cancel() // the client leaves
	<-done
}

// A sandbox's key reaches no policy, neither its own nor another's; without a key nobody learns which
// sandboxes exist.
func TestAttackPolicyOfAnother(t *testing.T) {
	t.Parallel()
	h, k := policyHouse(t)
	a, b := h.make(t, `{"image":"debian","network":{"mode":"no-network"}}`), h.make(t, `{"image":"debian","network":{"mode":"no-network"}}`)
	for _, id := range []string{a.ID, b.ID, "000000000000"} {
		for method, body := range map[string]string{"GET": "", "PUT": `{"mode":"public"}`, "PATCH": `{"mode":"public"}`} {
			for _, header := range [][]string{
				{api.GatewayKeyHeader, ""},
				{api.GatewayKeyHeader, "", api.KeyHeader, a.SessionKey},
				{api.GatewayKeyHeader, "", "Authorization", "Bearer " + a.SessionKey},
				{api.GatewayKeyHeader, a.SessionKey},
			} {
				if code, got := h.network(t, method, id, body, header...); code != 403 || got != `{"detail":"Invalid API Key","errors":[],"code":"forbidden"}` {
					t.Errorf("%s %s with %q: %d %s", method, id, header, code, got)
				}
			}
		}
		want(t, h.ask(t, "GET", networkRoute+"/denied", "/v1/sandboxes/"+id+"/network/denied", "", api.GatewayKeyHeader, "", api.KeyHeader, a.SessionKey), 403, "Invalid API Key")
	}
	if k.networks[a.ID].Generation != 1 || k.networks[b.ID].Generation != 1 {
		t.Errorf("%+v, %+v", k.networks[a.ID], k.networks[b.ID])
	}
}

// The value of a secret is in no answer, log or metric, whatever a client does with it, and an
// operator's goes to no other host, header or format (attack 25).
func TestAttackSecrets(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	own := egress.Secret{Name: "OWN", Header: "X-Key", Format: "{}", Value: "operator-value"}
	h, k := policyHouse(t, func(c *gateway.Config) {
		host, err := egress.ParseHost("own.example")
		if err != nil {
			t.Fatal(err)
		}
		own.Hosts = []egress.Host{host}
		c.Secrets = []egress.Secret{own}
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	var answers strings.Builder
	create := func(secrets string) (int, string) {
		w := h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian","network":{"mode":"allowlist","secrets":`+secrets+`}}`)
		answers.WriteString(w.Body.String())
		return w.Code, w.Body.String()
	}
	code, body := create(`[{"name":"OWN"},{"name":"MINE","hosts":["mine.example"],"var":"MINE","value":"client-value"}]`)
	if code != 201 {
		t.Fatal(code, body)
	}
	_, id, _ := strings.Cut(body, `"id":"`)
	id = id[:12]
	if got := k.networks[id].Policy.Secrets; len(got) != 2 || got[0].Value != own.Value || got[0].Header != "X-Key" || got[1].Value != "client-value" {
		t.Errorf("the sandbox has %+v", got)
	}
	const told = `"secrets":[{"name":"OWN","hosts":["own.example"],"header":"X-Key","format":"{}"},{"name":"MINE","hosts":["mine.example"],"var":"MINE"}]`
	before := k.networks[id].Generation
	put := func(method, body string, status int, text string) {
		t.Helper()
		code, got := h.network(t, method, id, body)
		answers.WriteString(got)
		if code != status || !strings.Contains(got, text) {
			t.Errorf("%s %s: %d %s", method, body, code, got)
		}
	}
	put("GET", "", 200, told)
	for secret, text := range map[string]string{
		`{"name":"OWN","hosts":["evil.example"]}`:                                                   "cannot change",
		`{"name":"OWN","hosts":["own.example","evil.example"]}`:                                     "cannot change",
		`{"name":"OWN","header":"Authorization"}`:                                                   "cannot change",
		`{"name":"OWN","format":"Basic x:{}"}`:                                                      "cannot change",
		`{"name":"OWN","var":"OWN"}`:                                                                "cannot change",
		`{"name":"OWN","hosts":["own.example"],"value":"client-value"}`:                             "operator has one",
		`{"name":"MINE","hosts":["evil.example"]}`:                                                  "cannot change",
		`{"name":"MINE","hosts":["mine.example"],"header":"X-Other"}`:                               "cannot change",
		`{"name":"THEIRS"}`:                                                                         "no value",
		`{"name":"X","hosts":["x.example"],"value":"client-value\r\nX-Evil: 1"}`:                    "its value must have",
		`{"name":"X","hosts":["x.example"],"value":"client-value\u0000"}`:                           "its value must have",
		`{"name":"X","hosts":["x.example"],"value":"client-välue"}`:                                 "its value must have",
		`{"name":"X","hosts":["x.example"],"value":"client-value","format":"{}\r\nX-Evil: 1"}`:      "its format must be",
		`{"name":"X","hosts":["x.example"],"value":"client-value","header":"X:Y"}`:                  "its header cannot be set",
		`{"name":"X","hosts":["x.example"],"value":"client-value","header":"Host"}`:                 "its header cannot be set",
		`{"name":"X","hosts":["x.example"],"value":"client-value","header":"Transfer-Encoding"}`:    "its header cannot be set",
		`{"name":"X","hosts":["x.example"],"value":"client-value","header":"Proxy-Authorization"}`:  "its header cannot be set",
		`{"name":"X","hosts":["x.example"],"value":"client-value","var":"LD_PRELOAD=x"}`:            "its var is not",
		`{"name":"X\r\nX-Evil: 1","hosts":["x.example"],"value":"client-value"}`:                    "a name has",
		`{"name":"X","hosts":["10.0.0.1"],"value":"client-value"}`:                                  "its hosts must be names",
		`{"name":"X","hosts":["x.example"],"value":{"client-value":"client-value"}}`:                "/value: an object cannot be here",
		`{"name":"X","hosts":["x.example"],"value":["client-value"]}`:                               "/value: a list cannot be here",
		`{"name":"X","hosts":["x.example"],"value":"` + strings.Repeat("client-value", 1000) + `"}`: "its value must have",
		`{"name":"X","hosts":["mine.example"],"value":"client-value"},{"name":"MINE"}`:              "header of mine.example",
		`{"name":"X","hosts":["x.example"],"value":"client-value","vars":true}`:                     `member \"vars\" is unknown`,
	} {
		status := 422
		if strings.Contains(text, "unknown") {
			status = 400
		}
		put("PUT", `{"mode":"allowlist","secrets":[`+secret+`]}`, status, text)
		put("PATCH", `{"secrets":[`+secret+`]}`, status, text)
		if code, got := create("[" + secret + "]"); code != status {
			t.Errorf("creation with %s: %d %s", secret, code, got)
		}
	}
	if n := k.networks[id]; n.Generation != before {
		t.Errorf("it changed to %+v", n)
	}
	// The answer of GET can be sent again, and keeps the values; a value can be replaced.
	put("PUT", `{"mode":"allowlist",`+told+`}`, 200, `"generation":1,`)
	put("PATCH", `{"secrets":[{"name":"MINE","hosts":["mine.example"],"value":"client-value-2"}]}`, 200, `{"name":"MINE","hosts":["mine.example"]}],"generation":2`)
	put("PATCH", `{"secrets_remove":["OWN"],"secrets":[{"name":"MINE"}]}`, 200, `"secrets":[{"name":"MINE","hosts":["mine.example"]}],"generation":3`)
	if got := k.networks[id].Policy.Secrets; len(got) != 1 || got[0].Value != "client-value-2" {
		t.Errorf("the sandbox has %+v", got)
	}
	answers.WriteString(h.ask(t, "GET", "/metrics", "/metrics", "").Body.String())
	answers.WriteString(h.ask(t, "GET", "/v1/sandboxes", "/v1/sandboxes", "").Body.String())
	answers.WriteString(log.String())
	for _, secret := range []string{"operator-value", "client-v"} {
		if all := answers.String(); strings.Contains(all, secret) {
			i := strings.Index(all, secret)
			t.Errorf("%s is in an answer, the log or a metric: %.200s", secret, all[max(i-100, 0):])
		}
	}
	if !strings.Contains(log.String(), "changed a network policy") {
		t.Error("the log does not have the change")
	}
}

// The metrics count changes, and name no sandbox and no host.
func TestNetworkMetrics(t *testing.T) {
	t.Parallel()
	h, k := policyHouse(t)
	id := h.make(t, `{"image":"debian","network":{"mode":"allowlist","allow":["a.example"]}}`).ID
	h.network(t, "PUT", id, `{"mode":"public"}`)
	h.network(t, "PUT", id, `{"mode":"public"}`)
	h.network(t, "PUT", id, `{"mode":"public"}`, "If-Match", `"9"`)
	k.down = true
	h.network(t, "PATCH", id, `{"deny_add":["b.example"]}`)
	text := h.ask(t, "GET", "/metrics", "/metrics", "").Body.String()
	for outcome, n := range map[string]int{"applied": 1, "unchanged": 1, "refused": 1, "stored": 1, "failed": 0} {
		if line := `actiond_gateway_network_changes_total{outcome="` + outcome + `"} ` + strconv.Itoa(n) + "\n"; !strings.Contains(text, line) {
			t.Errorf("there is no %s", line)
		}
	}
	if strings.Contains(text, id) || strings.Contains(text, ".example") {
		t.Error("the metrics name a sandbox or a host")
	}
}

// A platform that keeps no policies says so.
func TestNoNetworker(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(h *fixture, c *gateway.Config) { c.Driver = struct{ sandbox.Driver }{h.host} })
	id := h.make(t, `{"image":"debian"}`).ID
	if code, got := h.network(t, "PUT", id, `{"mode":"public"}`); code != 409 || !strings.Contains(got, "the Docker engine cannot keep network policies") {
		t.Errorf("got %d %s", code, got)
	}
}
