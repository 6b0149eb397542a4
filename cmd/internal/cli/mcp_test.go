package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// A client of the SDK uses a sandbox over standard input and output.
func TestMCP(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	stdin, toStdin := io.Pipe()
	fromStdout, stdout := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		p := newProgram(output.Streams{Stdin: stdin, Stdout: stdout, Stderr: &stderr, Getenv: func(string) string { return "" }})
		ended <- p.run(t.Context(), []string{"mcp", "--on=local", "--state-dir", m.dir, "--session", "mine", "box"})
		_ = stdout.Close()
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: fromStdout, Writer: toStdin}, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) == 0 || list.Tools[0].Name != "execute_bash" {
		t.Errorf("got %+v, %v", list, err)
	}
	for _, command := range []string{"x=5", "echo got $x"} {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "execute_bash", Arguments: map[string]any{"command": command}})
		if err != nil || result.IsError {
			t.Fatalf("%s: got %+v, %v", command, result, err)
		}
		if text := result.Content[0].(*mcp.TextContent).Text; command != "x=5" && !strings.HasPrefix(text, "got 5\n[") {
			t.Errorf("got %q", text)
		}
	}
	_ = toStdin.Close()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
	_ = session.Close()
}

// A client over standard input gets progress, and ends the command of a call that it cancels, in
// each revision.
func TestMCPCancel(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	for _, revision := range []string{"2026-07-28", "2025-06-18"} {
		stdin, toStdin := io.Pipe()
		fromStdout, stdout := io.Pipe()
		var stderr bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			p := newProgram(output.Streams{Stdin: stdin, Stdout: stdout, Stderr: &stderr, Getenv: func(string) string { return "" }})
			ended <- p.run(t.Context(), []string{"mcp", "--on=local", "--state-dir", m.dir, "box"})
			_ = stdout.Close()
		}()
		ctx, leave := context.WithCancel(t.Context())
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { leave() },
		})
		session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: fromStdout, Writer: toStdin}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			t.Fatal(err)
		}
		call := func(ctx context.Context, command string) (*mcp.CallToolResult, error) {
			return session.CallTool(ctx, &mcp.CallToolParams{
				Meta: mcp.Meta{"progressToken": "t"}, Name: "execute_bash", Arguments: map[string]any{"command": command},
			})
		}
		if result, err := call(ctx, "while sleep 0.1; do echo on; done"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %+v, %v", revision, result, err)
		}
		result, err := call(t.Context(), "echo free")
		if err != nil || !strings.HasPrefix(result.Content[0].(*mcp.TextContent).Text, "free\n[") {
			t.Errorf("%s: got %+v, %v", revision, result, err)
		}
		_ = toStdin.Close()
		if code := <-ended; code != 0 {
			t.Errorf("%s: exit code %d, %q", revision, code, stderr.String())
		}
		_ = session.Close()
	}
}

// Whatever the client writes is answered on lines of their own, or not at all.
func TestMCPOddLines(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	for in, want := range map[string]string{
		"\n \n": "",
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                        "",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`: "",
		`{"jsonrpc":"2.0","id":"a","method":"ping"}`:                                    `{"jsonrpc":"2.0","id":"a","result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"no/such"}`:                                   `"id":1,"error"`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`:                                    `"error"`,
		`nonsense`: `"id":null,"error":{"code":-32700,`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"nope","arguments":{}}}`: `"isError":true`,
	} {
		var stdout, stderr bytes.Buffer
		p := newProgram(output.Streams{Stdin: strings.NewReader(in + "\n"), Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }})
		code := p.run(t.Context(), []string{"mcp", "--on=local", "--state-dir", m.dir, "box"})
		got := stdout.String()
		if code != 0 || !strings.Contains(got, want) || want == "" && got != "" || strings.Count(got, "\n") != min(1, len(got)) {
			t.Errorf("%s: exit code %d, got %q, %q, want %q", in, code, got, stderr.String(), want)
		}
	}
}
