package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/apitest"
	"github.com/actiond/actiond/server"
)

// fakeMCP keeps one server, made with the SDK; nil has connections that end at once.
type fakeMCP struct{ server *mcp.Server }

func (f fakeMCP) UpdateMCP([]api.MCPServer) ([]string, error) { return []string{"a: one", "two"}, nil }

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

// keyed sends a key with every request.
type keyed string

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(api.KeyHeader, string(k))
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
	session := connectMCP(t, &mcp.SSEClientTransport{Endpoint: h.URL + "/mcp/sse", HTTPClient: &http.Client{Transport: keyed("s3cret")}})
	text := strings.Repeat("line\n\u2028é", 100_000)
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "double", Arguments: map[string]any{"Text": text}})
	if err != nil || result.Content[0].(*mcp.TextContent).Text != text+text {
		t.Errorf("got %.200v, %v", result, err)
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
		if err := apitest.NewSpec(t).CheckResponse("POST", "/mcp/messages/", resp.StatusCode, resp.Header.Get("Content-Type"), body); err != nil {
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// A client that leaves ends the wait for its call.
func TestOfferedToolAbandoned(t *testing.T) {
	t.Parallel()
	began, left := make(chan struct{}), make(chan struct{})
	h := httptest.NewServer(newServer(t, withExecutor(&fake{do: func(ctx context.Context, _ api.Request) (api.Observation, error) {
		close(began)
		<-ctx.Done()
		close(left)
		return nil, context.Cause(ctx)
	}})))
	t.Cleanup(h.Close)
	ctx, leave := context.WithCancel(t.Context())
	q := rpc("", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_bash","arguments":{"command":"x"}}}`)
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/mcp", strings.NewReader(q.body))
	req.Header.Set("Content-Type", jsonType)
	req.Header.Set("Accept", q.header["Accept"])
	go func() {
		<-began
		leave()
	}()
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
	}
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Error("the wait goes on")
	}
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
