package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

const theKey = "the key of the gateway"

// fixture is a gateway on an engine without containers.
type fixture struct {
	engine   *dockertest.Engine
	host     *docker.Host
	stateDir string
	*gateway.Gateway
	spec *contract.Spec

	mu        sync.Mutex
	inhabited map[string]*inhabitant // by name of the container
	// answer is what sandboxes say to requests that have their key.
	answer http.HandlerFunc
}

// inhabitant is the server in a sandbox.
type inhabitant struct {
	fixture *fixture
	mu      sync.Mutex
	key     string
	got     []*http.Request // with the key, without bodies
}

// ServeHTTP is bound by the first claim and asks for its key from then on.
func (i *inhabitant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	key := i.key
	switch {
	case r.URL.Path == "/claim" && (key == "" || key == r.Header.Get("X-Claim")):
		i.key = r.Header.Get("X-Claim")
		i.mu.Unlock()
		return
	case r.URL.Path == "/claim":
		i.mu.Unlock()
		w.WriteHeader(http.StatusConflict)
		return
	case r.URL.Path == "/alive":
		i.mu.Unlock()
		return
	}
	right := key != "" && r.Header.Get(api.KeyHeader) == key
	if right {
		i.got = append(i.got, r)
	}
	i.mu.Unlock()
	if !right {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	i.fixture.answer(w, r)
}

func (h *fixture) serve(name string) http.Handler {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inhabited[name] == nil {
		h.inhabited[name] = &inhabitant{fixture: h}
	}
	return h.inhabited[name]
}

// idOf returns the id in the name of a container: actiond-ID-CONTROLLER.
func idOf(name string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(name, "actiond-"), "-")
	return id
}

// container returns the name of a sandbox's container.
func (h *fixture) container(id string) string {
	for name := range h.engine.States() {
		if idOf(name) == id {
			return name
		}
	}
	return ""
}

// requests are those that the sandbox of an id got.
func (h *fixture) requests(id string) []*http.Request {
	name := h.container(id)
	h.mu.Lock()
	i := h.inhabited[name]
	h.mu.Unlock()
	if i == nil {
		panic("no container of " + id)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.got
}

// agent claims inhabitants.
type agent struct {
	sandbox.Agent // what is not faked
}

func (agent) Ready(ctx context.Context, dial sandbox.DialFunc, _ string) error {
	return say(ctx, dial, "/alive", "")
}

func (agent) Claim(ctx context.Context, dial sandbox.DialFunc, c sandbox.Claim) error {
	return say(ctx, dial, "/claim", c.Key)
}

func (agent) Renew(context.Context, sandbox.DialFunc, string, string, time.Duration) error {
	return nil
}

func (agent) Status(context.Context, sandbox.DialFunc, string) (sandbox.Status, error) {
	return sandbox.Status{Busy: true}, nil
}

func say(ctx context.Context, dial sandbox.DialFunc, path, claim string) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox"+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("X-Claim", claim)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusConflict:
		return sandbox.ErrClaimed
	}
	return errors.New(resp.Status)
}

func newFixture(t *testing.T, change ...func(*fixture, *gateway.Config)) *fixture {
	t.Helper()
	h := &fixture{inhabited: map[string]*inhabitant{}, spec: contract.NewGatewaySpec(t), answer: func(http.ResponseWriter, *http.Request) {}}
	h.engine = dockertest.New(t, "debian", "actiond/there:1")
	h.engine.Serve = h.serve
	dir, err := os.MkdirTemp("/tmp", "gw-") //nolint:usetesting // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h.stateDir = filepath.Join(dir, "state")
	server := filepath.Join(dir, "server")
	testhelp.WriteFile(t, server, "a program", 0o700)
	phases := gateway.NewPhases()
	h.host, err = docker.Open(docker.Config{
		Engine: h.engine.Address, StateDir: h.stateDir, Servers: map[string]string{runtime.GOARCH: server},
		Agent: agent{}, ReadyTimeout: time.Minute, Progress: phases.Progress,
	})
	if err != nil {
		t.Fatal(err)
	}
	// The engine's client finds out the version with its first call, and not in a
	// way that others may call meanwhile.
	if _, err := h.host.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := gateway.Config{Driver: h.host, Key: theKey, Phases: phases, Version: "test"}
	for _, c := range change {
		c(h, &config)
	}
	if h.Gateway, err = gateway.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		if err := h.host.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// ask makes a request with the gateway's key and holds the answer to the
// description; route is the template of the path.
func (h *fixture) ask(t *testing.T, method, route, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set(api.GatewayKeyHeader, theKey)
	if strings.HasPrefix(path, "/v1/") && body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if err := h.spec.CheckResponse(method, route, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
		t.Error(err)
	}
	return w
}

// want fails unless the answer has the status and a text in it.
func want(t *testing.T, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), text) {
		t.Errorf("got %d %s\nwant %d with %q", w.Code, w.Body, status, text)
	}
}

func into[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return v
}

// make makes a sandbox over REST.
func (h *fixture) make(t *testing.T, body string, header ...string) api.Sandbox {
	t.Helper()
	w := h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", body, header...)
	if w.Code != http.StatusCreated && w.Code != http.StatusOK {
		t.Fatalf("creation: got %d %s", w.Code, w.Body)
	}
	return into[api.Sandbox](t, w)
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	described := map[gateway.Route]bool{}
	for _, rt := range h.spec.Routes() {
		described[gateway.Route{Method: rt.Method, Path: rt.Path, Open: h.spec.Open(rt)}] = true
	}
	for _, rt := range h.Routes() {
		if !described[rt] {
			t.Errorf("%+v is answered and not described", rt)
		}
		delete(described, rt)
	}
	for rt := range described {
		t.Errorf("%+v is described and not answered", rt)
	}
}

// The gateway demands of a body under /v1/ what a sandbox does, and of OpenHands nothing.
func TestBodiesSayJSON(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	s := h.make(t, `{"image":"debian"}`)
	const one = "/v1/sandboxes/{id}"
	for _, sent := range []string{"", "application/x-www-form-urlencoded", "text/plain"} {
		for route, body := range map[string]string{"/v1/sandboxes": `{"image":"debian"}`, one + "/renew": `{"ttl_seconds":60}`, one + "/ports/{port}/url": `{"ttl_seconds":60}`} {
			path := strings.NewReplacer("{id}", s.ID, "{port}", "8080").Replace(route)
			want(t, h.ask(t, "POST", route, path, body, "Content-Type", sent), 422, `{"detail":"header.Content-Type: must be application/json, got \"`+sent+`\"","errors":["header.Content-Type: must be application/json, got \"`+sent+`\""],"code":"unprocessable_entity"}`)
		}
		want(t, h.ask(t, "POST", "/start", "/start", `{"image":"debian","session_id":"s"}`, "Content-Type", sent), 200, "runtime_id")
	}
	want(t, h.ask(t, "POST", one+"/renew", "/v1/sandboxes/"+s.ID+"/renew", `{"ttl_seconds":60}`, "Content-Type", "application/json; charset=utf-8"), 200, s.ID)
}

func TestLife(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	const one = "/v1/sandboxes/{id}"
	body := `{"image":"debian","name":"build","owner":"me","env":{"A":"b"},"labels":{"x":"y"},"ttl_seconds":3600,"idle_limit_seconds":60}`
	s := h.make(t, body, api.IdempotencyKeyHeader, "k")
	at := "/v1/sandboxes/" + s.ID
	if s.Name != "build" || s.Owner != "me" || s.State != "ready" || s.Deadline == nil || s.IdleLimitSeconds != 60 || s.Labels["x"] != "y" ||
		s.User != "agent" || s.URL != "http://example.com/sandboxes/"+s.ID || len(s.SessionKey) != 64 {
		t.Errorf("got %+v", s)
	}
	plain := h.make(t, `{"image":"debian"}`)
	want(t, h.ask(t, "GET", one, "/v1/sandboxes/"+plain.ID, ""), 200, `"deadline":null,"idle_limit_seconds":0,"labels":{},`)
	want(t, h.ask(t, "DELETE", one, "/v1/sandboxes/"+plain.ID, ""), 204, "")
	w := h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", body, api.IdempotencyKeyHeader, "k")
	want(t, w, 200, s.ID)
	want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian"}`, api.IdempotencyKeyHeader, "k"), 409, "another specification")
	list := h.ask(t, "GET", "/v1/sandboxes", "/v1/sandboxes", "")
	want(t, list, 200, s.ID)
	if strings.Contains(list.Body.String(), s.SessionKey) {
		t.Error("the list tells keys")
	}
	want(t, h.ask(t, "GET", one, at, ""), 200, s.SessionKey)
	renewed := into[api.Sandbox](t, h.ask(t, "POST", one+"/renew", at+"/renew", `{"ttl_seconds":7200}`))
	if renewed.Deadline == nil || !renewed.Deadline.After(*s.Deadline) {
		t.Errorf("renewed: got %v, want it after %v", renewed.Deadline, s.Deadline)
	}
	if again := into[api.Sandbox](t, h.ask(t, "POST", one+"/renew", at+"/renew", `{"ttl_seconds":0}`)); again.Deadline != nil {
		t.Errorf("renewed without end: got %v", again.Deadline)
	}
	for _, step := range []struct {
		verb   string
		status int
		text   string
	}{
		{"pause", 200, `"paused"`},
		{"stop", 409, "paused"},
		{"resume", 200, `"ready"`},
		{"stop", 200, `"stopped"`},
		{"pause", 409, "stopped"},
		{"start", 200, `"ready"`},
	} {
		want(t, h.ask(t, "POST", one+"/"+step.verb, at+"/"+step.verb, ""), step.status, step.text)
	}
	want(t, h.ask(t, "DELETE", one, at, ""), 204, "")
	for id, status := range map[string]int{s.ID: 410, s.ID[:4]: 404, "build": 410, "..%2f" + s.ID: 404} {
		want(t, h.ask(t, "GET", one, "/v1/sandboxes/"+id, ""), status, map[int]string{404: "no such sandbox", 410: "it was removed"}[status])
	}
	want(t, h.ask(t, "DELETE", one, at, ""), 404, "no such sandbox")
	if left := h.engine.States(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Refusals have their statuses, say why, and leave nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, tt := range []struct {
		body   string
		status int
		text   string
	}{
		{`{`, 400, "body"},
		{`{"mounts":[{"source":"/","target":"/host"}],"image":"debian"}`, 400, `\"mounts\" is unknown`},
		{`{"image":"debian","allow_root":true}`, 400, `\"allow_root\" is unknown`},
		{`{"image":"debian","network":"host"}`, 400, "network"},
		{`{}`, 422, "no image is named"},
		{`{"image":"debian","memory":1}`, 422, "memory"},
		{`{"image":"elsewhere"}`, 422, "elsewhere"},
		{`{"image":"debian","labels":{"dev.actiond.id":"x"}}`, 422, "dev.actiond."},
		{`{"image":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "1048576"},
	} {
		want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", tt.body), tt.status, tt.text)
	}
	want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian"}`, api.IdempotencyKeyHeader, strings.Repeat("k", 257)), 400, "256")
	if left := h.engine.States(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Whether programs may run as root is the operator's decision, for all sandboxes.
func TestAllowRoot(t *testing.T) {
	t.Parallel()
	for _, allow := range []bool{false, true} {
		h := newFixture(t, func(_ *fixture, c *gateway.Config) { c.Defaults.AllowRoot = allow })
		command := h.engine.Command(h.container(h.make(t, `{"image":"debian"}`).ID))
		if slices.Contains(command, "--allow-root") != allow {
			t.Errorf("%t: the server is started by %q", allow, command)
		}
	}
}

// A stranger learns nothing, and the key of one sandbox is for nothing else.
func TestKeys(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	a, b := h.make(t, `{"image":"debian"}`), h.make(t, `{"image":"debian"}`)
	free := h.make(t, `{"image":"debian"}`)
	if err := h.host.Delete(t.Context(), find(t, h, free.ID)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path             string
		gateway, first, second string
		status                 int
	}{
		{"nothing", "/v1/sandboxes", "", "", "", 403},
		{"wrong", "/v1/sandboxes", "x", "", "", 403},
		{"session key for REST", "/v1/sandboxes", "", a.SessionKey, "", 403},
		{"session key as the gateway's", "/v1/sandboxes", a.SessionKey, "", "", 403},
		{"no such path, no key", "/nothing", "", "", "", 403},
		{"no such path", "/nothing", theKey, "", "", 404},
		{"open path in disguise", "/%61live", "", "", "", 403},
		{"metrics", "/metrics", "", "", "", 403},
		{"A with nothing", "/sandboxes/" + a.ID + "/x", "", "", "", 403},
		{"A with the gateway's", "/sandboxes/" + a.ID + "/x", theKey, "", "", 200},
		{"A with its own", "/sandboxes/" + a.ID + "/x", "", a.SessionKey, "", 200},
		{"A with both", "/sandboxes/" + a.ID + "/x", theKey, a.SessionKey, "", 200},
		{"A with its own and a wrong gateway's", "/sandboxes/" + a.ID + "/x", "x", a.SessionKey, "", 200},
		{"A with B's", "/sandboxes/" + a.ID + "/x", "", b.SessionKey, "", 403},
		{"A with B's and the gateway's", "/sandboxes/" + a.ID + "/x", theKey, b.SessionKey, "", 403},
		{"A with both keys", "/sandboxes/" + a.ID + "/x", "", a.SessionKey, b.SessionKey, 403},
		{"A with an empty one", "/sandboxes/" + a.ID + "/x", theKey, "", " ", 403},
		{"none with A's", "/sandboxes/" + free.ID + "/x", "", a.SessionKey, "", 403},
		{"none with its own", "/sandboxes/" + free.ID + "/x", "", free.SessionKey, "", 404},
		{"none with the gateway's", "/sandboxes/" + free.ID + "/x", theKey, "", "", 404},
		{"no id with A's", "/sandboxes/" + a.ID + "x/x", "", a.SessionKey, "", 403},
		{"no id with the gateway's", "/sandboxes/x/x", theKey, "", "", 404},
		{"encoded id", "/sandboxes/%30" + a.ID[1:] + "/x", "", a.SessionKey, "", 403},
		{"upper case", "/sandboxes/" + strings.ToUpper(a.ID) + "X/x", "", a.SessionKey, "", 403},
		{"from A to B", "/sandboxes/" + a.ID + "/../" + b.ID + "/x", "", a.SessionKey, "", 400},
		{"from A to B, encoded", "/sandboxes/" + a.ID + "/%2e%2E/" + b.ID + "/x", "", a.SessionKey, "", 400},
		{"from A to B, slashes encoded", "/sandboxes/" + a.ID + "%2f..%2f" + b.ID + "/x", "", a.SessionKey, "", 403},
		{"from A to REST", "/sandboxes/" + a.ID + "/../../v1/sandboxes", "", a.SessionKey, "", 400},
		{"from REST to A", "/v1/../sandboxes/" + a.ID + "/x", "", a.SessionKey, "", 403},
		{"slashes before", "//sandboxes/" + a.ID + "/x", "", a.SessionKey, "", 403},
		{"no slash after", "/sandboxes/" + a.ID, "", a.SessionKey, "", 404},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://gateway"+tt.path, nil)
		if tt.gateway != "" {
			r.Header.Set(api.GatewayKeyHeader, tt.gateway)
		}
		for _, key := range []string{tt.first, tt.second} {
			if key != "" {
				r.Header.Add(api.KeyHeader, key)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("%s: got %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
	}
	for _, r := range append(h.requests(a.ID), h.requests(b.ID)...) {
		if r.URL.Path != "/x" || r.Header.Get(api.GatewayKeyHeader) != "" {
			t.Errorf("a sandbox got %s with %v", r.URL, r.Header)
		}
	}
	if n := len(h.requests(b.ID)); n != 0 {
		t.Errorf("B got %d requests, want none", n)
	}
}

func find(t *testing.T, h *fixture, id string) *sandbox.Sandbox {
	t.Helper()
	s, err := h.host.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(_ *fixture, c *gateway.Config) { c.MaxSandboxes = 3 })
	var group sync.WaitGroup
	statuses := make([]int, 12)
	for i := range statuses {
		group.Go(func() {
			statuses[i] = h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian"}`, api.IdempotencyKeyHeader, fmt.Sprint("k", i)).Code
		})
	}
	group.Wait()
	count := map[int]int{}
	first := 0
	for i, s := range statuses {
		count[s]++
		if s == 201 {
			first = i
		}
	}
	if count[201] != 3 || count[429] != 9 || len(h.engine.States()) != 3 {
		t.Errorf("got %v and %v, want three sandboxes", count, h.engine.States())
	}
	// One that is there already is no more than before.
	w := h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian"}`, api.IdempotencyKeyHeader, fmt.Sprint("k", first))
	want(t, w, 200, "ready")
}

// A name belongs to one sandbox, also where many ask for it at once.
func TestNameIsTaken(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var group sync.WaitGroup
	statuses := make([]int, 6)
	for i := range statuses {
		group.Go(func() {
			statuses[i] = h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian","name":"dup"}`).Code
		})
	}
	group.Wait()
	slices.Sort(statuses)
	if want := []int{201, 409, 409, 409, 409, 409}; !slices.Equal(statuses, want) {
		t.Errorf("got %v, want %v", statuses, want)
	}
	w := h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian","name":"dup"}`)
	want(t, w, 409, "has the name dup")
}

// A client that leaves in mid-create leaves nothing.
func TestLeaves(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"create", "start"} {
		ctx, leave := context.WithCancel(t.Context())
		h := newFixture(t)
		if err := h.host.Prepare(ctx, sandbox.Spec{Image: "debian"}); err != nil {
			t.Fatal(err)
		}
		h.engine.Hold = func(name string) {
			if name == call {
				leave()
			}
		}
		r := httptest.NewRequestWithContext(ctx, "POST", "/v1/sandboxes", strings.NewReader(`{"image":"debian"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(api.GatewayKeyHeader, theKey)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		want(t, w, 499, "closed the connection")
		if _, err := h.host.Prune(t.Context(), false); err != nil {
			t.Error(err)
		}
		if left := h.engine.States(); len(left) > 0 {
			t.Errorf("left in %s: %v", call, left)
		}
		want(t, h.ask(t, "GET", "/v1/sandboxes", "/v1/sandboxes", ""), 200, `[]`)
	}
}

// The known state of a sandbox is used while the engine is down, and nothing else
// is claimed to be known.
func TestEngineDown(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }
	s := h.make(t, `{"image":"debian"}`)
	want(t, h.ask(t, "GET", "/readyz", "/readyz", ""), 200, "ready")
	h.engine.SetDown(true)
	for range 3 {
		if w := h.through(t, s.ID, "GET", "/x"); w.Code != 200 || w.Body.String() != "hello" {
			t.Errorf("got %d %s, want an answer of the sandbox", w.Code, w.Body)
		}
	}
	for _, tt := range [][3]string{
		{"GET", "/v1/sandboxes", ""},
		{"POST", "/v1/sandboxes", `{"image":"debian"}`},
		{"GET", "/v1/sandboxes/{id}", ""},
		{"DELETE", "/v1/sandboxes/{id}", ""},
		{"POST", "/v1/sandboxes/{id}/pause", ""},
		{"GET", "/runtime/{runtime_id}", ""},
		{"POST", "/stop", `{"runtime_id":"` + s.ID + `"}`},
		{"POST", "/start", `{"image":"debian","session_id":"s"}`},
	} {
		path := strings.NewReplacer("{id}", s.ID, "{runtime_id}", s.ID).Replace(tt[1])
		want(t, h.ask(t, tt[0], tt[1], path, tt[2]), 503, "cannot be reached")
	}
	if w := h.through(t, "0123456789ab", "GET", "/x"); w.Code != 503 {
		t.Errorf("an unknown sandbox: got %d, want 503", w.Code)
	}
	h.engine.SetDown(false)
	testhelp.Eventually(t, func() bool { return h.ask(t, "GET", "/readyz", "/readyz", "").Code == 200 }, "the gateway is ready")
	want(t, h.ask(t, "GET", "/v1/sandboxes/{id}", "/v1/sandboxes/"+s.ID, ""), 200, "ready")
}

// through asks a sandbox with the gateway's key.
func (h *fixture) through(t *testing.T, id, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/sandboxes/"+id+path, nil)
	r.Header.Set(api.GatewayKeyHeader, theKey)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// request sends a request with keys, of which each may be "".
func (h *fixture) request(t *testing.T, method, path, operator, session string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for name, key := range map[string]string{api.GatewayKeyHeader: operator, api.KeyHeader: session} {
		if key != "" {
			r.Header.Set(name, key)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPool(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(h *fixture, c *gateway.Config) {
		var err error
		if c.Pool, err = sandbox.NewPool(t.Context(), h.host, "warm", sandbox.Spec{Image: "debian"}, 2, nil); err != nil {
			t.Fatal(err)
		}
		c.PoolSize = 2
		c.Defaults = sandbox.Spec{Image: "debian"}
	})
	ctx, end := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { h.Pool().Run(ctx, time.Hour) })
	defer group.Wait()
	defer end()
	warm := func() int {
		return strings.Count(h.ask(t, "GET", "/metrics", "/metrics", "").Body.String(), `actiond_gateway_pool_sandboxes{state="ready"} 2`)
	}
	testhelp.Eventually(t, func() bool { return warm() == 1 }, "two sandboxes are ready")
	want(t, h.ask(t, "GET", "/v1/sandboxes", "/v1/sandboxes", ""), 200, `[]`)
	for name := range h.engine.States() {
		if id := idOf(name); sandbox.IsID(id) {
			want(t, h.through(t, id, "GET", "/x"), 404, "no such sandbox")
			want(t, h.ask(t, "DELETE", "/v1/sandboxes/{id}", "/v1/sandboxes/"+id, ""), 404, "")
		}
	}
	first := h.make(t, `{"env":{"A":"b"},"name":"mine"}`)
	if !first.Warm || first.Name != "mine" {
		t.Errorf("got %+v, want a warm one", first)
	}
	if w := h.through(t, first.ID, "GET", "/x"); w.Code != 200 {
		t.Errorf("its first request: got %d %s", w.Code, w.Body)
	}
	if other := h.make(t, `{"memory":1073741824}`); other.Warm {
		t.Error("another specification came from the pool")
	}
	// Taken at once by many, none is given twice.
	ids := make([]string, 6)
	var takers sync.WaitGroup
	for i := range ids {
		takers.Go(func() { ids[i] = h.make(t, `{}`).ID })
	}
	takers.Wait()
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			t.Errorf("%s was given twice", id)
		}
		seen[id] = true
		if w := h.through(t, id, "GET", "/x"); w.Code != 200 {
			t.Errorf("%s: got %d %s", id, w.Code, w.Body)
		}
	}
	testhelp.Eventually(t, func() bool { return warm() == 1 }, "the pool is full")
	// OpenHands' sandboxes come from it too.
	w := h.ask(t, "POST", "/start", "/start", `{"image":"debian","session_id":"s","command":["x","--working-dir","/workspace"]}`)
	want(t, w, 200, `"pod_status":"ready"`)
	if text := h.ask(t, "GET", "/metrics", "/metrics", "").Body.String(); !strings.Contains(text, `actiond_gateway_creations_total{outcome="claimed"}`) {
		t.Errorf("no claims in the metrics:\n%s", text)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	s := h.make(t, `{"image":"debian"}`)
	h.make(t, `{"image":"debian"}`)
	h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{}`)
	h.ask(t, "POST", "/v1/sandboxes/{id}/pause", "/v1/sandboxes/"+s.ID+"/pause", "")
	h.through(t, s.ID, "BREW", "/x")
	text := h.ask(t, "GET", "/metrics", "/metrics", "").Body.String()
	for _, line := range []string{
		`actiond_gateway_creations_total{outcome="created"} 2`,
		`actiond_gateway_creations_total{outcome="refused"} 1`,
		`actiond_gateway_creation_duration_seconds_count{outcome="created"} 2`,
		`actiond_gateway_creation_phase_seconds_count{phase="pending"} 2`,
		`actiond_gateway_creation_phase_seconds_count{phase="creating"} 2`,
		`actiond_gateway_creation_phase_seconds_count{phase="starting"} 2`,
		`actiond_gateway_sandboxes{state="ready"} 1`,
		`actiond_gateway_sandboxes{state="paused"} 1`,
		`actiond_gateway_engine_up 1`,
		`actiond_gateway_http_requests_total{code="5xx",method="other",route="/sandboxes/{id}"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%q is missing", line)
		}
	}
	if strings.Contains(text, s.ID) || strings.Contains(text, s.SessionKey) {
		t.Error("the metrics name sandboxes")
	}
	h.engine.SetDown(true)
	if text := h.ask(t, "GET", "/metrics", "/metrics", "").Body.String(); !strings.Contains(text, "actiond_gateway_engine_up 0\n") || strings.Contains(text, "actiond_gateway_sandboxes{") {
		t.Error("the metrics claim to know how many sandboxes there are while the engine is down")
	}
}

// TestMetricsDescriptions compares names, types and help texts with those that
// dashboards were made for.
func TestMetricsDescriptions(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.make(t, `{"image":"debian"}`)
	var got strings.Builder
	for line := range strings.Lines(h.ask(t, "GET", "/metrics", "/metrics", "").Body.String()) {
		if strings.HasPrefix(line, "# HELP actiond_") || strings.HasPrefix(line, "# TYPE actiond_") {
			got.WriteString(line)
		}
	}
	const want = `# HELP actiond_gateway_build_info Always 1; the labels tell the version and what it was built with.
# TYPE actiond_gateway_build_info gauge
# HELP actiond_gateway_creation_duration_seconds Time until a sandbox could be used, for those that were created, claimed or found.
# TYPE actiond_gateway_creation_duration_seconds histogram
# HELP actiond_gateway_creation_phase_seconds Time that creations and claims spend in each phase.
# TYPE actiond_gateway_creation_phase_seconds histogram
# HELP actiond_gateway_creations_total Sandboxes asked for, by outcome: created, claimed from the pool, found, refused, failed or abandoned.
# TYPE actiond_gateway_creations_total counter
# HELP actiond_gateway_engine_up 1 if the Docker engine can be reached; 0 if the state of the sandboxes is unknown.
# TYPE actiond_gateway_engine_up gauge
# HELP actiond_gateway_http_request_bytes_total Bytes of request bodies.
# TYPE actiond_gateway_http_request_bytes_total counter
# HELP actiond_gateway_http_requests_total HTTP requests by method, route and class of the status; method and route are empty where no route matched.
# TYPE actiond_gateway_http_requests_total counter
# HELP actiond_gateway_http_response_bytes_total Bytes of response bodies.
# TYPE actiond_gateway_http_response_bytes_total counter
# HELP actiond_gateway_network_changes_total Changes of network policies asked for, by outcome: applied, unchanged, stored until the egress proxy answers, refused or failed.
# TYPE actiond_gateway_network_changes_total counter
# HELP actiond_gateway_pool_sandboxes Sandboxes in the warm pool by state; only ready ones can be claimed.
# TYPE actiond_gateway_pool_sandboxes gauge
# HELP actiond_gateway_pool_size Sandboxes that the warm pool should have.
# TYPE actiond_gateway_pool_size gauge
# HELP actiond_gateway_proxied_in_flight Requests that are being passed on to sandboxes.
# TYPE actiond_gateway_proxied_in_flight gauge
# HELP actiond_gateway_sandboxes Sandboxes of this host by state, without those in the pool.
# TYPE actiond_gateway_sandboxes gauge
`
	if got := got.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestServe ends a gateway in the middle of everything: it comes back, sandboxes
// stay, and creations that were under way are undone.
func TestServe(t *testing.T) {
	t.Parallel()
	held, ended := make(chan bool, 10), make(chan bool)
	var holding sync.Once
	h := newFixture(t)
	h.answer = func(_ http.ResponseWriter, r *http.Request) { held <- true; <-r.Context().Done() }
	l := testhelp.Listen(t)
	ctx, end := context.WithCancel(t.Context())
	var served error
	go func() { defer close(ended); served = h.Serve(ctx, l) }()
	s := h.make(t, `{"image":"debian"}`)
	h.engine.Hold = func(call string) {
		if call == "start" {
			holding.Do(func() { held <- true; <-ctx.Done() })
		}
	}
	statuses := make(chan int, 2)
	for path, body := range map[string]string{"/v1/sandboxes": `{"image":"debian"}`, "/sandboxes/" + s.ID + "/execute_action": "{}"} {
		go func() {
			r, _ := http.NewRequest(http.MethodPost, "http://"+l.Addr().String()+path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(api.GatewayKeyHeader, theKey)
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Error(err)
				statuses <- 0
				return
			}
			resp.Body.Close()
			statuses <- resp.StatusCode
		}()
	}
	<-held
	<-held
	end()
	got := []int{<-statuses, <-statuses}
	for _, status := range got {
		// 503 would make a client send an action again that may be running.
		if status != 500 && status != 503 && status != 201 {
			t.Errorf("got %v, want an answer for both", got)
		}
	}
	<-ended
	if served != nil {
		t.Error(served)
	}
	if all := h.engine.States(); all[h.container(s.ID)] != "running" {
		t.Errorf("the sandbox does not live on: %v", all)
	}
}

// The port for monitoring systems answers without a key, and nothing but metrics.
func TestServeMetrics(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.make(t, `{"image":"debian"}`)
	l := testhelp.Listen(t)
	stop := h.ServeMetrics(t.Context(), l)
	for path, want := range map[string]int{"/metrics": 200, "/v1/sandboxes": 404, "/": 404} {
		response, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != want || strings.Contains(string(text), "actiond_gateway_sandboxes{") != (want == 200) {
			t.Errorf("%s: %d, %s, %v", path, response.StatusCode, text, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

// Paths take the name of a sandbox as well as its id, and not the beginning of an id. A client
// that has no key for it does not learn whether a name is in use.
func TestSandboxesByName(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get(api.PrefixHeader))
	}
	const one = "/v1/sandboxes/{id}"
	a, b := h.make(t, `{"image":"debian","name":"agent-1"}`), h.make(t, `{"image":"debian","name":"0123456789ab"}`)
	want(t, h.ask(t, "GET", one, "/v1/sandboxes/agent-1", ""), 200, a.ID)
	want(t, h.ask(t, "POST", one+"/pause", "/v1/sandboxes/agent-1/pause", ""), 200, `"paused"`)
	want(t, h.ask(t, "POST", one+"/resume", "/v1/sandboxes/agent-1/resume", ""), 200, `"ready"`)
	want(t, h.through(t, "agent-1", "GET", "/x"), 200, "/x /sandboxes/agent-1")
	for _, ref := range []string{a.ID[:11], "0123456789ab", "agent-2", "agent-1%2f", "."} {
		want(t, h.ask(t, "GET", one, "/v1/sandboxes/"+ref, ""), 404, "no such sandbox")
		want(t, h.through(t, ref, "GET", "/x"), 404, "no such sandbox")
	}
	for _, test := range []struct {
		ref, key string
		status   int
	}{
		{"agent-1", a.SessionKey, 200},
		{"agent-1", b.SessionKey, 403},
		{"agent-1", "", 403},
		{"agent-2", a.SessionKey, 403},
		{"0123456789ab", b.SessionKey, 403},
		{b.ID, b.SessionKey, 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sandboxes/"+test.ref+"/x", nil)
		if test.key != "" {
			r.Header.Set(api.KeyHeader, test.key)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.status || test.status == 403 && w.Body.String() != `{"detail":"Invalid API Key"}` {
			t.Errorf("%+v: got %d %s", test, w.Code, w.Body)
		}
	}
	want(t, h.ask(t, "DELETE", one, "/v1/sandboxes/agent-1", ""), 204, "")
	want(t, h.through(t, "agent-1", "GET", "/x"), 404, "no such sandbox")
}
