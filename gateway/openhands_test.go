package gateway_test

import (
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

const startBody = `{"image":"debian","command":["/openhands/micromamba/bin/micromamba","run","python","-u","-m","openhands.runtime.action_execution_server",
	"60000","--working-dir","/w","--plugins","agent_skills","jupyter","--username","openhands","--user-id","1234","--no-enable-browser"],
	"working_dir":"/openhands/code/","environment":{"DEBUG":"true"},"session_id":"s/1","resource_factor":2,"new_member":[]}`

// TestOpenHands is the sequence of calls that RemoteRuntime makes.
func TestOpenHands(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	const session, runtime = "/sessions/{session_id}", "/runtime/{runtime_id}"
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 404, "no such sandbox")
	started := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", startBody))
	if started.URL != "http://example.com/sandboxes/"+started.RuntimeID || len(started.SessionKey) != 64 || started.Status != "running" || started.PodStatus != "ready" {
		t.Errorf("/start: got %+v", started)
	}
	id := `{"runtime_id":"` + started.RuntimeID + `"}`
	at := "/runtime/" + started.RuntimeID
	want(t, h.ask(t, "GET", runtime, at, ""), 200, `"pod_status":"ready"`)
	if w := h.through(t, started.RuntimeID, "GET", "/server_info", api.KeyHeader, started.SessionKey); w.Code != 200 {
		t.Errorf("with both keys: got %d", w.Code)
	}
	s := find(t, h, started.RuntimeID)
	details, err := h.host.Inspect(t.Context(), s)
	if err == nil && details.Memory != 0 && details.Memory != 4<<30 {
		t.Errorf("memory: got %d, want it doubled", details.Memory)
	}
	if s.User != "openhands:1234" || s.Owner != "openhands" {
		t.Errorf("got user %s, owner %s", s.User, s.Owner)
	}
	// Again, also from another gateway of the same host.
	other, err := gateway.New(gateway.Config{Driver: h.host, Key: theKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	h.Gateway = other
	again := into[api.Runtime](t, h.ask(t, "GET", session, "/sessions/s%2F1", ""))
	started.WorkHosts, again.WorkHosts = nil, nil
	if !reflect.DeepEqual(again, started) {
		t.Errorf("found again: got %+v, want %+v", again, started)
	}
	if twice := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", startBody)); twice.RuntimeID != started.RuntimeID || twice.SessionKey != started.SessionKey {
		t.Errorf("started twice: got %+v, want %+v", twice, started)
	}
	want(t, h.ask(t, "POST", "/pause", "/pause", id), 200, "paused")
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 200, `"status":"paused"`)
	want(t, h.ask(t, "POST", "/resume", "/resume", id), 200, `"pod_status":"ready"`)
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 200, `"status":"running"`)
	h.engine.Kill(h.container(started.RuntimeID), false)
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 200, `"status":"stopped"`)
	want(t, h.ask(t, "GET", runtime, at, ""), 200, `"pod_status":"failed"`)
	want(t, h.ask(t, "POST", "/pause", "/pause", id), 200, "stopped")
	want(t, h.ask(t, "POST", "/resume", "/resume", id), 200, `"pod_status":"ready"`)
	h.engine.Kill(h.container(started.RuntimeID), false)
	if back := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", startBody)); back.SessionKey != started.SessionKey || back.PodStatus != "ready" {
		t.Errorf("started after its death: got %+v", back)
	}
	for range 2 {
		want(t, h.ask(t, "POST", "/stop", "/stop", id), 200, `"pod_status":"not found"`)
	}
	want(t, h.ask(t, "GET", runtime, at, ""), 200, `"pod_status":"not found"`)
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 404, "")
	want(t, h.ask(t, "POST", "/resume", "/resume", id), 404, "")
	want(t, h.ask(t, "POST", "/pause", "/pause", id), 404, "")
	if left := h.engine.States(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A request to a paused sandbox of OpenHands resumes it: RemoteRuntime would
// call /resume itself after a 503, and then wait for a lock that it holds.
func TestOpenHandsResumesOnRequest(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.listen(t) // it watches the engine
	started := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", startBody))
	id := `{"runtime_id":"` + started.RuntimeID + `"}`
	at := "/sessions/s%2F1"
	status := func() string {
		return into[api.Runtime](t, h.ask(t, "GET", "/sessions/{session_id}", at, "")).Status
	}
	act := func(key ...string) *httptest.ResponseRecorder {
		return h.through(t, started.RuntimeID, "POST", "/execute_action", key...)
	}
	pause := func() { want(t, h.ask(t, "POST", "/pause", "/pause", id), 200, "paused") }

	pause()
	want(t, act(api.GatewayKeyHeader, "", api.KeyHeader, "wrong"), 403, "")
	if got := status(); got != "paused" {
		t.Errorf("after a request with a wrong key: got %s, want paused", got)
	}
	want(t, act(), 200, "")
	if got := status(); got != "running" {
		t.Errorf("after an action: got %s, want running", got)
	}
	pause()
	want(t, act(api.GatewayKeyHeader, "", api.KeyHeader, started.SessionKey), 200, "")

	// Many at once, all of them answered.
	pause()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { want(t, act(), 200, "") })
	}
	all.Wait()

	// By another request, whose event has not come yet.
	pause()
	h.engine.Lock()
	for _, c := range h.engine.Containers {
		c.State = "running" // without an event
	}
	h.engine.Unlock()
	want(t, act(), 200, "")

	// By others than the gateway.
	if err := h.host.Pause(t.Context(), find(t, h, started.RuntimeID)); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return act().Code == 200 && status() == "running" }, "an action resumes the runtime")

	// An action brings a stopped one back too; other requests say that it is
	// stopped, and the client resumes it without its lock.
	h.engine.Kill(h.container(started.RuntimeID), false)
	testhelp.Eventually(t, func() bool { return h.through(t, started.RuntimeID, "GET", "/alive").Code == 503 }, "the dead sandbox is noticed")
	want(t, act(), 200, "")
	if got := status(); got != "running" {
		t.Errorf("after an action: got %s, want running", got)
	}
}

// The server of a sandbox gets the settings that RemoteRuntime sends, in the
// command line of OpenHands' own server and in the environment, and no others.
func TestOpenHandsSettings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, command, environment string
		defaults                   []string // of the operator
		want                       []string
	}{
		{"nothing", `[]`, `{}`, nil, nil},
		{"soft timeout", `[]`, `{"NO_CHANGE_TIMEOUT_SECONDS":"3"}`, nil, []string{"--soft-timeout=3s"}},
		{"empty variable", `[]`, `{"NO_CHANGE_TIMEOUT_SECONDS":""}`, nil, nil},
		{"plugins", `["x","--plugins","jupyter","agent_skills","--username","openhands"]`, `{}`, nil, []string{"--plugins=agent_skills", "--plugins=jupyter"}},
		{"plugins at the end", `["--plugins","jupyter","jupyter"]`, `{}`, nil, []string{"--plugins=jupyter"}},
		{"one plugin with a sign", `["--plugins=vscode","60000"]`, `{}`, nil, []string{"--plugins=vscode"}},
		{"no browser", `["--no-enable-browser"]`, `{}`, nil, []string{"--no-enable-browser"}},
		{"browser", `["--no-enable-browser","--enable-browser"]`, `{}`, nil, []string{"--enable-browser"}},
		{
			"nothing else", `["--state-dir","/x","--addr=0.0.0.0:1","--claim-hash","00","--session-key-file","/etc/shadow","--draft-model-url","http://x","--browsergym-eval-env","a","b"]`,
			`{"SESSION_API_KEY":"k","LD_PRELOAD":"x","GODEBUG":"x=1"}`, nil, nil,
		},
		{
			"over the operator's", `["--plugins","jupyter","--enable-browser"]`, `{"NO_CHANGE_TIMEOUT_SECONDS":"5"}`,
			[]string{"--soft-timeout=30s", "--no-enable-browser", "--plugins=vscode"},
			[]string{"--plugins=jupyter", "--enable-browser", "--soft-timeout=5s"},
		},
		{"beside the operator's", `["--plugins","jupyter"]`, `{}`, []string{"--soft-timeout=30s"}, []string{"--soft-timeout=30s", "--plugins=jupyter"}},
		{
			"as the operator's", `["--plugins","agent_skills","jupyter"]`, `{}`,
			[]string{"--plugins=jupyter", "--plugins=agent_skills"},
			[]string{"--plugins=jupyter", "--plugins=agent_skills"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, func(_ *fixture, c *gateway.Config) { c.Defaults.Flags = tt.defaults })
			body := `{"image":"debian","session_id":"s","command":` + tt.command + `,"environment":` + tt.environment + `}`
			w := h.ask(t, "POST", "/start", "/start", body)
			want(t, w, 200, "ready")
			words := h.engine.Command(h.container(into[api.Runtime](t, w).RuntimeID))
			hash := slices.Index(words, "--claim-hash")
			if hash < 0 || len(words) < hash+4 || words[hash+2] != "--ttl" { // until it is claimed
				t.Fatalf("got %q", words)
			}
			if got := words[hash+4:]; !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A warm sandbox with the settings that RemoteRuntime sends is claimed.
func TestOpenHandsWarm(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(h *fixture, c *gateway.Config) {
		c.Defaults = sandbox.Spec{
			Image: "debian", User: "openhands", UserID: 1234, WorkDir: "/w",
			Flags: []string{"--plugins=agent_skills", "--plugins=jupyter", "--no-enable-browser"},
		}
		var err error
		if c.Pool, err = sandbox.NewPool(t.Context(), h.host, "serve", c.Defaults, 1, nil); err != nil {
			t.Fatal(err)
		}
	})
	h.listen(t) // it fills the pool
	var warm string
	testhelp.Eventually(t, func() bool {
		all, err := h.host.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.State != sandbox.Ready { // its container runs before that
				continue
			}
			// Resume waits for the lock that its creation holds for a moment longer.
			if err := h.host.Resume(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			warm = h.container(s.ID)
		}
		return warm != ""
	}, "the pool has a ready sandbox")
	command := h.engine.Command(warm)
	started := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", strings.Replace(startBody, `"resource_factor":2`, `"resource_factor":1`, 1)))
	if got := h.engine.Command(h.container(started.RuntimeID)); !slices.Equal(got, command) {
		t.Errorf("it was not the warm one: got %q, want %q", got, command)
	}
}

func TestOpenHandsRefusals(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for body, status := range map[string]int{
		`{"image":"debian","session_id":"a","runtime_class":"sysbox-runc"}`:                                422,
		`{"image":"debian","session_id":"b","command":["--user-id","x"]}`:                                  422,
		`{"image":"debian","session_id":"c","command":["--working-dir","x"]}`:                              422,
		`{"image":"debian","session_id":"e","command":["--plugins","skills"]}`:                             422,
		`{"image":"debian","session_id":"f","command":["--plugins=--addr=x"]}`:                             422,
		`{"image":"debian","session_id":"g","command":["--plugins"]}`:                                      422,
		`{"image":"debian","session_id":"h","environment":{"NO_CHANGE_TIMEOUT_SECONDS":"0"}}`:              422,
		`{"image":"debian","session_id":"i","environment":{"NO_CHANGE_TIMEOUT_SECONDS":"1.5"}}`:            422,
		`{"image":"debian","session_id":"j","environment":{"NO_CHANGE_TIMEOUT_SECONDS":"99999999999999"}}`: 422,
		`{"image":"nowhere","session_id":"d"}`:                                                             422,
		`{"image":"debian"}`:                                                                               400,
	} {
		want(t, h.ask(t, "POST", "/start", "/start", body), status, "detail")
	}
	failed := sandbox.ID("openhands session d")
	want(t, h.ask(t, "GET", "/runtime/{runtime_id}", "/runtime/"+failed, ""), 200, `"pod_status":"failed"`)
	want(t, h.ask(t, "GET", "/runtime/{runtime_id}", "/runtime/..%2fx", ""), 200, `"pod_status":"not found"`)
	want(t, h.ask(t, "POST", "/stop", "/stop", `{"runtime_id":"../x"}`), 200, `"not found"`)
}

// A client whose start failed has no id, and closes all the same. A refusal
// would take the place of the reason why the start failed.
func TestOpenHandsCloseWithoutRuntime(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	const null, absent = `{"runtime_id":null}`, `{}`
	want(t, h.ask(t, "POST", "/stop", "/stop", null), 200, `"pod_status":"not found"`)
	want(t, h.ask(t, "POST", "/pause", "/pause", null), 200, `"pod_status":"not found"`)
	want(t, h.ask(t, "POST", "/resume", "/resume", null), 404, "")
	for _, path := range []string{"/stop", "/pause", "/resume"} {
		want(t, h.ask(t, "POST", path, path, absent), 400, "runtime_id")
	}
}

// A creation that takes longer than a client waits is answered, goes on, and is
// undone when it is stopped.
func TestOpenHandsSlow(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	goOn := make(chan bool)
	h.engine.Hold = func(call string) {
		if call == "start" {
			<-goOn
		}
	}
	first := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", startBody))
	if first.PodStatus != "pending" || len(first.SessionKey) != 64 {
		t.Errorf("got %+v, want it pending", first)
	}
	at := "/runtime/" + first.RuntimeID
	want(t, h.ask(t, "GET", "/runtime/{runtime_id}", at, ""), 200, `"pod_status":"pending"`)
	want(t, h.ask(t, "GET", "/sessions/{session_id}", "/sessions/s%2F1", ""), 200, first.SessionKey)
	want(t, h.ask(t, "POST", "/start", "/start", strings.Replace(startBody, "1234", "1235", 1)), 409, "being created")
	if w := h.through(t, first.RuntimeID, "GET", "/x"); w.Code != 503 && w.Code != 404 {
		t.Errorf("got %d of a sandbox that is not there yet", w.Code)
	}
	close(goOn)
	testhelp.Eventually(t, func() bool {
		return strings.Contains(h.ask(t, "GET", "/runtime/{runtime_id}", at, "").Body.String(), `"pod_status":"ready"`)
	}, "the runtime is ready")
	if w := h.through(t, first.RuntimeID, "GET", "/x", api.KeyHeader, first.SessionKey); w.Code != 200 {
		t.Errorf("with the key that was told before: got %d %s", w.Code, w.Body)
	}
}

// A gateway that ends undoes what it began.
func TestOpenHandsEnd(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	begun, goOn := make(chan bool, 1), make(chan bool)
	h.engine.Hold = func(call string) {
		if call == "start" {
			begun <- true
			<-goOn
		}
	}
	done := make(chan int)
	go func() { done <- h.ask(t, "POST", "/start", "/start", startBody).Code }()
	<-begun
	closed := make(chan bool)
	go func() { h.Close(); close(closed) }()
	if status := <-done; status != 503 {
		t.Errorf("got %d, want 503", status)
	}
	close(goOn)
	<-closed
	if _, err := h.host.Prune(t.Context(), false); err != nil {
		t.Error(err)
	}
	if left := h.engine.States(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	want(t, h.ask(t, "POST", "/start", "/start", startBody), 503, "shutting down")
}

// Nothing is built: the answer has the setting that takes any image. Unauthenticated clients do not get it.
func TestBuildsNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, call := range []string{"GET /registry_prefix", "GET /image_exists?image=debian", "POST /build", "GET /build_status?build_id=x"} {
		method, target, _ := strings.Cut(call, " ")
		for key, answer := range map[string]struct {
			status int
			text   string
		}{theKey: {404, "runtime_container_image"}, "wrong": {403, "Invalid API Key"}} {
			r, w := httptest.NewRequestWithContext(t.Context(), method, target, nil), httptest.NewRecorder()
			r.Header.Set(api.GatewayKeyHeader, key)
			h.ServeHTTP(w, r)
			want(t, w, answer.status, answer.text)
		}
	}
}
