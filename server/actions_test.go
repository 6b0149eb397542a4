package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// field returns a string of a JSON object.
func field(tb testing.TB, body []byte, name string) string {
	tb.Helper()
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		tb.Fatalf("answer %s: %v", body, err)
	}
	s, _ := m[name].(string)
	if s == "" {
		tb.Fatalf("answer %s has no %q", body, name)
	}
	return s
}

func TestActionGoesIn(t *testing.T) {
	t.Parallel()
	var got api.Request
	f := &fake{do: func(_ context.Context, req api.Request) (api.Observation, error) {
		got = req
		return api.WriteObservation{Path: "/w/a"}, nil
	}}
	w := post("/execute_action", `{"action":{"action":"write","args":{"path":"a","content":"ü\u0000"},"session":"build","timeout":2.5,"id":9}}`).
		send(newServer(t, withExecutor(f)))
	if want := `{"message":"I wrote to the file /w/a.","observation":"write","content":"","extras":{"path":"/w/a"}`; w.Code != 200 || !strings.HasPrefix(w.Body.String(), want) {
		t.Errorf("got %d %s, want 200 %s…", w.Code, w.Body, want)
	}
	write, ok := got.Action.(api.WriteAction)
	if !ok || write.Path != "a" || write.Content != "ü\x00" || got.Session != "build" || got.ID != 9 || got.Timeout == nil || *got.Timeout != 2.5 {
		t.Errorf("got request %+v", got)
	}
	if got, want := w.Header().Get("Content-Length"), w.Body.Len(); got == "" || got != itoa(want) {
		t.Errorf("got content length %q, want %d", got, want)
	}
}

func TestContentType(t *testing.T) {
	t.Parallel()
	tests := []struct {
		contentType string
		status      int
	}{
		{"application/json", 200},
		{"application/json; charset=utf-8", 200},
		{"Application/JSON", 200},
		{"application/vnd.x+json", 200},
		{"", 422},
		{"text/plain", 422},
		{"text/json", 422},
		{"application/jsonp", 422},
		{"application/json/x", 422},
		{"multipart/form-data; boundary=x", 422},
		{"application/json;;;=", 422},
	}
	for _, tt := range tests {
		t.Run(tt.contentType, func(t *testing.T) {
			t.Parallel()
			w := request{method: "POST", path: "/execute_action", contentType: tt.contentType, body: runTrue}.send(newServer(t))
			if w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
		})
	}
}

// A body that is too large is refused, whether or not it says how large it is,
// and the one that just fits is not.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(cfg *server.Config) { cfg.MaxBody = 1000 })
	for _, size := range []int{1000, 1001, 5000} {
		for _, announced := range []bool{true, false} {
			body := runTrue + strings.Repeat(" ", size-len(runTrue))
			r := httptest.NewRequest(http.MethodPost, "/execute_action", strings.NewReader(body))
			r.Header.Set("Content-Type", jsonType)
			if !announced {
				r.ContentLength = -1
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			want := http.StatusOK
			if size > 1000 {
				want = http.StatusRequestEntityTooLarge
			}
			if w.Code != want {
				t.Errorf("%d bytes, announced %t: got %d %s, want %d", size, announced, w.Code, w.Body, want)
			}
		}
	}
}

// The idle time counts from the start of the last action that was well-formed,
// also when it was refused or still runs.
func TestIdleTime(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		idle       float64
	}{
		{"run", runTrue, 3},
		{"unknown action", `{"action":{"action":"nope"}}`, 3},
		{"no action", `{}`, 10},
		{"no JSON", `{`, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := server.New(server.Config{TempDir: dir, Executor: &fake{
					do: func(context.Context, api.Request) (api.Observation, error) {
						time.Sleep(3 * time.Second)
						return api.ErrorObservation{}, nil
					},
				}})
				time.Sleep(7 * time.Second)
				begun := time.Now()
				post("/execute_action", tt.body).send(s)
				time.Sleep(time.Until(begun.Add(3 * time.Second)))
				var info api.ServerInfo
				if err := json.Unmarshal(get("/server_info").send(s).Body.Bytes(), &info); err != nil {
					t.Fatal(err)
				}
				if info.Uptime != 10 || float64(info.IdleTime) != tt.idle {
					t.Errorf("got uptime %v and idle time %v, want 10 and %v", info.Uptime, info.IdleTime, tt.idle)
				}
			})
		})
	}
}

func TestServerInfo(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	io, err := os.ReadFile("/proc/self/io") // before the request: the figures only rise
	noStorage := err != nil || bytes.Contains(io, []byte("\nread_bytes: 0\nwrite_bytes: 0\n"))
	var info api.ServerInfo
	if err := json.Unmarshal(get("/server_info").send(s).Body.Bytes(), &info); err != nil {
		t.Fatal(err)
	}
	r := info.Resources
	if r.Memory.RSS == 0 || r.Memory.VMS < r.Memory.RSS || r.Memory.Percent <= 0 || r.Memory.Percent >= 100 {
		t.Errorf("got memory %+v", r.Memory)
	}
	if r.Disk.Total == 0 || r.Disk.Used+r.Disk.Free > r.Disk.Total {
		t.Errorf("got disk %+v", r.Disk)
	}
	if want := 100 * float64(r.Disk.Used) / float64(r.Disk.Used+r.Disk.Free); math.Abs(float64(r.Disk.Percent)-want) > 0.051 {
		t.Errorf("got disk percent %v, want %v", r.Disk.Percent, want)
	}
	if !noStorage && r.IO == (api.IO{}) {
		t.Error("got no figures of storage, and the kernel has some")
	}
	if info.Version != "v0.0.1-test" || !info.Capabilities["run"].Available {
		t.Errorf("got version %q and capabilities %v", info.Version, info.Capabilities)
	}
}

// A request on top of the actions in flight is refused before anything runs.
func TestTooManyActions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, ran := make(chan struct{}), 0
		s := server.New(server.Config{MaxActions: 1, Executor: &fake{do: func(context.Context, api.Request) (api.Observation, error) {
			ran++
			<-release
			return api.ErrorObservation{}, nil
		}}})
		first := make(chan int)
		go func() { first <- post("/execute_action", runTrue).send(s).Code }()
		synctest.Wait()
		w := post("/execute_action", runTrue).send(s)
		if w.Code != 429 || w.Header().Get("Retry-After") == "" || ran != 1 {
			t.Errorf("got %d with Retry-After %q after %d runs, want 429 after 1", w.Code, w.Header().Get("Retry-After"), ran)
		}
		if w := get("/alive").send(s); w.Code != 200 {
			t.Errorf("got %d for another route, want 200", w.Code)
		}
		close(release)
		if code := <-first; code != 200 {
			t.Errorf("got %d for the first action, want 200", code)
		}
		if w := post("/execute_action", runTrue).send(s); w.Code != 200 {
			t.Errorf("got %d afterwards, want 200", w.Code)
		}
	})
}

// A client that goes away ends the wait and is counted as such.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := newServer(t, withExecutor(&fake{do: func(ctx context.Context, _ api.Request) (api.Observation, error) {
		cancel()
		<-ctx.Done()
		return nil, errors.Join(errors.New("waiting for the command"), ctx.Err())
	}}))
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/execute_action", strings.NewReader(runTrue))
	r.Header.Set("Content-Type", jsonType)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != 499 {
		t.Errorf("got %d %s, want 499", w.Code, w.Body)
	}
	wantMetric(t, s, `actiond_actions_total{action="run",outcome="abandoned"} 1`)
}

// wantMetric looks for a line of /metrics.
func wantMetric(tb testing.TB, s *server.Server, want string) {
	tb.Helper()
	got := get("/metrics").send(s).Body.String()
	for line := range strings.Lines(got) {
		if strings.TrimSuffix(line, "\n") == want {
			return
		}
	}
	var near []string
	name, _, _ := strings.Cut(want, "{")
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, name) {
			near = append(near, line)
		}
	}
	tb.Errorf("got metrics\n%swant %s", strings.Join(near, ""), want)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	fails := errors.New("broken")
	f := &fake{sessions: oneSession, do: func(_ context.Context, req api.Request) (api.Observation, error) {
		switch req.Action.(type) {
		case api.ReadAction:
			return nil, &api.Error{Status: 400, Detail: "no"}
		case api.WriteAction:
			return nil, fails
		default:
			return api.ErrorObservation{Content: "x"}, nil
		}
	}}
	s := newServer(t, withExecutor(f))
	post("/execute_action", runTrue).send(s)
	post("/execute_action", runTrue).send(s)
	post("/execute_action", `{"action":{"action":"read","args":{"path":"x"}}}`).send(s)
	post("/execute_action", `{"action":{"action":"write","args":{"path":"x","content":""}}}`).send(s)
	post("/execute_action", `{"action":{"action":"made_up_by_a_stranger"}}`).send(s)
	get("/made/up/by/a/stranger").send(s)
	get("/v1/sessions/made_up").send(s)
	request{method: "BREW", path: "/alive"}.send(s)
	for _, want := range []string{
		`actiond_actions_total{action="run",outcome="happened"} 2`,
		`actiond_actions_total{action="read",outcome="refused"} 1`,
		`actiond_actions_total{action="write",outcome="broke"} 1`,
		`actiond_actions_total{action="unread",outcome="refused"} 1`,
		`actiond_action_duration_seconds_count{action="run"} 2`,
		`actiond_actions_in_flight 0`,
		`actiond_sessions 1`,
		`actiond_http_requests_total{code="2xx",method="POST",route="/execute_action"} 2`,
		`actiond_http_requests_total{code="4xx",method="POST",route="/execute_action"} 2`,
		`actiond_http_requests_total{code="5xx",method="POST",route="/execute_action"} 1`,
		`actiond_http_requests_total{code="4xx",method="GET",route="/v1/sessions/{name}"} 1`,
		`actiond_http_requests_total{code="4xx",method="",route=""} 2`,
	} {
		wantMetric(t, s, want)
	}
	got := get("/metrics").send(s).Body.String()
	if strings.Contains(got, "made_up") || strings.Contains(got, "stranger") {
		t.Error("a caller can add names to the metrics")
	}
	for _, want := range []string{`actiond_build_info{go="go`, `version="v0.0.1-test"} 1`, "\nprocess_open_fds ", "\ngo_goroutines ", "\nactiond_http_request_bytes_total ", "\nactiond_http_response_bytes_total "} {
		if !strings.Contains(got, want) {
			t.Errorf("got no %q in the metrics", want)
		}
	}
}

// TestMetricsDescriptions compares names, types and help texts with those that
// dashboards were made for.
func TestMetricsDescriptions(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	post("/execute_action", runTrue).send(s)
	var got strings.Builder
	for line := range strings.Lines(get("/metrics").send(s).Body.String()) {
		if strings.HasPrefix(line, "# HELP actiond_") || strings.HasPrefix(line, "# TYPE actiond_") {
			got.WriteString(line)
		}
	}
	const want = `# HELP actiond_action_duration_seconds Time from the request to the encoded observation.
# TYPE actiond_action_duration_seconds histogram
# HELP actiond_actions_in_flight Actions that run or wait.
# TYPE actiond_actions_in_flight gauge
# HELP actiond_actions_replayed_total Answers that were recorded before, for an id that came again.
# TYPE actiond_actions_replayed_total counter
# HELP actiond_actions_total Actions by name and outcome: happened, refused, broke, or abandoned by their client.
# TYPE actiond_actions_total counter
# HELP actiond_build_info Always 1; the labels tell the version and what it was built with.
# TYPE actiond_build_info gauge
# HELP actiond_http_request_bytes_total Bytes of request bodies.
# TYPE actiond_http_request_bytes_total counter
# HELP actiond_http_requests_total HTTP requests by method, route and class of the status; method and route are empty where no route matched.
# TYPE actiond_http_requests_total counter
# HELP actiond_http_response_bytes_total Bytes of response bodies.
# TYPE actiond_http_response_bytes_total counter
# HELP actiond_journal_append_seconds Writes to the journal and their time.
# TYPE actiond_journal_append_seconds summary
# HELP actiond_journal_bytes Bytes that the kept actions take.
# TYPE actiond_journal_bytes gauge
# HELP actiond_journal_failing 1 where what is recorded now will not last, otherwise 0.
# TYPE actiond_journal_failing gauge
# HELP actiond_journal_forgotten_total Actions that were forgotten since the start.
# TYPE actiond_journal_forgotten_total counter
# HELP actiond_journal_oldest_seconds Age of the oldest action that is kept; 0 without actions.
# TYPE actiond_journal_oldest_seconds gauge
# HELP actiond_recorded_actions Actions that are kept, by state.
# TYPE actiond_recorded_actions gauge
# HELP actiond_sessions Sessions that are open, each with a shell, a kernel, or both.
# TYPE actiond_sessions gauge
# HELP actiond_terminals Terminals that are attached.
# TYPE actiond_terminals gauge
# HELP actiond_tunnel_bytes_total Bytes that tunnels carried, in to a port of the sandbox, or out of it.
# TYPE actiond_tunnel_bytes_total counter
# HELP actiond_tunnels Tunnels to ports of the sandbox that are open.
# TYPE actiond_tunnels gauge
`
	if got := got.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A write adds a newline where the legacy protocol demands it, and nowhere else.
func TestNativeWriteIsExact(t *testing.T) {
	t.Parallel()
	const write, inexact = `{"action":{"action":"write","args":{"path":"f","content":"x"}}}`,
		`{"action":{"action":"write","args":{"path":"f","content":"x","exact":false}}}`
	for _, tt := range []struct {
		path, accept, body string
		want               bool
	}{
		{"/execute_action", "", write, false},
		{"/v1/actions", "", write, true},
		{"/v1/actions", linesType, write, true},
		{"/v1/actions", "", inexact, false},
		{"/v1/actions", eventStreamType, inexact, false},
	} {
		var got []bool
		stream := func(_ context.Context, req api.Request, _ func(api.Output)) (api.Observation, error) { //nolint:unparam // the form is that of fake
			exact := req.Action.(api.WriteAction).Exact
			got = append(got, exact != nil && *exact)
			return api.WriteObservation{Path: "f"}, nil
		}
		do := func(ctx context.Context, req api.Request) (api.Observation, error) { return stream(ctx, req, nil) }
		s := newServer(t, withExecutor(&fake{do: do, stream: stream}))
		r := post(tt.path, tt.body)
		r.header = map[string]string{"Accept": tt.accept}
		if w := r.send(s); w.Code != http.StatusOK || !slices.Equal(got, []bool{tt.want}) {
			t.Errorf("%s, Accept %q, %s: got status %d and exact %v, want %v", tt.path, tt.accept, tt.body, w.Code, got, tt.want)
		}
	}
}

// Only the legacy protocol has the reference's answer for a page that no server sends.
func TestBrowseAsTheReference(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"/execute_action": true, "/v1/actions": false} {
		var got api.Action
		s := newServer(t, withExecutor(&fake{do: func(_ context.Context, r api.Request) (api.Observation, error) {
			got = r.Action
			return api.ErrorObservation{}, nil
		}}))
		w := post(path, `{"action":{"action":"browse","args":{"url":"http://127.0.0.1:1/"}}}`).send(s)
		if a, ok := got.(api.BrowseAction); !ok || a.Reference != want {
			t.Errorf("%s: got %d, %+v", path, w.Code, got)
		}
	}
}
