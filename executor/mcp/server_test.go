package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/executor/mcp"
)

// modeVariable makes the test binary one of the servers below.
const modeVariable = "ACTIOND_TEST_MCP_SERVER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVariable); mode != "" {
		os.Exit(serve(mode))
	}
	os.Exit(m.Run())
}

// testServer is a server of that name and mode.
func testServer(tb testing.TB, name, mode string, env ...string) mcp.Server {
	tb.Helper()
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	s := mcp.Server{Name: name, Command: program, Args: []string{"-test.run=^$"}, Env: map[string]string{modeVariable: mode}}
	for _, v := range env {
		key, value, _ := strings.Cut(v, "=")
		s.Env[key] = value
	}
	return s
}

// serve is a server, in one of the ways in which servers are.
func serve(mode string) int {
	switch mode {
	case "good":
		return serveWell()
	case "noisy": // greets people
		fmt.Println("Server started!")
		fmt.Println("[1, 2, 3] {")
		return serveWell()
	case "scripted":
		return serveScript()
	case "dies":
		_, _ = fmt.Fprintln(os.Stderr, "cannot open the database with "+os.Getenv("TOKEN"))
		return 3
	case "hangs":
		hang()
	case "junk":
		_, _ = io.Copy(os.Stdout, endless("this is a log line, and not a message\n"))
	case "blank lines":
		_, _ = io.Copy(os.Stdout, endless("\n"))
	case "tells": // a secret that the end of its standard error begins within
		_, _ = fmt.Fprint(os.Stderr, os.Getenv("TOKEN")+strings.Repeat(".", mcp.MaxTail-4))
		return 3
	case "tells more": // which begins before what is kept
		_, _ = fmt.Fprint(os.Stderr, os.Getenv("TOKEN")+strings.Repeat(".", mcp.MaxTail+9))
		return 3
	case "prints": // a secret that an excerpt would end within
		line := strings.Repeat("x", 50) + os.Getenv("TOKEN") + "\n"
		_, _ = io.Copy(os.Stdout, endless(line))
	case "deaf": // until it is told to initialize, and then for good
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Println(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"deaf","version":"1"}}}`)
		hang()
	case "no line":
		_, _ = io.Copy(os.Stdout, endless("{"))
	case "children": // outlive it if they can
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			return 1
		}
		// One that left session and parents, as browsers do that servers start.
		daemon := exec.Command("setsid", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
		id, err := daemon.Output()
		if err != nil {
			return 1
		}
		_, _ = fmt.Fprintf(os.Stderr, "child %d, daemon %s", child.Process.Pid, id)
		_ = os.WriteFile("daemon", id, 0o600) // where it was started
		return serveWell()
	default:
		return serveBadly(mode)
	}
	return 0
}

// hang does nothing for longer than any test takes. A select without cases would be
// a deadlock to Go's runtime, which ends the program, unless cgo is linked.
func hang() { <-time.After(time.Hour) }

// endless repeats a text.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n+len(e) <= len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

type textArgs struct {
	Text string `json:"text"`
}

func words(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// serveWell is a server made with the SDK.
func serveWell() int {
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, f func(ctx context.Context, text string) (string, error)) {
		sdk.AddTool(server, &sdk.Tool{Name: name, Description: "does " + name}, func(ctx context.Context, _ *sdk.CallToolRequest, in textArgs) (*sdk.CallToolResult, any, error) {
			text, err := f(ctx, in.Text)
			return words(text), nil, err
		})
	}
	add("echo", func(_ context.Context, text string) (string, error) { return text, nil })
	add("fail", func(_ context.Context, text string) (string, error) { return "", fmt.Errorf("no %s", text) })
	add("env", func(_ context.Context, text string) (string, error) { return os.Getenv(text), nil })
	add("whoami", func(context.Context, string) (string, error) {
		dir, err := os.Getwd()
		return fmt.Sprintf("pid %d uid %d in %s", os.Getpid(), os.Getuid(), dir), err
	})
	add("wait", func(ctx context.Context, text string) (string, error) {
		if err := os.WriteFile(text, nil, 0o600); err != nil { // it has begun
			return "", err
		}
		<-ctx.Done()
		return "", os.WriteFile(text+".cancelled", nil, 0o600)
	})
	add("until", func(_ context.Context, text string) (string, error) { // the file is there
		if err := os.WriteFile(text+".begun", nil, 0o600); err != nil {
			return "", err
		}
		f, err := os.Open(text) // a fifo: the test opens it for writing
		if err != nil {
			return "", err
		}
		return "done", f.Close()
	})
	add("die", func(_ context.Context, text string) (string, error) {
		_, _ = fmt.Fprintln(os.Stderr, "last words:", text, os.Getenv("TOKEN"))
		os.Exit(7)
		return "", nil
	})
	add("long", func(context.Context, string) (string, error) { return strings.Repeat("x", 5<<20), nil })
	server.AddPrompt(&sdk.Prompt{Name: "greet"}, func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Description: "hello " + req.Params.Arguments["who"]}, nil
	})
	server.AddResource(&sdk.Resource{Name: "readme", URI: "file:///readme"}, func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: req.Params.URI, Text: "read me"}}}, nil
	})
	if err := server.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		return 1
	}
	return 0
}

// serveBadly answers by hand: initialize well, and the rest as the mode says.
func serveBadly(mode string) int {
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	for in.Scan() {
		var msg struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(in.Bytes(), &msg) != nil || msg.ID == nil {
			continue
		}
		result := ""
		switch msg.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bad","version":"1"}}`
		case "tools/list":
			result = badList(mode)
		case "tools/call":
			result = badCall(mode, out)
		}
		if result == "" {
			continue // no answer
		}
		_, _ = fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", msg.ID, result)
		_ = out.Flush()
	}
	return 0
}

// serveScript answers with the lines that the variable SCRIPT has for a method, ID replaced, and
// well otherwise. A list of tools and a call are answered well the second time.
func serveScript() int {
	var script map[string]string
	_ = json.Unmarshal([]byte(os.Getenv("SCRIPT")), &script)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var msg struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(in.Bytes(), &msg) != nil {
			continue
		}
		good := map[string]string{
			"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"scripted","version":"1"}}`,
			"tools/list": `{"tools":[{"name":"good","inputSchema":{"type":"object"}}]}`, "prompts/list": `{"prompts":[]}`,
			"tools/call": `{"content":[{"type":"text","text":"fine"}]}`, "prompts/get": `{"messages":[]}`,
		}[msg.Method]
		line, ok := script[msg.Method]
		switch delete(script, msg.Method); {
		case ok && strings.HasPrefix(line, "="):
			fmt.Println(`{"jsonrpc":"2.0","id":` + string(msg.ID) + `,"result":` + line[1:] + `}`)
		case ok:
			fmt.Println(strings.ReplaceAll(line, "ID", string(msg.ID)))
		case msg.ID != nil:
			fmt.Println(`{"jsonrpc":"2.0","id":` + string(msg.ID) + `,"result":` + good + `}`)
		}
	}
	return 0
}

func badList(mode string) string {
	switch mode {
	case "no list":
		return ""
	case "odd names":
		return `{"tools":[null,{"name":""},{"name":"a\nb"},{"name":"` + strings.Repeat("n", 1000) + `"},` +
			`{"name":"with space/ü"},{"name":"twice","inputSchema":{"type":"object"}},{"name":"twice"}]}`
	case "odd schemas":
		return `{"tools":[{"name":"a"},{"name":"b","inputSchema":"any"},{"name":"c","inputSchema":{"properties":{"x":{}}},"outputSchema":[]},` +
			`{"name":"d","inputSchema":{"type":"string"},"outputSchema":{"type":"object"}},{"name":"e","inputSchema":true,"outputSchema":{"type":"number"}}]}`
	case "long list": // each of its pages could be one
		return `{"tools":[{"name":"again","inputSchema":{"type":"object"},"description":"` + strings.Repeat("d", mcp.MaxListBytes/2) + `"}],"nextCursor":"more"}`
	case "wide list":
		return `{"tools":[{"name":"again","inputSchema":{"type":"object","enum":[` + strings.Repeat("0,", mcp.MaxValues/2) + `0]}}],"nextCursor":"more"}`
	case "endless list":
		return `{"tools":[{"name":"again","inputSchema":{"type":"object"}}],"nextCursor":"more"}`
	case "wrong types":
		return `{"tools":{"name":5}}`
	}
	return `{"tools":[{"name":"tool","inputSchema":{"type":"object"}}]}`
}

func badCall(mode string, out *bufio.Writer) string {
	switch mode {
	case "silent":
		return ""
	case "huge":
		_, _ = fmt.Fprintf(out, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"`)
		_, _ = io.Copy(out, endless("x"))
	case "many values":
		return `{"content":[],"structuredContent":[` + strings.Repeat("0,", 1<<20) + `0]}`
	case "deep":
		return `{"content":[],"structuredContent":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`
	case "notifies":
		for range 20_000 {
			_, _ = io.WriteString(out, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"blah"}}`+"\n")
		}
	case "asks":
		for i := 0; ; i++ { // and never reads the answers
			if _, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i); err != nil {
				return ""
			}
		}
	case "no content":
		return `{}`
	case "exact":
		return `{"_meta":{"a":"<b>"},"content":[{"type":"text","text":"<a href=\"x&y\">\\u003c\u003e\ud800</a>"},` +
			`{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"},{"type":"image","data":"iVBORw==","mimeType":"image/png"},` +
			`{"type":"resource","resource":{"uri":"file:///a","text":"t"}},{"type":"resource_link","uri":"file:///b","name":"b"}],` +
			`"structuredContent":{"id":9007199254740993,"ratio":1.0,"tag":"<&>"}}`
	case "unknown content":
		return `{"content":[null,{"type":"hologram"}]}`
	case "wrong result":
		return `[1]`
	case "foreign answers":
		for i := range 1000 {
			_, _ = fmt.Fprintf(out, `{"jsonrpc":"2.0","id":"x%d","result":{}}`+"\n", i)
		}
	}
	return `{"content":[{"type":"text","text":"fine"}]}`
}
