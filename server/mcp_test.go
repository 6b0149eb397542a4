package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

// fakeMCP keeps one server, made with the SDK; nil has connections that end at once.
type fakeMCP struct{ server *mcp.Server }

func (f fakeMCP) UpdateMCP([]api.MCPServer) ([]string, error) { return []string{"a: one", "two"}, nil }

func (f fakeMCP) CheckMCP() error { return nil }

func (f fakeMCP) OpenMCP() (net.Conn, error) {
	ours, theirs := net.Pipe()
	if f.server == nil {
		return theirs, ours.Close()
	}
	_, err := f.server.Connect(context.Background(), &mcp.IOTransport{Reader: ours, Writer: ours}, nil)
	return theirs, err
}

func withMCP(cfg *server.Config) { cfg.MCP = fakeMCP{} }

// rpc is a message to a server over streamable HTTP.
func rpc(path, body string) request {
	q := post(path, body)
	q.header = map[string]string{"Accept": "application/json, text/event-stream"}
	return q
}

// noMCPYet was given no servers.
type noMCPYet struct{ fakeMCP }

func (noMCPYet) CheckMCP() error { return api.NotFound("none yet") }

// keyed sends a key with every request, twice as MCP clients must.
type keyed string

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(api.KeyHeader, string(k))
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// bearing sends a key as a bearer token only.
type bearing string

func (k bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

func connectMCP(t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// A client of the SDK speaks to a server of the SDK through ours.
func TestMCPOverEvents(t *testing.T) {
	t.Parallel()
	inner := mcp.NewServer(&mcp.Implementation{Name: "inner", Version: "1"}, nil)
	mcp.AddTool(inner, &mcp.Tool{Name: "double"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct{ Text string }) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text + in.Text}}}, nil, nil
	})
	h := httptest.NewServer(newServer(t, withKey, func(cfg *server.Config) { cfg.MCP = fakeMCP{inner} }))
	t.Cleanup(h.Close)
	for _, path := range []string{"/mcp/sse", "/sse"} {
		session := connectMCP(t, &mcp.SSEClientTransport{Endpoint: h.URL + path, HTTPClient: &http.Client{Transport: keyed("s3cret")}})
		text := strings.Repeat("line\n\u2028é", 100_000)
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "double", Arguments: map[string]any{"Text": text}})
		if err != nil || result.Content[0].(*mcp.TextContent).Text != text+text {
			t.Errorf("%s: got %.200v, %v", path, result, err)
		}
	}
}

// The agent's servers want the key as a bearer token, as the reference does also beside it.
func TestMCPAuthentication(t *testing.T) {
	t.Parallel()
	const (
		right     = "s3cret,_of_thirty-two_characters"
		wrong     = "s3cret,_of_thirty-two_character"
		missing   = `{"error":"invalid_token","error_description":"Authentication required"}`
		different = `{"error":"invalid_token","error_description":"The headers of the request have different keys: send one"}`
		challenge = `Bearer error="invalid_token", error_description="Authentication required"`
	)
	spec := contract.NewSpec(t)
	withKey := func(cfg *server.Config) { cfg.Key = right }
	some := newServer(t, withKey, withMCP)
	none := newServer(t, withKey, func(cfg *server.Config) { cfg.MCP = noMCPYet{} })
	never := newServer(t, withKey)
	open := newServer(t, withMCP)
	claimed := newServer(t, func(cfg *server.Config) { cfg.Claim = true }, withMCP)
	if w := post("/v1/claim", `{"key":"s3cret,_of_thirty-two_characters"}`).send(claimed); w.Code != http.StatusNoContent {
		t.Fatalf("the claim: got %d %s", w.Code, w.Body)
	}
	for _, test := range []struct {
		name                string
		server              *server.Server
		key, authentication string
		status              int // of the events; that of a message is 404 where this is 200
		body                string
	}{
		{"nothing", some, "", "", 403, `{"detail":"Invalid API Key"}`},
		{"bearer alone", some, "", "Bearer " + right, 200, ""},
		{"wrong key", some, wrong, "Bearer " + right, 401, different},
		{"key alone", some, right, "", 401, missing},
		{"wrong token", some, right, "Bearer " + wrong, 401, different},
		{"wrong token alone", some, "", "Bearer " + wrong, 403, `{"detail":"Invalid API Key"}`},
		{"longer token", some, right, "Bearer " + right + " ", 401, different},
		{"no token", some, right, "Bearer ", 401, missing},
		{"another scheme", some, right, "Basic " + right, 401, missing},
		{"no scheme", some, right, right, 401, missing},
		{"both", some, right, "Bearer " + right, 200, ""},
		{"scheme in another case", some, right, "bEARER " + right, 200, ""},
		{"claimed, key alone", claimed, right, "", 401, missing},
		{"claimed, both", claimed, right, "Bearer " + right, 200, ""},
		{"before any server", none, right, "", 404, `{"detail":"none yet"}`},
		{"where there are never any", never, right, "", 404, ""},
		{"no key to ask for", open, "", "", 200, ""},
	} {
		for _, path := range []string{"/mcp/sse", "/sse", "/mcp/messages/", "/messages/"} {
			q := request{method: "GET", path: path}
			status := test.status
			if strings.HasSuffix(path, "/messages/") {
				q = post(path+"?session_id="+strings.Repeat("0", 32), `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				if status == http.StatusOK {
					status = http.StatusNotFound // behind the door
				}
			}
			q.header = map[string]string{}
			if test.key != "" {
				q.header[api.KeyHeader] = test.key
			}
			if test.authentication != "" {
				q.header["Authorization"] = test.authentication
			}
			w := q.send(test.server)
			if w.Code != status || test.body != "" && w.Body.String() != test.body {
				t.Errorf("%s, %s: got %d %s, want %d %s", path, test.name, w.Code, w.Body, status, test.body)
			}
			if got := w.Header().Get("WWW-Authenticate"); (w.Code == http.StatusUnauthorized) != (got != "") || test.body == missing && got != challenge {
				t.Errorf("%s, %s: got WWW-Authenticate %q", path, test.name, got)
			}
			if err := spec.CheckResponse(q.method, path, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
				t.Error(err)
			}
		}
	}
}

// Behind a proxy that takes a prefix off, clients are told of it; and no client can
// make them send their messages, with the key, to another host.
func TestMCPBehindAPrefix(t *testing.T) {
	t.Parallel()
	s := newServer(t, withMCP)
	for prefix, want := range map[string]string{
		"":                              "/mcp/messages/?session_id=",
		"/sandboxes/0a1b":               "/sandboxes/0a1b/mcp/messages/?session_id=",
		"/a-b/c_d/e.f/~g/":              "/a-b/c_d/e.f/~g/mcp/messages/?session_id=",
		"/":                             "/mcp/messages/?session_id=",
		"//evil.example":                "",
		"/\\evil.example":               "",
		"https://evil.example":          "",
		"sandboxes":                     "",
		"/../x":                         "",
		"/a//b":                         "",
		"/a, /b":                        "",
		"/a?b":                          "",
		"/a#b":                          "",
		"/a%2F":                         "",
		"/é":                            "",
		"/a b":                          "",
		"/@evil.example":                "",
		"/x:80@evil.example/":           "",
		"/" + strings.Repeat("x", 2000): "",
	} {
		for _, path := range []string{"/mcp", ""} {
			q := request{method: "GET", path: path + "/sse"}
			if prefix != "" {
				q.header = map[string]string{"X-Forwarded-Prefix": prefix}
			}
			w := q.send(s)
			if want == "" {
				if w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), "event:") {
					t.Errorf("%q: got %d %s, want 400", prefix, w.Code, w.Body)
				}
				continue
			}
			own := strings.Replace(want, "/mcp/messages", path+"/messages", 1)
			if got, _, _ := strings.Cut(w.Body.String(), "="); w.Code != 200 || got+"=" != "event: endpoint\ndata: "+own {
				t.Errorf("%q: got %d %q, want %q", prefix, w.Code, got, own)
			}
		}
	}
}

// The events are as recorded clients expect them, and so are the answers.
func TestMCPEventsOnTheWire(t *testing.T) {
	t.Parallel()
	inner := mcp.NewServer(&mcp.Implementation{Name: "inner", Version: "1"}, nil)
	h := httptest.NewServer(newServer(t, func(cfg *server.Config) { cfg.MCP = fakeMCP{inner} }))
	t.Cleanup(h.Close)
	resp, err := http.Get(h.URL + "/mcp/sse")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	line(t, events, "event: endpoint")
	endpoint, err := events.ReadString('\n')
	if err != nil || len(endpoint) != len("data: /mcp/messages/?session_id=\n")+32 || !strings.HasPrefix(endpoint, "data: /mcp/messages/?session_id=") {
		t.Fatalf("got %q, %v", endpoint, err)
	}
	line(t, events, "")
	path := strings.TrimSpace(strings.TrimPrefix(endpoint, "data: "))
	for _, message := range []struct {
		body   string
		status int
		answer string
	}{
		{`{"jsonrpc":"2.0","id":1}`, 400, `{"detail":"Could not parse message: there must be a \"method\", or an \"id\" and either a \"result\" or an \"error\""}`},
		{`nonsense`, 400, ""},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 400, ""},
		{" {\n\"jsonrpc\":\"2.0\",\"id\":1,\r\n\"method\":\"ping\"} \t\n", 202, "Accepted"},
	} {
		resp, err := http.Post(h.URL+path, "application/json", strings.NewReader(message.body))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != message.status || message.answer != "" && string(body) != message.answer {
			t.Errorf("%s: got %d %s", message.body, resp.StatusCode, body)
		}
		if err := contract.NewSpec(t).CheckResponse("POST", "/mcp/messages/", resp.StatusCode, resp.Header.Get("Content-Type"), body); err != nil {
			t.Error(err)
		}
	}
	line(t, events, "event: message")
	line(t, events, `data: {"jsonrpc":"2.0","id":1,"result":{}}`)
}

// A connected client does not hold up the end of the server.
func TestMCPEventsEndWithTheServer(t *testing.T) {
	t.Parallel()
	inner := mcp.NewServer(&mcp.Implementation{Name: "inner", Version: "1"}, nil)
	ctx, stop := context.WithCancel(t.Context())
	l := testhelp.Listen(t)
	served := make(chan error, 1)
	go func() { served <- newServer(t, func(cfg *server.Config) { cfg.MCP = fakeMCP{inner} }).Serve(ctx, l) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/mcp/sse")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stop()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the events: got %v, want a clean end", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Any client uses the sandbox's tools; both generations of the protocol do.
func TestOfferedTools(t *testing.T) {
	t.Parallel()
	var sessions []string
	h := httptest.NewServer(newServer(t, withKey, withExecutor(&fake{do: func(ctx context.Context, req api.Request) (api.Observation, error) {
		sessions = append(sessions, req.Session)
		run, ok := req.Action.(api.RunAction)
		switch {
		case !ok:
			return nil, fmt.Errorf("inner secret")
		case run.Command == "wait":
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return api.RunObservation{Content: "out of " + run.Command, Metadata: api.RunMetadata{Suffix: "\n[done]"}}, nil
	}})))
	t.Cleanup(h.Close)
	for _, version := range []string{"", "2025-06-18"} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: h.URL + "/mcp?session=build", HTTPClient: &http.Client{Transport: keyed("s3cret")}, DisableStandaloneSSE: true,
		}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		list, err := session.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) == 0 || list.Tools[0].Name != "execute_bash" {
			t.Fatalf("%s: got %+v, %v", version, list, err)
		}
		for _, test := range []struct {
			tool, command, want string
			isError             bool
		}{
			{"execute_bash", "ls", "out of ls\n[done]", false},
			{"execute_bush", "ls", `did you mean \"execute_bash\"?`, true},
			{"execute_bash", "", `argument`, true},
		} {
			arguments := map[string]any{}
			if test.command != "" {
				arguments["command"] = test.command
			}
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: test.tool, Arguments: arguments})
			if err != nil {
				t.Fatal(err)
			}
			got := result.Content[0].(*mcp.TextContent).Text
			if result.IsError != test.isError || !strings.Contains(strings.ReplaceAll(got, `"`, `\"`), test.want) && got != test.want {
				t.Errorf("%s: got %q, %v", test.tool, got, result.IsError)
			}
		}
		_ = session.Close()
	}
	for _, name := range sessions {
		if name != "build" {
			t.Errorf("a command ran in the session %q", name)
		}
	}
}

// The key may come as a bearer token, which is all that many clients can send.
func TestOfferedToolsByToken(t *testing.T) {
	t.Parallel()
	s := newServer(t, withKey)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	session := connectMCP(t, &mcp.StreamableClientTransport{Endpoint: h.URL + "/mcp", HTTPClient: &http.Client{Transport: bearing("s3cret")}})
	if list, err := session.ListTools(t.Context(), nil); err != nil || len(list.Tools) == 0 || list.CacheScope != "private" {
		t.Errorf("got %+v, %v", list, err)
	}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, test := range []struct {
		name   string
		q      request
		header map[string]string
		status int
	}{
		{"token", rpc("/mcp", ping), map[string]string{"Authorization": "Bearer s3cret"}, 200},
		{"wrong token", rpc("/mcp", ping), map[string]string{"Authorization": "Bearer s3cre"}, 403},
		{"empty token", rpc("/mcp", ping), map[string]string{"Authorization": "Bearer "}, 403},
		{"another scheme", rpc("/mcp", ping), map[string]string{"Authorization": "Basic s3cret"}, 403},
		{"token beside a wrong key", rpc("/mcp", ping), map[string]string{"Authorization": "Bearer s3cret", api.KeyHeader: "x"}, 401},
		{"token beside an empty key", rpc("/mcp", ping), map[string]string{"Authorization": "Bearer s3cret", api.KeyHeader: ""}, 401},
		{"wrong token beside the key", rpc("/mcp", ping), map[string]string{"Authorization": "Bearer x", api.KeyHeader: "s3cret"}, 401},
		{"metrics", get("/metrics"), map[string]string{"Authorization": "Bearer s3cret"}, 200},
		{"metrics, wrong token", get("/metrics"), map[string]string{"Authorization": "Bearer s3cre"}, 403},
		{"metrics, a password", get("/metrics"), map[string]string{"Authorization": "Basic s3cret"}, 403},
		{"the list of tools", get("/v1/tools"), map[string]string{"Authorization": "bearer s3cret"}, 200},
	} {
		for name, value := range test.header {
			if test.q.header == nil {
				test.q.header = map[string]string{}
			}
			test.q.header[name] = value
		}
		if w := test.q.send(s); w.Code != test.status {
			t.Errorf("%s: got %d %s, want %d", test.name, w.Code, w.Body, test.status)
		}
	}
}

// lasting is an executor whose commands run until they are released or cancelled.
type lasting struct {
	fake
	began, release, cancelled chan struct{} // began and cancelled get one element per command
}

func newLasting() *lasting {
	return &lasting{began: make(chan struct{}, 10), release: make(chan struct{}), cancelled: make(chan struct{}, 10)}
}

func (l *lasting) Watch(_ context.Context, _ api.Request, w api.Watch) (api.Observation, error) {
	if err := w.Begins(); err != nil {
		return nil, err
	}
	l.began <- struct{}{}
	select {
	case <-l.release:
		return api.RunObservation{Content: "released"}, nil
	case <-w.Cancelled:
		l.cancelled <- struct{}{}
		return api.RunObservation{Content: "cancelled", Metadata: api.RunMetadata{ExitCode: 130}}, nil
	}
}

// serveLasting serves an executor, and tells the end of each request at /mcp whose client left.
func serveLasting(t *testing.T, l *lasting) (url string, left <-chan struct{}) {
	t.Helper()
	s := newServer(t, func(cfg *server.Config) { cfg.Executor = l })
	gone := make(chan struct{}, 10)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if r.URL.Path == "/mcp" && r.Context().Err() != nil {
				gone <- struct{}{}
			}
		}()
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h.URL, gone
}

func connectRevision(t *testing.T, url, revision string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp", DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func bashCall(meta mcp.Meta) *mcp.CallToolParams {
	return &mcp.CallToolParams{Meta: meta, Name: "execute_bash", Arguments: map[string]any{"command": "make"}}
}

// A client that leaves cancels its call where the protocol says so, and the call has no identity.
func TestOfferedToolAbandoned(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		revision string
		meta     mcp.Meta
		cancels  bool
	}{
		{"2026-07-28", nil, true},
		{"2026-07-28", mcp.Meta{"progressToken": "t"}, true},
		{"2026-07-28", mcp.Meta{api.MCPIdentity: "mine"}, false},
		{"2025-11-25", nil, false},
		{"2025-11-25", mcp.Meta{api.MCPIdentity: "mine"}, false},
	} {
		l := newLasting()
		url, left := serveLasting(t, l)
		session := connectRevision(t, url, test.revision, nil)
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := session.CallTool(ctx, bashCall(test.meta))
			ended <- err
		}()
		<-l.began
		leave()
		if err := <-ended; err == nil {
			t.Errorf("%+v: the call succeeded", test)
		}
		<-left
		if test.cancels {
			<-l.cancelled
			continue
		}
		if len(l.cancelled) > 0 {
			t.Errorf("%+v: the command was cancelled", test)
		}
		close(l.release)
	}
}

// A call with an id runs once: the client comes back for its result, or cancels it.
func TestOfferedToolByIdentity(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"2026-07-28", "2025-06-18"} {
		l := newLasting()
		url, left := serveLasting(t, l)
		session := connectRevision(t, url, revision, nil)
		for _, id := range []string{"one", "two"} {
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				_, _ = session.CallTool(ctx, bashCall(mcp.Meta{api.MCPIdentity: id}))
				close(ended)
			}()
			<-l.began
			leave()
			<-ended
			<-left
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, url+"/v1/actions/two", nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("got %v, %v", resp, err)
		}
		_ = resp.Body.Close()
		close(l.release)
		for _, test := range []struct {
			id, command, text string
			isError           bool
		}{
			{"one", "make", "released", false},
			{"one", "make", "released", false},
			{"two", "make", "cancelled", true},
			{"one", "make all", `Idempotency-Key: the id "one" was sent before with another body; a new action needs a new id`, true},
			{"a\nb", "make", `_meta "actiond/id": `, true},
		} {
			call := bashCall(mcp.Meta{api.MCPIdentity: test.id})
			call.Arguments = map[string]any{"command": test.command}
			result, err := session.CallTool(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			text := result.Content[0].(*mcp.TextContent).Text
			if !strings.HasPrefix(text, test.text) || result.IsError != test.isError || test.id != "a\nb" && result.Meta[api.MCPIdentity] != test.id {
				t.Errorf("%s, %+v: got %q, %v, %v", revision, test, text, result.IsError, result.Meta)
			}
		}
		if len(l.began) > 0 {
			t.Errorf("%s: a command ran again", revision)
		}
	}
}

// A client that asks for progress gets it while a command runs.
func TestOfferedToolProgress(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"2026-07-28", "2025-06-18"} {
		told := make(chan *mcp.ProgressNotificationParams, 1000)
		s := newServer(t, withExecutor(&fake{
			looks: func() *api.Waiting { return &api.Waiting{Text: "make is busy"} },
			stream: func(_ context.Context, _ api.Request, output func(api.Output)) (api.Observation, error) {
				output(api.Output{Data: []byte("12345")})
				last := -1.0
				for n := 0; n < 3; {
					p := <-told
					if p.Message == "waits for its turn in the session" || strings.HasPrefix(p.Message, "0 bytes of output") {
						continue // sent before this ran, or printed
					}
					n++
					if p.ProgressToken != "t" || p.Progress <= last || p.Message != "5 bytes of output: make is busy" {
						t.Errorf("%s: got %+v after %v", revision, p, last)
					}
					last = p.Progress
				}
				return api.RunObservation{Content: "made"}, nil
			},
		}))
		s.SetHeartbeat(time.Millisecond)
		h := httptest.NewServer(s)
		t.Cleanup(h.Close)
		session := connectRevision(t, h.URL, revision, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { told <- r.Params },
		})
		result, err := session.CallTool(t.Context(), bashCall(mcp.Meta{"progressToken": "t"}))
		if err != nil || result.IsError || result.Content[0].(*mcp.TextContent).Text != "made" {
			t.Errorf("%s: got %+v, %v", revision, result, err)
		}
	}
}

// Clients learn what a tool can do, so that they need not ask a person before each search.
func TestOfferedToolsAreAnnotated(t *testing.T) {
	t.Parallel()
	h := httptest.NewServer(newServer(t, func(cfg *server.Config) { cfg.Executor = able{cfg.Executor} }))
	t.Cleanup(h.Close)
	type hints struct{ reads, destroys, repeatable, open bool }
	want := map[string]hints{
		"run_shell_command": {false, true, false, true}, "replace": {false, true, false, false}, "write_file": {false, true, true, false},
		"read_file": {true, false, false, false}, "glob": {true, false, false, false}, "grep_search": {true, false, false, false},
		"list_directory": {true, false, false, false}, "list_background_processes": {true, false, false, false}, "read_background_output": {true, false, false, false},
	}
	session := connectMCP(t, &mcp.StreamableClientTransport{Endpoint: h.URL + "/mcp?dialect=gemini"})
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]hints{}
	for _, tool := range list.Tools {
		a := tool.Annotations
		got[tool.Name] = hints{a.ReadOnlyHint, *a.DestructiveHint, a.IdempotentHint, *a.OpenWorldHint}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if r := session.InitializeResult(); r == nil || !strings.Contains(r.Instructions, "one persistent shell") {
		t.Errorf("got %+v, want instructions", r)
	}
}

// able can do everything.
type able struct{ server.Executor }

func (able) Capabilities() map[string]api.Capability {
	all := map[string]api.Capability{}
	for _, action := range []string{"run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive", "glob", "grep", "list_directory"} {
		all[action] = api.Capability{Available: true}
	}
	return all
}

// An action of a client that left keeps its place until it ends.
func TestOfferedToolsAreBounded(t *testing.T) {
	t.Parallel()
	l := newLasting()
	s := newServer(t, func(cfg *server.Config) { cfg.Executor, cfg.MaxActions = l, 1 })
	ctx, leave := context.WithCancel(t.Context())
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_bash","arguments":{"command":"x"}}}`
	go func() {
		<-l.began
		leave()
	}()
	rpc("/mcp", call).send(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeHTTP(w, r.WithContext(ctx)) }))
	if w := rpc("/mcp", call).send(s); w.Code != http.StatusTooManyRequests {
		t.Errorf("got %d %s, want 429", w.Code, w.Body)
	}
	close(l.release)
}

// Without a key, a page that makes its name mean this machine is refused.
func TestOfferedToolsRebinding(t *testing.T) {
	t.Parallel()
	h := httptest.NewServer(newServer(t))
	t.Cleanup(h.Close)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	req.Host = "evil.example"
	req.Header.Set("Content-Type", jsonType)
	req.Header.Set("Origin", "http://evil.example")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("got %d, want 403", resp.StatusCode)
	}
}
