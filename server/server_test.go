package server_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

// fake is an executor that does what a test says.
type fake struct {
	do       func(ctx context.Context, req api.Request) (api.Observation, error)
	stream   func(ctx context.Context, req api.Request, output func(api.Output)) (api.Observation, error)
	looks    func() *api.Waiting // what its actions wait for
	sessions []api.Session
	notReady error
	exported []map[string]string
	network  map[string]string
}

func (f *fake) Do(ctx context.Context, req api.Request) (api.Observation, error) {
	if f.do == nil {
		return api.ErrorObservation{Content: "<ü> & " + req.Action.Kind()}, nil
	}
	return f.do(ctx, req)
}

func (f *fake) Turn(api.Request) api.Turn { return nil } //nolint:ireturn // as the executor

func (f *fake) Watch(ctx context.Context, req api.Request, w api.Watch) (api.Observation, error) {
	if err := w.Begins(); err != nil {
		return nil, err
	}
	if f.looks != nil {
		w.CanLook(f.looks)
	}
	if f.stream == nil {
		return f.Do(ctx, req)
	}
	return f.stream(ctx, req, w.Output)
}

func (f *fake) Sessions() []api.Session { return f.sessions }

func (f *fake) CloseSession(_ context.Context, name string) error {
	for _, s := range f.sessions {
		if s.Name == name {
			return nil
		}
	}
	return &api.Error{Status: http.StatusNotFound, Detail: "there is no session " + name}
}

func (f *fake) Ready() error { return f.notReady }

func (f *fake) Export(_ context.Context, env, network map[string]string) error {
	f.exported, f.network = append(f.exported, env), network
	return nil
}

func (f *fake) Capabilities() map[string]api.Capability {
	return map[string]api.Capability{"run": {Available: true, Detail: "/bin/bash"}}
}

var oneSession = []api.Session{{
	Name: "default", State: "idle", WorkingDir: "/w", PID: 7, Shell: "/bin/bash",
	Started: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC), Commands: 3, OutputBytes: 120,
}}

// newServer returns a server on a fresh directory, changed by the functions.
func newServer(tb testing.TB, change ...func(*server.Config)) *server.Server {
	tb.Helper()
	cfg := server.Config{
		Executor:   &fake{sessions: oneSession},
		WorkingDir: tb.TempDir(),
		TempDir:    tb.TempDir(),
		Version:    "v0.0.1-test",
	}
	for _, c := range change {
		c(&cfg)
	}
	return server.New(cfg)
}

func withKey(cfg *server.Config) { cfg.Key = "s3cret" }

func withExecutor(f *fake) func(*server.Config) {
	return func(cfg *server.Config) { cfg.Executor = f }
}

// request is one line of a test's table.
type request struct {
	method, path string
	contentType  string
	body         string
	key          string
	header       map[string]string
}

func (q request) send(h http.Handler) *httptest.ResponseRecorder {
	r := httptest.NewRequest(q.method, q.path, strings.NewReader(q.body))
	if q.body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	if q.key != "" {
		r.Header.Set("X-Session-API-Key", q.key)
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const (
	jsonType = "application/json"
	runTrue  = `{"action":{"action":"run","args":{"command":"true"},"timeout":120.0}}`
)

func post(path, body string) request {
	return request{method: "POST", path: path, contentType: jsonType, body: body}
}

// The forms of a streamed answer.
const (
	linesType       = "application/x-ndjson"
	eventStreamType = "text/event-stream"
)

func streamed(form, body string) request {
	q := post("/v1/actions", body)
	q.header = map[string]string{"Accept": form}
	return q
}

const (
	terminalRoute = "/v1/sessions/{name}/terminal"
	tunnelRoute   = "/v1/ports/{port}/tunnel"
)

// socket asks for the WebSocket of a terminal.
func socket(query string, change map[string]string) request {
	q := get("/v1/sessions/x/terminal" + query)
	q.header = map[string]string{
		"Connection": "keep-alive, Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	}
	maps.Copy(q.header, change)
	return q
}

// tunnelTo asks for a tunnel.
func tunnelTo(port string, change map[string]string) request {
	q := socket("", change)
	q.path = "/v1/ports/" + port + "/tunnel"
	return q
}

func get(path string) request { return request{method: "GET", path: path} }

func withLog(w io.Writer) func(*server.Config) {
	return func(cfg *server.Config) {
		cfg.Logger = slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

// withRecorded is a server whose journal has an action.
func withRecorded(cfg *server.Config) {
	cfg.Journal, _ = journal.Open(journal.Config{})
	a, _, _ := cfg.Journal.Reserve(journal.Intent{ID: "a", Kind: "run", Text: "text"})
	_ = a.Begin()
	a.Output(journal.Terminal, []byte("out"))
	a.Finish(2, []byte(`{"message":"","observation":"error","content":"","extras":{},"outcome":"failed"}`))
}

func TestRoutesAreTheDocuments(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	got := newServer(t).Routes()
	var want []server.Route
	for _, rt := range spec.Routes() {
		want = append(want, server.Route{Method: rt.Method, Path: rt.Path, Open: spec.Open(rt)})
	}
	order := func(a, b server.Route) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	}
	slices.SortFunc(got, order)
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Every answer of every route is one that the document allows.
func TestAnswersAreTheDocuments(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	dir := t.TempDir()
	starting := &fake{notReady: errors.New("the shell's first prompt")}
	broken := &fake{do: func(context.Context, api.Request) (api.Observation, error) { return nil, errors.New("inner secret") }}
	panics := &fake{do: func(context.Context, api.Request) (api.Observation, error) { panic("inner secret") }}
	refuses := &fake{do: func(context.Context, api.Request) (api.Observation, error) {
		return nil, &api.Error{Status: 400, Detail: "no such kernel"}
	}}
	streams := &fake{stream: func(_ context.Context, _ api.Request, output func(api.Output)) (api.Observation, error) {
		output(api.Output{Offset: 7, Missed: 3, Data: []byte("hi\r\n")})
		output(api.Output{Offset: 11, Data: []byte{0xff}})
		return api.NullObservation{}, nil
	}}
	sum := strings.Repeat("0a", 32)
	dialects := strings.Join(tools.Dialects(), ", ")
	_, choices, _ := strings.Cut(tools.CheckDialect("nope").Error(), dialects)
	edits := &fake{do: func(_ context.Context, req api.Request) (api.Observation, error) {
		a := req.Action.(api.EditAction)
		return api.EditObservation{Content: "done", Path: "/w/" + a.Path, PrevExist: *a.OldStr == "x", SHA256: sum}, nil
	}}
	small := func(cfg *server.Config) { cfg.MaxBody, cfg.MaxUpload = 100, 1000 }
	up, upType := form(t, "a.txt", []byte("a"))
	large, largeType := form(t, "a.txt", make([]byte, 2000))
	group := t.TempDir()
	must(t, os.WriteFile(group+"/memory.current", []byte("5000\n"), 0o600))
	type change = func(*server.Config)
	tests := []struct {
		name   string
		change change
		request
		route  string // the template, where it is not the path
		status int
		body   string // "" for any
	}{
		{"alive", nil, get("/alive"), "", 200, `{"status":"ok"}`},
		{"alive without key", withKey, get("/alive"), "", 200, `{"status":"ok"}`},
		{"alive too early", withExecutor(starting), get("/alive"), "", 500, `{"detail":"not initialized: the shell's first prompt"}`},
		{"healthz", withExecutor(starting), get("/healthz"), "", 200, `{"status":"ok"}`},
		{"health", nil, get("/health"), "", 200, `{"status":"ok"}`},
		{"health too early", withExecutor(starting), get("/health"), "", 200, `{"status":"ok"}`},
		{"readyz", nil, get("/readyz"), "", 200, `{"status":"ready","journal":"actions are recorded in memory only, and are lost when the server ends"}`},
		{"readyz too early", withExecutor(starting), get("/readyz"), "", 503, `{"status":"starting","waiting_for":"the shell's first prompt"}`},
		{"server info", withKey, get("/server_info"), "", 200, ""},
		{"action", nil, post("/execute_action", runTrue), "", 200, `{"message":"<ü> & run","observation":"error","content":"<ü> & run","extras":{"error_id":""},"outcome":"failed"}`},
		{"action without key", withKey, post("/execute_action", runTrue), "", 403, `{"detail":"Invalid API Key"}`},
		{"action refused", withExecutor(refuses), post("/execute_action", runTrue), "", 400, `{"detail":"no such kernel"}`},
		{"action broken", withExecutor(broken), post("/execute_action", runTrue), "", 500, ""},
		{"action panics", withExecutor(panics), post("/execute_action", runTrue), "", 500, ""},
		{"action unknown", nil, post("/execute_action", `{"action":{"action":"nope","args":{}}}`), "", 400, ""},
		{"action missing", nil, post("/execute_action", `{}`), "", 422, ""},
		{"action no JSON", nil, post("/execute_action", `{`), "", 422, ""},
		{"action large", small, post("/execute_action", strings.Repeat(" ", 101)), "", 413, ""},
		{"action form", nil, request{method: "POST", path: "/execute_action", contentType: "application/x-www-form-urlencoded", body: runTrue}, "", 422, `{"detail":"Invalid request parameters","errors":"header.Content-Type: must be application/json, got \"application/x-www-form-urlencoded\""}`},
		{"action without type", nil, request{method: "POST", path: "/execute_action", body: runTrue}, "", 422, ""},
		{"action from a page", nil, request{method: "POST", path: "/execute_action", contentType: jsonType, body: runTrue, header: map[string]string{"Sec-Fetch-Site": "cross-site"}}, "", 403, ""},
		{"streamed action in one piece", nil, post("/v1/actions", runTrue), "", 200, `{"message":"<ü> & run","observation":"error","content":"<ü> & run","extras":{},"outcome":"failed"}`},
		{"streamed action", withExecutor(streams), streamed(linesType, runTrue), "", 200, `{"event":"output","seq":1,"offset":3,"missed":3,"text":"hi\r\n"}` + "\n" + `{"event":"output","seq":2,"offset":7,"base64":"/w=="}` + "\n" + `{"event":"observation","seq":3,"observation":{"message":"No observation","observation":"null","content":"","extras":{},"outcome":"succeeded"}}` + "\n"},
		{"streamed action as events", withExecutor(streams), streamed(eventStreamType, runTrue), "", 200, "id: 1\nevent: output\ndata: " + `{"event":"output","seq":1,"offset":3,"missed":3,"text":"hi\r\n"}` + "\n\nid: 2\nevent: output\ndata: " + `{"event":"output","seq":2,"offset":7,"base64":"/w=="}` + "\n\nid: 3\nevent: observation\ndata: " + `{"event":"observation","seq":3,"observation":{"message":"No observation","observation":"null","content":"","extras":{},"outcome":"succeeded"}}` + "\n\n"},
		{"streamed action refused", withExecutor(refuses), streamed(linesType, runTrue), "", 200, `{"event":"error","seq":1,"status":400,"detail":"no such kernel"}` + "\n"},
		{"streamed action broken", withExecutor(broken), streamed(linesType, runTrue), "", 200, ""},
		{"streamed action unknown", nil, streamed(linesType, `{"action":{"action":"nope","args":{}}}`), "", 400, ""},
		{"streamed action no JSON", nil, streamed(linesType, `{`), "", 422, ""},
		{"streamed action large", small, streamed(linesType, strings.Repeat(" ", 101)), "", 413, ""},
		{"streamed action without key", withKey, streamed(linesType, runTrue), "", 403, ""},
		{"action with changes", withWorkspace, post("/v1/actions", `{"changes":"facts",`+runTrue[1:]), "", 200, ""},
		{"streamed action with changes", withWorkspace, streamed(linesType, `{"changes":"diff",`+runTrue[1:]), "", 200, ""},
		{"action with no such changes", nil, post("/v1/actions", `{"changes":"all",`+runTrue[1:]), "", 400, ""},
		{"action whose changes are not known", nil, post("/v1/actions", `{"changes":"facts",`+runTrue[1:]), "", 200, ""},
		{"changes", withWorkspace, get("/v1/changes?since=s3"), "", 200, ""},
		{"changes since a forgotten beginning", withWorkspace, get("/v1/changes"), "", 410, ""},
		{"changes since a forgotten state", withWorkspace, get("/v1/changes?since=s1"), "", 410, ""},
		{"changes since no state", withWorkspace, get("/v1/changes?since=s4"), "", 404, ""},
		{"changes since no action", withWorkspace, get("/v1/changes?since=4"), "", 404, ""},
		{"changes where none are followed", nil, get("/v1/changes?since=s1"), "", 404, ""},
		{"change log", withWorkspace, get("/v1/changes/log"), "", 200, `{"entries":[]}`},
		{"change log before nothing", nil, get("/v1/changes/log?before=x"), "", 422, ""},
		{"actions", nil, get("/v1/actions"), "", 200, `{"actions":[]}`},
		{"actions in no state", nil, get("/v1/actions?state=x"), "", 422, ""},
		{"actions before nothing", nil, get("/v1/actions?before=-1"), "", 422, ""},
		{"actions without key", withKey, get("/v1/actions"), "", 403, ""},
		{"recorded action", withRecorded, get("/v1/actions/a"), "/v1/actions/{id}", 200, ""},
		{"recorded action waited for", withRecorded, get("/v1/actions/a?wait=1"), "/v1/actions/{id}", 200, ""},
		{"recorded action with a slash", withRecorded, get("/v1/actions/a%2Fb"), "/v1/actions/{id}", 404, `{"detail":"There is no action \"a/b\"","errors":[]}`},
		{"recorded action waited for long", withRecorded, get("/v1/actions/a?wait=601"), "/v1/actions/{id}", 422, ""},
		{"recorded action without key", withKey, get("/v1/actions/a"), "/v1/actions/{id}", 403, ""},
		{"cancel", withRecorded, remove("/v1/actions/a"), "/v1/actions/{id}", 200, ""},
		{"cancel without key", withKey, remove("/v1/actions/a"), "/v1/actions/{id}", 403, ""},
		{"cancel nothing", withRecorded, remove("/v1/actions/b"), "/v1/actions/{id}", 404, `{"detail":"There is no action \"b\"","errors":[]}`},
		{"cancel and wait for long", withRecorded, remove("/v1/actions/a?wait=601"), "/v1/actions/{id}", 422, ""},
		{"input of what is no program", withRecorded, post("/v1/actions/a/input?offset=0", "x"), "/v1/actions/{id}/input", 409, ""},
		{"input without key", withKey, post("/v1/actions/a/input?offset=0", "x"), "/v1/actions/{id}/input", 403, ""},
		{"signal to what is no program", withRecorded, post("/v1/actions/a/signal", `{"signal":"INT"}`), "/v1/actions/{id}/signal", 409, ""},
		{"signal of no form", withRecorded, post("/v1/actions/a/signal", `[]`), "/v1/actions/{id}/signal", 400, ""},
		{"signal without key", withKey, post("/v1/actions/a/signal", `{"signal":"INT"}`), "/v1/actions/{id}/signal", 403, ""},
		{"resize of what is no program", withRecorded, post("/v1/actions/a/resize", `{"rows":1}`), "/v1/actions/{id}/resize", 409, ""},
		{"resize without key", withKey, post("/v1/actions/a/resize", `{}`), "/v1/actions/{id}/resize", 403, ""},
		{"events", withRecorded, get("/v1/actions/a/events"), "/v1/actions/{id}/events", 200, `{"event":"output","seq":1,"offset":0,"text":"out"}` + "\n" + `{"event":"observation","seq":2,"observation":{"message":"","observation":"error","content":"","extras":{},"outcome":"failed"}}` + "\n"},
		{"events from the last on", withRecorded, get("/v1/actions/a/events?after=2"), "/v1/actions/{id}/events", 204, ""},
		{"events of the future", withRecorded, get("/v1/actions/a/events?after=3"), "/v1/actions/{id}/events", 400, ""},
		{"output", withRecorded, get("/v1/actions/a/output"), "/v1/actions/{id}/output", 200, "out"},
		{"output from within", withRecorded, get("/v1/actions/a/output?offset=1&limit=1"), "/v1/actions/{id}/output", 200, "u"},
		{"output at the end", withRecorded, get("/v1/actions/a/output?offset=3"), "/v1/actions/{id}/output", 200, ""},
		{"output of another stream", withRecorded, get("/v1/actions/a/output?stream=stderr"), "/v1/actions/{id}/output", 200, ""},
		{"output beyond the end", withRecorded, get("/v1/actions/a/output?offset=4"), "/v1/actions/{id}/output", 416, ""},
		{"output of no stream", withRecorded, get("/v1/actions/a/output?stream=x"), "/v1/actions/{id}/output", 422, ""},
		{"output of nothing", nil, get("/v1/actions/a/output"), "/v1/actions/{id}/output", 404, ""},
		{"output without key", withKey, get("/v1/actions/a/output"), "/v1/actions/{id}/output", 403, ""},
		{"events of nothing", nil, get("/v1/actions/a/events"), "/v1/actions/{id}/events", 404, ""},
		{"events without key", withKey, get("/v1/actions/a/events"), "/v1/actions/{id}/events", 403, ""},
		{"upload", nil, request{method: "POST", path: "/upload_file?destination=" + dir, contentType: upType, body: up}, "", 200, `{"filename":"a.txt","destination":"` + dir + `","recursive":false}`},
		{"upload relative", nil, request{method: "POST", path: "/upload_file?destination=d", contentType: upType, body: up}, "", 400, `{"detail":"Destination must be an absolute path"}`},
		{"upload recursive", nil, request{method: "POST", path: "/upload_file?recursive=1&destination=" + dir, contentType: upType, body: up}, "", 400, `{"detail":"Recursive uploads must be zip files"}`},
		{"upload large", small, request{method: "POST", path: "/upload_file?destination=" + dir, contentType: largeType, body: large}, "", 413, ""},
		{"upload no form", nil, post("/upload_file?destination="+dir, "{}"), "", 422, ""},
		{"upload without key", withKey, post("/upload_file", "{}"), "", 403, ""},
		{"unpack", nil, tarball("/v1/unpack?path="+url.QueryEscape(t.TempDir()), tarOf(t, &tar.Header{Name: "f", Mode: 0o600})), "", 200, `{"entries":1}`},
		{"unpack in nothing", nil, tarball("/v1/unpack?path=/no/such", ""), "", 404, `{"detail":"File not found: \"/no/such\"","errors":[{"code":"file_not_found","path":"/no/such","errno":"ENOENT"}]}`},
		{"unpack in a file", nil, tarball("/v1/unpack?path=/etc/passwd", ""), "", 400, ""},
		{"unpack anywhere", nil, tarball("/v1/unpack", ""), "", 422, ""},
		{"unpack below the working directory", nil, tarball("/v1/unpack?path=a", ""), "", 404, ""},
		{"unpack something else", nil, tarball("/v1/unpack?path="+url.QueryEscape(t.TempDir()), strings.Repeat("x", 1024)), "", 400, ""},
		{"unpack half", nil, tarball("/v1/unpack?path="+url.QueryEscape(t.TempDir()), tarOf(t, &tar.Header{Name: "f", Mode: 0o600, Size: 1000})[:700]), "", 400, ""},
		{"unpack elsewhere", nil, tarball("/v1/unpack?path=/tmp", tarOf(t, &tar.Header{Name: "../f", Mode: 0o600})), "", 400, `{"detail":"the archive is not to be trusted: it has a file \"../f\", which leads out of it","errors":[{"code":"invalid_argument","path":"/tmp"}]}`},
		{"unpack over a directory", nil, tarball("/v1/unpack?path=/", tarOf(t, &tar.Header{Name: "tmp", Mode: 0o600})), "", 409, ""},
		{"unpack too much", nil, tarball("/v1/unpack?path="+url.QueryEscape(t.TempDir()), tarOf(t, &tar.Header{Name: "f", Mode: 0o600, Size: 1 << 60, Format: tar.FormatGNU})), "", 507, ""},
		{"unpack without key", withKey, tarball("/v1/unpack?path=/tmp", ""), "", 403, ""},
		{"download", nil, get("/download_files?path=" + dir), "", 200, ""},
		{"download nothing", nil, get("/download_files"), "", 422, `{"detail":"Invalid request parameters","errors":"query.path: missing"}`},
		{"download relative", nil, get("/download_files?path=d"), "", 400, `{"detail":"Path must be an absolute path"}`},
		{"download missing", nil, get("/download_files?path=/nope/x"), "", 404, `{"detail":"File not found: \"/nope/x\""}`},
		{"download without key", withKey, get("/download_files"), "", 403, ""},
		{"list", nil, post("/list_files", "{}"), "", 200, "[]"},
		{"list missing", nil, post("/list_files", `{"path":"/nope"}`), "", 200, "[]"},
		{"list no JSON", nil, post("/list_files", ""), "", 400, ""},
		{"list no object", nil, post("/list_files", "[]"), "", 400, ""},
		{"list large", nil, post("/list_files", strings.Repeat(" ", 2<<20)), "", 413, ""},
		{"list without key", withKey, post("/list_files", "{}"), "", 403, ""},
		{"MCP none", nil, post("/update_mcp_server", "[]"), "", 200, `{"detail":"MCP server updated successfully","router_error_log":""}`},
		{"MCP some", nil, post("/update_mcp_server", `[{"name":"a","command":"uvx","args":["x"],"env":{"K":"v"}},{"name":"b","command":"npx","args":[],"env":{}}]`), "", 200, `{"detail":"MCP server updated successfully","router_error_log":"This sandbox cannot run MCP servers"}`},
		{"MCP no list", nil, post("/update_mcp_server", "{}"), "", 400, `{"detail":"Request must be a list of MCP tools to sync"}`},
		{"MCP no name", nil, post("/update_mcp_server", `[{"command":"uvx"}]`), "", 400, ""},
		{"MCP with problems", withMCP, post("/update_mcp_server", `[{"name":"a","command":"uvx"}]`), "", 200, `{"detail":"MCP server updated successfully","router_error_log":"a: one\ntwo"}`},
		{"MCP events", withMCP, get("/mcp/sse"), "", 200, ""},
		{"MCP events of nothing", nil, get("/mcp/sse"), "", 404, `{"detail":"This sandbox cannot run MCP servers"}`},
		{"MCP events without key", withKey, get("/mcp/sse"), "", 403, ""},
		{"MCP message without a session", withMCP, post("/mcp/messages/", `{}`), "", 400, `{"detail":"session_id is required"}`},
		{"MCP message of nonsense", withMCP, post("/mcp/messages/?session_id=x", `{}`), "", 400, `{"detail":"Invalid session ID"}`},
		{"MCP message of a stranger", withMCP, post("/mcp/messages/?session_id="+strings.Repeat("0", 32), `{}`), "", 404, `{"detail":"Could not find session"}`},
		{"MCP message form", withMCP, request{method: "POST", path: "/mcp/messages/", body: "{}"}, "", 400, `{"detail":"Invalid Content-Type header: must be application/json"}`},
		{"MCP message without key", withKey, post("/mcp/messages/", `{}`), "", 403, ""},
		{"MCP events at the root", withMCP, get("/sse"), "", 200, ""},
		{"offer", nil, rpc("/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`), "", 200, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"offer notified", nil, rpc("/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`), "", 202, ""},
		{"offer no message", nil, rpc("/mcp", `{`), "", 400, ""},
		{"offer without Accept", nil, post("/mcp", `{}`), "", 400, ""},
		{"offer form", nil, request{method: "POST", path: "/mcp", body: "{}"}, "", 422, ""},
		{"offer of no dialect", nil, rpc("/mcp?dialect=klingon", `{}`), "", 400, ""},
		{"offer in no session", nil, rpc("/mcp?session=a/b", `{}`), "", 400, ""},
		{"offer large", func(cfg *server.Config) { cfg.MaxBody = 10 }, rpc("/mcp", strings.Repeat(" ", 100)), "", 413, ""},
		{"offer without key", withKey, rpc("/mcp", `{}`), "", 403, ""},
		{"offer to a page", nil, request{method: "POST", path: "/mcp", contentType: jsonType, body: "{}", header: map[string]string{"Origin": "https://evil.example"}}, "", 403, ""},
		{"MCP without key", withKey, post("/update_mcp_server", "[]"), "", 403, ""},
		{"token", nil, get("/vscode/connection_token"), "", 200, `{"token":null}`},
		{"token without key", withKey, get("/vscode/connection_token"), "", 403, ""},
		{"metrics", nil, get("/metrics"), "", 200, ""},
		{"metrics without key", withKey, get("/metrics"), "", 403, ""},
		{"home", withKey, request{method: "GET", path: "/", header: map[string]string{"Accept": "text/html"}}, "", 200, ""},
		{"document", nil, get("/openapi.yaml"), "", 200, string(api.OpenAPI)},
		{"document without key", withKey, get("/openapi.yaml"), "", 200, string(api.OpenAPI)},
		{"tools", nil, get("/v1/tools"), "", 200, ""},
		{"tools of a dialect", nil, get("/v1/tools?dialect=gemini&format=gemini"), "", 200, ""},
		{"tools of a format", nil, get("/v1/tools?dialect=openai"), "", 400, `{"detail":"dialect \"openai\" is unknown; dialects are ` + dialects + `; openai is a format: format=openai` + choices + `","errors":[]}`},
		{"tools of an unknown dialect", nil, get("/v1/tools?dialect=nope"), "", 400, `{"detail":"dialect \"nope\" is unknown; dialects are ` + dialects + choices + `","errors":[]}`},
		{"tools in no format", nil, get("/v1/tools?format=nope"), "", 400, `{"detail":"format \"nope\" is unknown; formats are openai, openai-responses, anthropic, gemini, mcp` + choices + `","errors":[]}`},
		{"tools without key", withKey, get("/v1/tools"), "", 403, ""},
		{"tool call", nil, post("/v1/tools/call", `{"name":"execute_bash","arguments":{"command":"ls"},"tool_call_id":"c1"}`), "", 200, `{"message":"<ü> & run","observation":"error","content":"<ü> & run","extras":{},"outcome":"failed","text":"<ü> & run","is_error":true,"error_code":"command_failed","tool_call_id":"c1"}`},
		{"tool call in a string", withExecutor(edits), post("/v1/tools/call", `{"dialect":"gemini","name":"replace","arguments":"{\"file_path\":\"a\",\"old_string\":\"x\",\"new_string\":\"y\",}"}`), "", 200, `{"message":"I edited the file /w/a.","observation":"edit","content":"done","extras":{"path":"/w/a","prev_exist":true,"old_content":null,"new_content":null,"impl_source":"oh_aci","diff":""},"outcome":"succeeded","text":"done","sha256":"` + sum + `","is_error":false,"repaired":["commas before closing brackets were dropped"]}`},
		{"tool call of a thought", withExecutor(broken), post("/v1/tools/call", `{"name":"think","arguments":{"thought":"hm"}}`), "", 200, `{"message":"Your thought has been logged.","observation":"think","content":"Your thought has been logged.","extras":{},"outcome":"succeeded","text":"Your thought has been logged.","is_error":false}`},
		{"tool call gone wrong", withExecutor(broken), post("/v1/tools/call", `{"name":"execute_bash","arguments":"{'command': 'ls'}","tool_call_id":""}`), "", 200, ""},
		{"tool call without a name", nil, post("/v1/tools/call", `{}`), "", 400, `{"detail":"body: member \"name\" is missing; allowed are dialect, name (required), arguments, tool_call_id, session, timeout, changes","errors":[]}`},
		{"tool call with more", nil, post("/v1/tools/call", `{"name":"think","timout":1}`), "", 422, `{"detail":"body: member \"timout\" is unknown; allowed are dialect, name, arguments, tool_call_id, session, timeout, changes","errors":["body: member \"timout\" is unknown; allowed are dialect, name, arguments, tool_call_id, session, timeout, changes"]}`},
		{"tool call of an unknown dialect", nil, post("/v1/tools/call", `{"dialect":"nope","name":"think"}`), "", 400, ""},
		{"tool call without a number as timeout", nil, post("/v1/tools/call", `{"name":"think","timeout":"x"}`), "", 400, ""},
		{"tool call no JSON", nil, post("/v1/tools/call", `{`), "", 422, ""},
		{"tool call large", small, post("/v1/tools/call", strings.Repeat(" ", 101)), "", 413, ""},
		{"tool call broken", withExecutor(broken), post("/v1/tools/call", `{"name":"execute_bash","arguments":{"command":"ls"}}`), "", 500, ""},
		{"tool call refused", withExecutor(refuses), post("/v1/tools/call", `{"name":"execute_bash","arguments":{"command":"ls"}}`), "", 400, `{"detail":"no such kernel","errors":[]}`},
		{"tool call form", nil, request{method: "POST", path: "/v1/tools/call", body: "{}"}, "", 422, ""},
		{"tool call without key", withKey, post("/v1/tools/call", "{}"), "", 403, ""},
		{"translation", withExecutor(broken), post("/v1/tools/translate", `{"name":"execute_bash","arguments":{"command":"ls","timeout":9},"session":"s","timeout":5,"tool_call_id":"c"}`), "", 200, `{"action":{"action":"run","args":{"command":"ls","is_input":false,"blocking":true,"is_static":false,"cwd":null,"hidden":false,"thought":"","security_risk":-1},"session":"s","timeout":5.0},"is_error":false,"tool_call_id":"c"}`},
		{"translation of a thought", nil, post("/v1/tools/translate", `{"name":"think","arguments":{"thought":"hm"}}`), "", 200, `{"action":null,"observation":{"message":"Your thought has been logged.","observation":"think","content":"Your thought has been logged.","extras":{},"outcome":"succeeded"},"is_error":false}`},
		{"translation of a background job", nil, post("/v1/tools/translate", `{"dialect":"gemini","name":"run_shell_command","arguments":{"command":"serve","is_background":true}}`), "", 200, `{"action":null,"observation":{"message":"A program in the background has no action that is answered at its start: call the tool by /v1/tools/call","observation":"error","content":"A program in the background has no action that is answered at its start: call the tool by /v1/tools/call","extras":{},"outcome":"failed"},"is_error":true,"error_code":"command_failed"}`},
		{"translation gone wrong", nil, post("/v1/tools/translate", `{"name":"execute_bash"}`), "", 200, ""},
		{"translation without a name", nil, post("/v1/tools/translate", `{}`), "", 400, ""},
		{"translation no JSON", nil, post("/v1/tools/translate", `{`), "", 422, ""},
		{"translation large", small, post("/v1/tools/translate", strings.Repeat(" ", 101)), "", 413, ""},
		{"translation without key", withKey, post("/v1/tools/translate", "{}"), "", 403, ""},
		{"claim", withClaim, post("/v1/claim", `{"key":"`+ownersKey+`","env":{"A":"b"}}`), "", 204, ""},
		{"claim with a short key", withClaim, post("/v1/claim", `{"key":"hunter2"}`), "", 400, `{"detail":"body: member \"key\" must be a string of 32 to 256 visible ASCII characters","errors":[]}`},
		{"claim without a key", withClaim, post("/v1/claim", `{"owner":"me"}`), "", 400, `{"detail":"body: member \"key\" is missing; allowed are key (required), owner, env, ttl_seconds, idle_limit_seconds, network","errors":[]}`},
		{"claim with more", withClaim, post("/v1/claim", `{"key":"`+ownersKey+`","ttl":1}`), "", 400, `{"detail":"body: member \"ttl\" is unknown; allowed are key (required), owner, env, ttl_seconds, idle_limit_seconds, network","errors":[]}`},
		{"claim backwards", withClaim, post("/v1/claim", `{"key":"`+ownersKey+`","ttl_seconds":-1}`), "", 400, `{"detail":"body: member \"ttl_seconds\" must be seconds from 0 to 3153600000, got -1","errors":[]}`},
		{"claim with a bad variable", withClaim, post("/v1/claim", `{"key":"`+ownersKey+`","env":{"A=B":"c"}}`), "", 400, `{"detail":"body: member \"env\": \"A=B\" is no name of a variable: letters, digits and underscores, no digit first","errors":[]}`},
		{"claim of a server with a key", withKey, post("/v1/claim", `{"key":"`+ownersKey+`"}`), "", 409, ""},
		{"claim of a server without", nil, post("/v1/claim", `{"key":"`+ownersKey+`"}`), "", 409, ""},
		{"claim large", withClaim, post("/v1/claim", strings.Repeat(" ", 2<<20)), "", 413, ""},
		{"claim form", withClaim, request{method: "POST", path: "/v1/claim", body: "key=x"}, "", 422, ""},
		{"claim from a page", withClaim, request{method: "POST", path: "/v1/claim", contentType: jsonType, body: "{}", header: map[string]string{"Sec-Fetch-Site": "cross-site"}}, "", 403, ""},
		{"action before the claim", withClaim, post("/execute_action", runTrue), "", 403, `{"detail":"This sandbox has no owner yet: claim it first (POST /v1/claim), or after a restart by hand run 'runtimectl start'"}`},
		{"ready before the claim", withClaim, get("/readyz"), "", 200, ""},
		{"pack", nil, get("/v1/pack?path=/etc/passwd"), "", 200, ""},
		{"pack nothing", nil, get("/v1/pack?path=/no/such"), "", 404, `{"detail":"File not found: \"/no/such\"","errors":[{"code":"file_not_found","path":"/no/such","errno":"ENOENT"}]}`},
		{"pack a device", nil, get("/v1/pack?path=/dev/null"), "", 400, `{"detail":"\"/dev/null\" is neither file nor directory nor link","errors":[{"code":"not_regular_file","path":"/dev/null"}]}`},
		{"pack anything", nil, get("/v1/pack"), "", 422, ""},
		{"pack without key", withKey, get("/v1/pack?path=/tmp"), "", 403, ""},
		{"usage", func(cfg *server.Config) { cfg.ControlGroup = group }, get("/v1/usage"), "", 200, ""},
		{"list without key", withKey, get("/v1/list?path=/"), "", 403, ""},
		{"move without key", withKey, post("/v1/files/move?path=/a&to=/b", ""), "", 403, ""},
		{"usage of nothing", func(cfg *server.Config) { cfg.ControlGroup = dir }, get("/v1/usage"), "", 400, ""},
		{"usage without key", withKey, get("/v1/usage"), "", 403, ""},
		{"network", withNetwork, get("/v1/network"), "", 200, `{"egress":"down","allow":[],"deny":[],"secrets":[],"names":false,"open":0,"denied":[]}`},
		{"no network", nil, get("/v1/network"), "", 409, `{"detail":"This sandbox has no network policy","errors":[]}`},
		{"network without key", withKey, get("/v1/network"), "", 403, ""},
		{"claim with a network elsewhere", withClaim, post("/v1/claim", `{"key":"`+ownersKey+`","network":{"egress":"10.0.0.1:3128"}}`), "", 400, ""},
		{"claim with a network that cannot be", withUnusableProxy, post("/v1/claim", `{"key":"`+ownersKey+`","network":{"egress":"unix:/s"}}`), "", 422, ""},
		{"status", nil, get("/v1/status"), "", 200, ""},
		{"status without key", withKey, get("/v1/status"), "", 403, ""},
		{"renew", nil, post("/v1/renew", `{"ttl_seconds":60}`), "", 200, ""},
		{"renew nothing", nil, post("/v1/renew", `{}`), "", 400, `{"detail":"body: member \"ttl_seconds\" is missing; allowed are ttl_seconds","errors":[]}`},
		{"renew null", nil, post("/v1/renew", `{"ttl_seconds":"x"}`), "", 400, `{"detail":"body: member \"ttl_seconds\" must be an integer, got the string \"x\"","errors":[]}`},
		{"renew no object", nil, post("/v1/renew", `"secret"`), "", 400, `{"detail":"body: must be an object, got a string","errors":[]}`},
		{"renew large", nil, post("/v1/renew", strings.Repeat(" ", 2<<20)), "", 413, ""},
		{"renew form", nil, request{method: "POST", path: "/v1/renew", body: "{}"}, "", 422, ""},
		{"renew without key", withKey, post("/v1/renew", "{}"), "", 403, ""},
		{"sessions", nil, get("/v1/sessions"), "", 200, `{"sessions":[{"name":"default","state":"idle","working_dir":"/w","pid":7,"shell":"/bin/bash","started":"2025-01-02T03:04:05Z","commands":3,"output_bytes":120}]}`},
		{"sessions none", withExecutor(&fake{}), get("/v1/sessions"), "", 200, `{"sessions":[]}`},
		{"sessions without key", withKey, get("/v1/sessions"), "", 403, ""},
		{"session", nil, get("/v1/sessions/default"), "/v1/sessions/{name}", 200, `{"name":"default","state":"idle","working_dir":"/w","pid":7,"shell":"/bin/bash","started":"2025-01-02T03:04:05Z","commands":3,"output_bytes":120}`},
		{"session in disguise", nil, get("/v1/sessions/%64efault"), "/v1/sessions/{name}", 200, ""},
		{"session missing", nil, get("/v1/sessions/a%2Fb"), "/v1/sessions/{name}", 404, `{"detail":"session \"a/b\" does not exist","errors":[]}`},
		{"session without key", withKey, get("/v1/sessions/x"), "/v1/sessions/{name}", 403, ""},
		{"terminal", nil, get("/v1/sessions/x/terminal"), terminalRoute, 426, ""},
		{"terminal in no mode", nil, socket("?mode=paint", nil), terminalRoute, 400, `{"detail":"mode must be \"type\" or \"read\", got \"paint\"","errors":[]}`},
		{"terminal of old", nil, socket("", map[string]string{"Sec-WebSocket-Version": "8"}), terminalRoute, 400, ""},
		{"terminal without a nonce", nil, socket("", map[string]string{"Sec-WebSocket-Key": "x"}), terminalRoute, 400, ""},
		{"terminal from a page", nil, socket("", map[string]string{"Origin": "https://evil.example"}), terminalRoute, 403, ""},
		{"terminal from nowhere", nil, socket("", map[string]string{"Origin": "null"}), terminalRoute, 403, ""},
		{"terminal of too many", func(cfg *server.Config) {
			cfg.Attach = func(context.Context, string, bool) (server.Terminal, error) { return nil, api.TooMany("too many") }
		}, socket("", nil), terminalRoute, 429, `{"detail":"too many","errors":[]}`},
		{"terminal broken", func(cfg *server.Config) {
			cfg.Attach = func(context.Context, string, bool) (server.Terminal, error) { return nil, errors.New("inner secret") }
		}, socket("", nil), terminalRoute, 500, ""},
		{"terminal without key", withKey, socket("", nil), terminalRoute, 403, `{"detail":"Invalid API Key","errors":[]}`},
		{"ports", withPorts(hold), get("/v1/ports"), "", 200, `{"ports":[{"port":8080,"addresses":["127.0.0.1"],"pid":7,"process":"node","command":"node app.js","forwards":true}]}`},
		{"no ports", nil, get("/v1/ports"), "", 200, `{"ports":[]}`},
		{"ports without key", withKey, get("/v1/ports"), "", 403, `{"detail":"Invalid API Key","errors":[]}`},
		{"tunnel", withPorts(hold), get("/v1/ports/8080/tunnel"), tunnelRoute, 426, ""},
		{"tunnel to nothing", nil, tunnelTo("8080", nil), tunnelRoute, 404, ""},
		{"tunnel to no number", withPorts(hold), tunnelTo("http", nil), tunnelRoute, 400, `{"detail":"A port is a number from 1 to 65535, got \"http\"","errors":[]}`},
		{"tunnel from a page", withPorts(hold), tunnelTo("8080", map[string]string{"Origin": "https://evil.example"}), tunnelRoute, 403, ""},
		{"tunnel without key", withKey, tunnelTo("8080", nil), tunnelRoute, 403, `{"detail":"Invalid API Key","errors":[]}`},
		{"close", nil, request{method: "DELETE", path: "/v1/sessions/default"}, "/v1/sessions/{name}", 204, ""},
		{"close missing", nil, request{method: "DELETE", path: "/v1/sessions/x"}, "/v1/sessions/{name}", 404, ""},
		{"close without key", withKey, request{method: "DELETE", path: "/v1/sessions/x"}, "/v1/sessions/{name}", 403, ""},
	}
	covered := map[contract.Route]bool{
		{Method: "POST", Path: "/mcp/messages/"}:       true, // by TestMCPOverEvents
		{Method: "POST", Path: "/messages/"}:           true,
		{Method: "POST", Path: "/api/execution/tools"}: true, // by TestExecutionTools of cmd/server
		// By TestFileBytes.
		{Method: "GET", Path: "/v1/files"}: true, {Method: "HEAD", Path: "/v1/files"}: true,
		{Method: "PUT", Path: "/v1/files"}: true, {Method: "DELETE", Path: "/v1/files"}: true,
		// By TestTree and TestListDirectory.
		{Method: "POST", Path: "/v1/files/mkdir"}: true, {Method: "POST", Path: "/v1/files/move"}: true, {Method: "GET", Path: "/v1/list"}: true,
		// By TestRestoreAnswer and TestCheckpoints.
		{Method: "POST", Path: "/v1/restore"}:    true,
		{Method: "GET", Path: "/v1/checkpoints"}: true, {Method: "POST", Path: "/v1/checkpoints"}: true, {Method: "DELETE", Path: "/v1/checkpoints/{name}"}: true,
		{Method: "POST", Path: "/v1/actions/{id}/input"}:  true, // by TestProgramInput
		{Method: "POST", Path: "/v1/actions/{id}/resize"}: true,
		{Method: "POST", Path: "/v1/actions/{id}/signal"}: true,
	}
	for _, tt := range tests {
		if tt.route == "" {
			tt.route, _, _ = strings.Cut(tt.path, "?")
		}
		if tt.status < 300 {
			covered[contract.Route{Method: tt.method, Path: tt.route}] = true
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.change == nil {
				tt.change = func(*server.Config) {}
			}
			w := tt.send(newServer(t, tt.change))
			if w.Code != tt.status {
				t.Errorf("got status %d, want %d", w.Code, tt.status)
			}
			if got := w.Body.String(); tt.body != "" && got != tt.body {
				t.Errorf("got body  %s\nwant %s", got, tt.body)
			}
			if strings.Contains(w.Body.String(), "inner secret") {
				t.Errorf("the answer tells internals: %s", w.Body)
			}
			if err := spec.CheckResponse(tt.method, tt.route, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
				t.Error(err)
			}
			if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("got X-Content-Type-Options %q, want nosniff", got)
			}
		})
	}
	for _, rt := range spec.Routes() {
		if !covered[rt] && rt.Path != terminalRoute && rt.Path != tunnelRoute { // which answer with a WebSocket: other tests have them
			t.Errorf("%s %s: no successful answer was checked", rt.Method, rt.Path)
		}
	}
}

func TestRoutingErrors(t *testing.T) {
	t.Parallel()
	const notFound, notAllowed = `{"detail":"Not Found"}`, `{"detail":"Method Not Allowed"}`
	tests := []struct {
		name string
		request
		status int
		body   string
		allow  []string
	}{
		{"unknown path", get("/nope"), 404, notFound, nil},
		{"root", get("/"), 404, notFound, nil},
		{"slash behind", get("/alive/"), 404, notFound, nil},
		{"double slash", get("//alive"), 404, notFound, nil},
		{"wrong method", get("/execute_action"), 405, notAllowed, []string{"POST"}},
		{"head", request{method: "HEAD", path: "/alive"}, 405, notAllowed, []string{"GET"}},
		{"options", request{method: "OPTIONS", path: "/execute_action"}, 405, notAllowed, []string{"POST"}},
		{"several methods", post("/v1/sessions/x", "{}"), 405, `{"detail":"Method Not Allowed","errors":[]}`, []string{"GET", "DELETE"}},
		{"unknown method", request{method: "BREW", path: "/alive"}, 405, notAllowed, []string{"GET"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := tt.send(newServer(t))
			if w.Code != tt.status || w.Body.String() != tt.body || w.Header().Get("Content-Type") != jsonType {
				t.Errorf("got %d %s %s, want %d %s", w.Code, w.Header().Get("Content-Type"), w.Body, tt.status, tt.body)
			}
			if got := w.Header()["Allow"]; !slices.Equal(got, tt.allow) {
				t.Errorf("got Allow %q, want %q", got, tt.allow)
			}
		})
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	const forbidden = 403
	bearer := map[string]string{"Authorization": "Bearer s3cret"}
	tests := []struct {
		name string
		request
		status int
	}{
		{"alive", get("/alive"), 200},
		{"server info", get("/server_info"), 200},
		{"healthz", get("/healthz"), 200},
		{"readyz", get("/readyz"), 200},
		{"open, wrong method", post("/alive", ""), 405},
		{"right", request{method: "GET", path: "/v1/sessions", key: "s3cret"}, 200},
		{"right, in other letters", request{method: "GET", path: "/v1/sessions", header: map[string]string{"x-session-api-key": "s3cret"}}, 200},
		{"right, unknown path", request{method: "GET", path: "/nope", key: "s3cret"}, 404},
		{"right, options", request{method: "OPTIONS", path: "/alive", key: "s3cret"}, 405},
		{"missing", get("/v1/sessions"), forbidden},
		{"wrong", request{method: "GET", path: "/v1/sessions", key: "s3creT"}, forbidden},
		{"longer", request{method: "GET", path: "/v1/sessions", key: "s3cret "}, forbidden},
		{"shorter", request{method: "GET", path: "/v1/sessions", key: "s3cre"}, forbidden},
		{"bearer", request{method: "GET", path: "/v1/sessions", header: bearer}, 200},
		{"the same twice", request{method: "GET", path: "/v1/sessions", key: "s3cret", header: bearer}, 200},
		{"another token", request{method: "GET", path: "/v1/sessions", key: "s3cret", header: map[string]string{"Authorization": "Bearer s3creT"}}, 401},
		{"another key", request{method: "GET", path: "/v1/sessions", key: "s3creT", header: bearer}, 401},
		{"an empty key", request{method: "GET", path: "/v1/sessions", header: map[string]string{"Authorization": "Bearer s3cret", "X-Session-API-Key": ""}}, 401},
		{"two wrong keys", request{method: "POST", path: "/list_files", key: "a", header: map[string]string{"Authorization": "Bearer b"}}, 401},
		{"the same wrong key twice", request{method: "GET", path: "/v1/sessions", key: "a", header: map[string]string{"Authorization": "Bearer a"}}, forbidden},
		{"a password beside the key", request{method: "GET", path: "/v1/sessions", key: "s3cret", header: map[string]string{"Authorization": "Basic eDp5"}}, 200},
		{"open, different keys", request{method: "GET", path: "/alive", key: "s3creT", header: bearer}, 200},
		{"in the query", get("/v1/sessions?X-Session-API-Key=s3cret"), forbidden},
		{"unknown path", get("/nope"), forbidden},
		{"options", request{method: "OPTIONS", path: "/execute_action"}, forbidden},
		{"wrong method", get("/execute_action"), forbidden},
		{"slash behind an open path", get("/alive/"), forbidden},
		{"below an open path", get("/alive/../metrics"), forbidden},
		{"open path in disguise", get("/%61live"), forbidden},
		{"open path in capitals", get("/ALIVE"), forbidden},
		{"double slash", get("//alive"), forbidden},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log testhelp.Buffer
			w := tt.send(newServer(t, withKey, withLog(&log)))
			if w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
			want := `{"detail":"Invalid API Key"}`
			if strings.HasPrefix(tt.path, "/v1/") {
				want = `{"detail":"Invalid API Key","errors":[]}`
			}
			if w.Code == forbidden && w.Body.String() != want {
				t.Errorf("got %s, want %s", w.Body, want)
			}
			if strings.Contains(log.String(), "s3cre") {
				t.Errorf("the log tells a key: %s", log.String())
			}
		})
	}
}

// A page in a browser on the machine of a developer must not reach a server
// without a key; a browser asks for no permission before it sends a form.
func TestForeignPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	body, contentType := form(t, "a.txt", []byte("a"))
	upload := func(header map[string]string) request {
		return request{method: "POST", path: "http://localhost:3000/upload_file?destination=" + dir, contentType: contentType, body: body, header: header}
	}
	read := func(header map[string]string) request {
		return request{method: "GET", path: "http://localhost:3000/v1/files?path=/etc/passwd", header: header}
	}
	tests := []struct {
		name string
		request
		status int
	}{
		{"no browser", upload(nil), 200},
		{"read without a browser", read(nil), 200},
		{"read by its own page", read(map[string]string{"Sec-Fetch-Site": "same-origin"}), 200},
		{"read by cross-site", read(map[string]string{"Sec-Fetch-Site": "cross-site"}), 403},
		{"read by same-site", read(map[string]string{"Sec-Fetch-Site": "same-site"}), 403},
		{"read by an old browser", read(map[string]string{"Origin": "https://evil.example"}), 403},
		{"read by its own origin", read(map[string]string{"Origin": "http://localhost:3000"}), 200},
		{"same origin", upload(map[string]string{"Sec-Fetch-Site": "same-origin"}), 200},
		{"typed in", upload(map[string]string{"Sec-Fetch-Site": "none"}), 200},
		{"cross-site", upload(map[string]string{"Sec-Fetch-Site": "cross-site"}), 403},
		{"same-site", upload(map[string]string{"Sec-Fetch-Site": "same-site"}), 403},
		{"old browser", upload(map[string]string{"Origin": "https://evil.example"}), 403},
		{"other port", upload(map[string]string{"Origin": "http://localhost:4000"}), 403},
		{"own origin", upload(map[string]string{"Origin": "http://localhost:3000"}), 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if w := tt.send(newServer(t)); w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
		})
	}
}

// An internal error is logged once with its chain, and not told to the client; the
// server goes on.
func TestBroken(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		do     func() (api.Observation, error)
		logged []string
	}{
		{"error", func() (api.Observation, error) {
			return nil, errors.Join(errors.New("opening log"), errors.New("inner secret"))
		}, []string{"opening log", "inner secret"}},
		{"panic", func() (api.Observation, error) { panic("inner secret") }, []string{"inner secret", "server_test.go"}},
		{"nothing", func() (api.Observation, error) { return nil, nil }, []string{"encoding observation"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log testhelp.Buffer
			s := newServer(t, withLog(&log), withExecutor(&fake{do: func(context.Context, api.Request) (api.Observation, error) { return tt.do() }}))
			w := post("/execute_action", runTrue).send(s)
			if w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("got %d %s, want 500 without internals", w.Code, w.Body)
			}
			id := field(t, w.Body.Bytes(), "id")
			lines := 0
			for line := range strings.Lines(log.String()) {
				if !strings.Contains(line, `"level":"ERROR"`) {
					continue
				}
				lines++
				for _, want := range append(tt.logged, id) {
					if !strings.Contains(line, want) {
						t.Errorf("got log %s, want it to contain %q", line, want)
					}
				}
			}
			if lines != 1 {
				t.Errorf("got %d errors in the log, want 1: %s", lines, log.String())
			}
			if w := get("/alive").send(s); w.Code != 200 {
				t.Errorf("got %d afterwards, want 200", w.Code)
			}
		})
	}
}

// The log has a line per request and none of what was sent.
func TestLogHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	var log testhelp.Buffer
	s := newServer(t, withLog(&log), withKey)
	w := request{
		method: "POST", path: "/execute_action?token=hush", contentType: jsonType, key: "s3cret",
		body: `{"action":{"action":"run","args":{"command":"echo hush"}}}`,
	}.send(s)
	got := log.String()
	if n := strings.Count(got, "\n"); n != 1 {
		t.Errorf("got %d lines, want 1: %s", n, got)
	}
	for _, want := range []string{`"level":"DEBUG"`, `"method":"POST"`, `"path":"/execute_action"`, `"status":200`, `"duration":`, `"bytes":` + itoa(w.Body.Len())} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
	for _, hidden := range []string{"hush", "s3cret"} {
		if strings.Contains(got, hidden) {
			t.Errorf("got %s, want no %q in it", got, hidden)
		}
	}
}

func TestOpenAPITag(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tag := get("/openapi.yaml").send(s).Header().Get("ETag")
	if len(tag) < 10 {
		t.Fatalf("got ETag %q, want one", tag)
	}
	tests := []struct {
		name, match string
		status      int
	}{
		{"same", tag, 304},
		{"weak", "W/" + tag, 304},
		{"one of several", `"a", ` + tag, 304},
		{"other", `"a"`, 200},
		{"none", "", 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := request{method: "GET", path: "/openapi.yaml", header: map[string]string{"If-None-Match": tt.match}}.send(s)
			if want := map[int]int{200: len(api.OpenAPI), 304: 0}[tt.status]; w.Code != tt.status || w.Body.Len() != want {
				t.Errorf("got %d with %d bytes, want %d with %d", w.Code, w.Body.Len(), tt.status, want)
			}
		})
	}
}

// readAll reads an answer and closes it.
func readAll(tb testing.TB, resp *http.Response) string {
	tb.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatalf("reading answer: %v", err)
	}
	return string(body)
}

// A web page may have its name changed to mean this machine. It then is of the
// server's origin, but has no key.
func TestRenamedHost(t *testing.T) {
	t.Parallel()
	tests := []struct {
		host, key, header string
		want              int
	}{
		{"localhost", "", "Origin", 200},
		{"localhost:80", "", "Origin", 200},
		{"LocalHost:80", "", "Origin", 200},
		{"127.0.0.1:80", "", "Origin", 200},
		{"[::1]:80", "", "Origin", 200},
		{"[::1]", "", "Origin", 200},
		{"10.0.0.1", "", "Origin", 200}, // no page's name means anything by itself
		{"evil.example", "", "Origin", 403},
		{"evil.example:80", "", "Origin", 403},
		{"evil.example", "", "Accept-Language", 403},
		{"sandbox", "", "X-Other", 200}, // no browser
		{"localhost.evil.example", "", "Origin", 403},
		{"gateway.example", "s3cret", "Origin", 200}, // pages have no key
	}
	for _, tt := range tests {
		l := httptest.NewServer(newServer(t, func(c *server.Config) { c.Key = tt.key }))
		defer l.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+"/execute_action", strings.NewReader(runTrue))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = tt.host
		req.Header.Set("Content-Type", jsonType)
		req.Header.Set(tt.header, "http://"+tt.host)
		req.Header.Set("X-Session-API-Key", tt.key)
		resp, err := l.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("%s: got %d, want %d", tt.host, resp.StatusCode, tt.want)
		}
	}
}
