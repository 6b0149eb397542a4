package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/local"
	"github.com/actiond/actiond/sandbox/agent"
)

// mcpServerVariable makes the test binary an MCP server over standard input and
// output, in the mode that it holds.
const mcpServerVariable = "ACTIOND_TEST_MCP_SERVER"

// serveMCP is that server.
func serveMCP(mode string) int {
	switch mode {
	case "dies":
		_, _ = fmt.Fprintln(os.Stderr, "cannot sign in with", os.Getenv("TOKEN"))
		return 3
	case "hangs":
		<-time.After(time.Hour) // a select without cases would be a deadlock to a runtime without cgo
	case "junk": // between its messages
		fmt.Println("Listening!\n{\"level\": \"info\"}")
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	type args struct {
		Text string `json:"text"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "shout"}, func(_ context.Context, _ *mcp.CallToolRequest, in args) (*mcp.CallToolResult, any, error) {
		if mode == "junk" {
			fmt.Println("shouting")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.ToUpper(in.Text) + os.Getenv("END")}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "crash"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		_, _ = fmt.Fprintln(os.Stderr, "out of luck with", os.Getenv("TOKEN"))
		os.Exit(7)
		return nil, nil, nil
	})
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		return 1
	}
	return 0
}

// mcpServer is an entry of /update_mcp_server.
func mcpServer(t *testing.T, name, mode string) api.MCPServer {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return api.MCPServer{Name: name, Command: program, Args: []string{}, Env: map[string]string{
		mcpServerVariable: mode, "END": "!", "TOKEN": "hunter2secret",
	}}
}

// box is a sandbox of this machine as HTTP clients see it.
type box struct {
	t    *testing.T
	key  string
	http *http.Client
}

// RoundTrip sends the key as clients of OpenHands do.
func (b *box) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(api.KeyHeader, b.key)
	r.Header.Set("Authorization", "Bearer "+b.key)
	return b.http.Transport.RoundTrip(r)
}

func (m localMachine) box(name string) *box {
	m.t.Helper()
	driver, err := local.Open(local.Config{StateDir: m.dir, Agent: agent.Agent{}})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { driver.Close() })
	s, err := driver.Get(m.t.Context(), name)
	if err != nil {
		m.t.Fatal(err)
	}
	key, err := s.Key()
	if err != nil {
		m.t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) }}
	m.t.Cleanup(transport.CloseIdleConnections)
	return &box{m.t, key, &http.Client{Transport: transport}}
}

// post posts JSON and returns the answer.
func (b *box) post(path string, body any) map[string]any {
	b.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, "http://sandbox"+path, strings.NewReader(string(data)))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := b.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: got %d %s, %v", path, resp.StatusCode, answer, err)
	}
	var v map[string]any
	if err := json.Unmarshal(answer, &v); err != nil {
		b.t.Fatal(err)
	}
	return v
}

// call calls a tool of the agent's servers as an action.
func (b *box) call(tool, text string, timeout float64) map[string]any {
	b.t.Helper()
	return b.post("/execute_action", map[string]any{"action": map[string]any{
		"action": "call_tool_mcp", "args": map[string]any{"name": tool, "arguments": map[string]any{"text": text}}, "timeout": timeout,
	}})
}

func (b *box) connect(transport mcp.Transport) *mcp.ClientSession {
	b.t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(b.t.Context(), transport, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return session
}

func (b *box) overEvents() *mcp.ClientSession {
	b.t.Helper()
	return b.connect(&mcp.SSEClientTransport{Endpoint: "http://sandbox/mcp/sse", HTTPClient: &http.Client{Transport: b}})
}

// use lists the tools of a session and calls one.
func use(t *testing.T, session *mcp.ClientSession, tool string, arguments map[string]any) (tools []string, answer string, isError bool) {
	t.Helper()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		tools = append(tools, tool.Name)
	}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil || len(result.Content) != 1 {
		t.Fatalf("%s: got %+v, %v", tool, result, err)
	}
	return tools, result.Content[0].(*mcp.TextContent).Text, result.IsError
}

// All of it: MCP servers in the sandbox of a server process, and clients over
// each transport.
func TestMCPServers(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	b := m.box("box")
	shout := map[string]any{"text": "hello"}

	_, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.SSEClientTransport{Endpoint: "http://sandbox/mcp/sse", HTTPClient: &http.Client{Transport: b}}, nil)
	if err == nil {
		t.Fatal("before any server: a client is let in")
	}

	// One server: its tools have their own names.
	if got := b.post("/update_mcp_server", []api.MCPServer{mcpServer(t, "one", "well")}); got["router_error_log"] != "" {
		t.Errorf("the update: got %v", got)
	}
	first := b.overEvents()
	if tools, answer, failed := use(t, first, "shout", shout); !slices.Equal(tools, []string{"crash", "shout"}) || answer != "HELLO!" || failed {
		t.Errorf("one server: got %q, %q", tools, answer)
	}
	o := b.call("shout", "hello", 60)
	const want = `{"meta": null, "content": [{"type":"text","text":"HELLO!"}], "structuredContent": null, "isError": false}`
	if o["observation"] != "mcp" || o["content"] != want {
		t.Errorf("as an action: got %v", o)
	}

	// Several: with the names of their servers, of those that work. The client of
	// before keeps what it had.
	missing := api.MCPServer{Name: "missing", Command: "no-such-program", Args: []string{}, Env: map[string]string{}}
	answer := b.post("/update_mcp_server", []api.MCPServer{
		mcpServer(t, "two", "well"), mcpServer(t, "junk", "junk"), mcpServer(t, "one", "well"), mcpServer(t, "dead", "dies"), missing,
	})
	if log, _ := answer["router_error_log"].(string); !strings.Contains(log, `MCP server "missing"`) || strings.Contains(log, "\n") {
		t.Errorf("the update: got %q", log)
	}
	second := b.overEvents()
	for _, server := range []string{"one", "two", "junk"} {
		tools, answer, failed := use(t, second, server+"_shout", shout)
		if !slices.Equal(tools, []string{"junk_crash", "junk_shout", "one_crash", "one_shout", "two_crash", "two_shout"}) || answer != "HELLO!" || failed {
			t.Errorf("%s of several: got %q, %q", server, tools, answer)
		}
	}
	if tools, answer, failed := use(t, first, "shout", shout); len(tools) != 2 || answer != "HELLO!" || failed {
		t.Errorf("the client of before: got %q, %q", tools, answer)
	}
	for tool, want := range map[string]string{
		"one_crash":     "\"one\": it ended with exit status 7\nThe end of its standard error:\nout of luck with [TOKEN]",
		"dead_shout":    "\"dead\": it ended with exit status 3\nThe end of its standard error:\ncannot sign in with [TOKEN]",
		"missing_shout": `"missing": the program "no-such-program" does not exist`,
		"shout":         `tool "shout" is unknown`,
	} {
		if _, answer, failed := use(t, second, tool, shout); !failed || !strings.Contains(answer, want) {
			t.Errorf("%s: got %q, want %q", tool, answer, want)
		}
	}
	if _, answer, failed := use(t, second, "one_shout", shout); answer != "HELLO!" || failed {
		t.Errorf("after its death: got %q", answer)
	}
	_, _ = first.Close(), second.Close()

	// One that hangs is waited for as long as the action says.
	b.post("/update_mcp_server", []api.MCPServer{mcpServer(t, "hangs", "hangs"), mcpServer(t, "one", "well")})
	if o := b.call("hangs_shout", "x", 0.5); o["observation"] != "error" || !strings.Contains(fmt.Sprint(o["content"]), `"hangs" was not ready within 500ms`) {
		t.Errorf("one that hangs: got %v", o)
	}
	if o := b.call("one_shout", "x", 60); o["observation"] != "mcp" {
		t.Errorf("beside one that hangs: got %v", o)
	}

	// The other way round: the sandbox's tools, by both transports in one shell.
	streamed := b.connect(&mcp.StreamableClientTransport{Endpoint: "http://sandbox/mcp", HTTPClient: &http.Client{Transport: b}})
	if tools, answer, failed := use(t, streamed, "execute_bash", map[string]any{"command": "x=5"}); !slices.Contains(tools, "str_replace_editor") || failed {
		t.Errorf("streamable HTTP: got %q, %q", tools, answer)
	}
	cmd := exec.Command(filepath.Join(programs(t), "runtimectl"), "mcp", "--on=local", "--state-dir", m.dir, "box") // the session ends it
	stdio := b.connect(&mcp.CommandTransport{Command: cmd})
	if tools, answer, failed := use(t, stdio, "execute_bash", map[string]any{"command": "echo got $x"}); !slices.Contains(tools, "str_replace_editor") || failed || !strings.HasPrefix(answer, "got 5\n") {
		t.Errorf("stdio: got %q, %q", tools, answer)
	}
	if err := errors.Join(streamed.Close(), stdio.Close()); err != nil {
		t.Error(err)
	}
	if log := m.ok("logs", "box"); strings.Contains(log, "hunter2secret") || strings.Contains(log, b.key) || !strings.Contains(log, "an MCP server ended") {
		t.Errorf("the server's log: %s", log)
	}
}
