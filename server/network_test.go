package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

const sandboxID = "0123456789ab"

// startEgress starts an egress proxy with a sandbox, and returns the path of its socket.
func startEgress(tb testing.TB, policy string) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "egress") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	s := egress.New(egress.Config{RunDir: dir, Log: slog.New(slog.DiscardHandler)})
	tb.Cleanup(s.Close)
	p, err := egress.ParsePolicy([]byte(policy))
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.SetHost(nil); err != nil {
		tb.Fatal(err)
	}
	if err := s.Apply(sandboxID, egress.Conf{Policy: p}); err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, sandboxID, "s")
}

// withProxy has the local proxy on a port that the system chooses.
func withProxy(cfg *server.Config) { cfg.ProxyAddress = "127.0.0.1:0" }

// withNetwork is a sandbox with a network policy whose proxy could not be started again.
func withNetwork(cfg *server.Config) {
	cfg.Inherited = &server.Snapshot{Network: &api.ClaimNetwork{Egress: "unix:/none"}}
}

func withUnusableProxy(cfg *server.Config) { cfg.Claim, cfg.ProxyAddress = true, "192.0.2.1:1" }

func claimWith(socket string) request {
	return post("/v1/claim", fmt.Sprintf(`{"key":%q,"env":{"A":"1"},"network":{"egress":"unix:%s","env":{"API_KEY":"actiond-secret-API"}}}`, ownersKey, socket))
}

// networked returns a server that was claimed with a network, and the address of its proxy.
func networked(tb testing.TB, policy string, change ...func(*server.Config)) (s *server.Server, proxy string) {
	tb.Helper()
	f := &fake{sessions: oneSession}
	s = newServer(tb, append([]func(*server.Config){withExecutor(f), withClaim, withProxy}, change...)...)
	tb.Cleanup(s.CloseNetwork)
	if w := claimWith(startEgress(tb, policy)).send(s); w.Code != http.StatusNoContent {
		tb.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return s, strings.TrimPrefix(f.network["http_proxy"], "http://")
}

// ask asks the proxy for a connection, and returns the status.
func ask(tb testing.TB, proxy, target string) string {
	tb.Helper()
	c := testhelp.Dial(tb, "tcp", proxy)
	defer c.Close()
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	answer, err := io.ReadAll(c)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimPrefix(strings.SplitN(string(answer), "\r\n", 2)[0], "HTTP/1.1 ")
}

func networkState(tb testing.TB, s *server.Server) (state api.NetworkState) {
	tb.Helper()
	q := get("/v1/network")
	q.key = ownersKey
	if w := q.send(s); w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &state) != nil {
		tb.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return state
}

// TestNetwork: the claim starts the local proxy, and names it to all programs.
func TestNetwork(t *testing.T) {
	t.Parallel()
	f := &fake{sessions: oneSession}
	s := newServer(t, withExecutor(f), withClaim, withProxy)
	t.Cleanup(s.CloseNetwork)
	socket := startEgress(t, `{"mode":"allowlist","allow":["a.example"],"deny":["8.8.8.8"]}`)
	for range 2 { // the second claim changes nothing
		if w := claimWith(socket).send(s); w.Code != http.StatusNoContent {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
	proxy := f.network["http_proxy"]
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"NODE_USE_ENV_PROXY": "1", "API_KEY": "actiond-secret-API"}
	for name, value := range map[string]string{"http_proxy": proxy, "https_proxy": proxy, "all_proxy": proxy, "no_proxy": "localhost,127.0.0.1,::1,[::1],0.0.0.0,.localhost," + host} {
		want[name], want[strings.ToUpper(name)] = value, value
	}
	if !maps.Equal(f.network, want) || len(f.exported) != 1 || !maps.Equal(f.exported[0], map[string]string{"A": "1"}) {
		t.Errorf("got %v and %v", f.network, f.exported)
	}
	proxy = strings.TrimPrefix(proxy, "http://")
	if got := ask(t, proxy, "evil.example:443"); got != "403 Forbidden" {
		t.Errorf("got %s", got)
	}
	state := networkState(t, s)
	if len(state.Denied) != 1 || state.Denied[0].Time.IsZero() {
		t.Fatalf("got %+v", state)
	}
	d := state.Denied[0]
	if state.Egress != "ok" || state.Mode != "allowlist" || !slices.Equal(state.Allow, []string{"a.example"}) || !slices.Equal(state.Deny, []string{"8.8.8.8"}) ||
		d.Host != "evil.example" || d.Port != 443 || d.Reason != "not in the allow list" {
		t.Errorf("got %+v", state)
	}
	for method, code := range map[string]int{"PUT": 405, "POST": 405, "PATCH": 405, "DELETE": 405} {
		if w := (request{method: method, path: "/v1/network", key: ownersKey, contentType: jsonType, body: "{}"}).send(s); w.Code != code {
			t.Errorf("%s: status %d", method, w.Code)
		}
	}
}

// TestNetworkNames: the claim decides whether there is a resolver, and where that cannot listen the
// claim succeeds and the state says why.
func TestNetworkNames(t *testing.T) {
	t.Parallel()
	// One port for UDP and TCP: those of 127.0.0.1 are taken by the other tests.
	free := func(cfg *server.Config) { cfg.ResolverAddress = "127.0.0.53:0" }
	unusable := func(cfg *server.Config) { cfg.ResolverAddress = "192.0.2.1:53" }
	for name, tc := range map[string]struct {
		asked   bool
		change  func(*server.Config)
		names   bool
		problem string
	}{
		"on":       {true, free, true, ""},
		"off":      {false, unusable, false, ""},
		"unusable": {true, unusable, false, "192.0.2.1:53"},
	} {
		s := newServer(t, withExecutor(&fake{sessions: oneSession}), withClaim, withProxy, tc.change)
		t.Cleanup(s.CloseNetwork)
		w := post("/v1/claim", fmt.Sprintf(`{"key":%q,"network":{"egress":"unix:%s","names":%v}}`, ownersKey, startEgress(t, `{"mode":"public"}`), tc.asked)).send(s)
		if w.Code != http.StatusNoContent {
			t.Fatalf("%s: status %d: %s", name, w.Code, w.Body)
		}
		var life api.Life
		q := get("/v1/status")
		q.key = ownersKey
		if w := q.send(s); json.Unmarshal(w.Body.Bytes(), &life) != nil {
			t.Fatalf("%s: %s", name, w.Body)
		}
		state := networkState(t, s)
		for _, problem := range []string{state.NamesProblem, life.NamesProblem} {
			if state.Names != tc.names || !strings.Contains(problem, tc.problem) || (problem == "") != (tc.problem == "") {
				t.Errorf("%s: got %v %q", name, state.Names, problem)
			}
		}
	}
}

// TestNetworkNone: without a policy there is no proxy and no variable.
func TestNetworkNone(t *testing.T) {
	t.Parallel()
	f := &fake{}
	s := newServer(t, withExecutor(f), withClaim, withProxy)
	if w := claimBy(ownersKey).send(s); w.Code != http.StatusNoContent {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	q := get("/v1/network")
	q.key = ownersKey
	if w := q.send(s); w.Code != http.StatusConflict {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if len(f.exported) > 0 || strings.Contains(get("/metrics").send(newServer(t)).Body.String(), "actiond_network") {
		t.Error("there is something of a network")
	}
}

// TestAttackListensFirst: a process that listens on the proxy's address before the claim has it
// refused, so that no command runs with variables that name another proxy.
func TestAttackListensFirst(t *testing.T) {
	t.Parallel()
	l := testhelp.Listen(t)
	defer l.Close()
	f := &fake{}
	s := newServer(t, withExecutor(f), withClaim, func(cfg *server.Config) { cfg.ProxyAddress = l.Addr().String() })
	t.Cleanup(s.CloseNetwork)
	claim := claimWith(startEgress(t, `{"mode":"no-network"}`))
	w := claim.send(s)
	if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "address already in use") || len(f.exported) > 0 {
		t.Fatalf("status %d: %s, exported %v", w.Code, w.Body, f.exported)
	}
	l.Close()
	if w := claim.send(s); w.Code != http.StatusNoContent {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// TestNetworkHalf: a claim whose variables cannot be set leaves no proxy, and may come again.
func TestNetworkHalf(t *testing.T) {
	t.Parallel()
	s := newServer(t, withClaim, withProxy, func(cfg *server.Config) { cfg.Executor = &failing{} })
	t.Cleanup(s.CloseNetwork)
	claim := claimWith(startEgress(t, `{"mode":"no-network"}`))
	for range 2 {
		if w := claim.send(s); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "inner secret") {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
	if s.HasNetwork() {
		t.Error("it has a proxy")
	}
}

// TestNetworkResumes: a server that takes the place of another starts the proxy and sets the
// variables before it serves.
func TestNetworkResumes(t *testing.T) {
	t.Parallel()
	var kept server.Snapshot
	networked(t, `{"mode":"public"}`, func(cfg *server.Config) {
		cfg.Remember = func(f server.Snapshot) error { kept = f; return nil }
	})
	data, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	var inherited server.Snapshot
	if err := json.Unmarshal(data, &inherited); err != nil {
		t.Fatal(err)
	}
	l := testhelp.Listen(t)
	defer l.Close()
	for address, up := range map[string]string{"127.0.0.1:0": "ok", l.Addr().String(): "down"} { // the agent has taken the second one
		f := &fake{sessions: oneSession}
		s := newServer(t, withExecutor(f), withClaim, func(cfg *server.Config) { cfg.Inherited, cfg.ProxyAddress = &inherited, address })
		t.Cleanup(s.CloseNetwork)
		if err := s.Resume(t.Context(), map[string]string{"A": "1"}); err != nil {
			t.Fatal(err)
		}
		if f.network["http_proxy"] == "" || len(f.exported) != 1 || f.exported[0]["A"] != "1" {
			t.Errorf("got %v and %v", f.network, f.exported)
		}
		if state := networkState(t, s); state.Egress != up {
			t.Errorf("%s: got %+v", address, state)
		}
	}
}

// curl is a process whose action is known.
type curl struct{ api.Origin }

func (c curl) Client(client, proxy netip.AddrPort) api.Origin {
	if client.Addr() != proxy.Addr() || client.Port() == 0 || proxy.Port() == 0 {
		return api.Origin{}
	}
	return c.Origin
}

// TestDeniedInObservation: in each form, the answer of an action says what was denied to its
// processes, and nothing of other actions.
func TestDeniedInObservation(t *testing.T) {
	t.Parallel()
	f := &fake{sessions: oneSession}
	s := newServer(t, withExecutor(f), withClaim, withProxy, func(cfg *server.Config) {
		cfg.Clients = curl{api.Origin{Kind: "run", Session: "default", Process: "curl"}}
	})
	t.Cleanup(s.CloseNetwork)
	if w := claimWith(startEgress(t, `{"mode":"no-network"}`)).send(s); w.Code != http.StatusNoContent {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	f.do = func(_ context.Context, req api.Request) (api.Observation, error) {
		if run, ok := req.Action.(api.RunAction); ok && run.Command == "true" {
			ask(t, strings.TrimPrefix(f.network["http_proxy"], "http://"), "evil.example:443") //nolint:contextcheck // it has the one of the test
		}
		return api.RunObservation{Content: "out", Metadata: api.RunMetadata{PID: -1}}, nil
	}
	const denied = `"network":{"denied":[{"host":"evil.example","port":443,"reason":"mode no-network","count":1,"first_ms":`
	const line = `[network] blocked by policy: evil.example:443 (mode no-network)`
	body := func(q request, id string) string {
		q.key = ownersKey
		if q.header == nil {
			q.header = map[string]string{}
		}
		if id != "" {
			q.header["Idempotency-Key"] = id
		}
		w := q.send(s)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: status %d: %s", q.path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	for _, id := range []string{"", "legacy", "legacy"} { // then from the journal
		if got := body(post("/execute_action", runTrue), id); !strings.Contains(got, denied) {
			t.Errorf("legacy: got %s", got)
		}
	}
	if got := body(post("/v1/actions", runTrue), "native"); !strings.Contains(got, denied) || !strings.Contains(got, `"process":"curl"}],"more":0,"attributed":true}`) {
		t.Errorf("native: got %s", got)
	}
	if got := body(streamed(linesType, runTrue), ""); !strings.Contains(got, denied) {
		t.Errorf("streamed: got %s", got)
	}
	for _, id := range []string{"legacy", "native"} {
		if got := body(get("/v1/actions/"+id), ""); !strings.Contains(got, denied) {
			t.Errorf("record: got %s", got)
		}
	}
	if got := body(post("/v1/tools/call", `{"name":"execute_bash","arguments":{"command":"true"}}`), "tool"); !strings.Contains(got, denied) || !strings.Contains(got, line) {
		t.Errorf("tool: got %s", got)
	}
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_bash","arguments":{"command":"true"}}}`
	if got := body(rpc("/mcp", call), ""); !strings.Contains(got, line) {
		t.Errorf("mcp: got %s", got)
	}
	body(post("/v1/actions", strings.Replace(runTrue, `"true"`, `"false"`, 1)), "other")
	var list api.RecordedActions
	if err := json.Unmarshal([]byte(body(get("/v1/actions"), "")), &list); err != nil || len(list.Actions) < 4 {
		t.Fatalf("the list: %+v, %v", list, err)
	}
	for _, a := range list.Actions {
		if a.Denied != (a.ID != "other") {
			t.Errorf("in the list: %+v", a)
		}
	}
	for _, path := range []string{"/execute_action", "/v1/actions"} {
		if got := body(post(path, strings.Replace(runTrue, `"true"`, `"false"`, 1)), ""); strings.Contains(got, "network") {
			t.Errorf("%s: got %s", path, got)
		}
	}
	if state := networkState(t, s); len(state.Denied) != 6 || state.Denied[0].Process != "curl" {
		t.Errorf("got %+v", state)
	}
}
