package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/executor/mcp"
	"github.com/actiond/actiond/internal/testhelp"
)

// patience is for what must happen, however slow the machine is.
const patience = 60 * time.Second

// newProxy returns a proxy with these servers, which is closed with the test.
func newProxy(tb testing.TB, servers ...mcp.Server) *mcp.Proxy {
	tb.Helper()
	p := mcp.New(mcp.Config{Dir: tb.TempDir(), Env: os.Environ()})
	tb.Cleanup(p.Close)
	if problems, err := p.Update(servers); err != nil || problems != nil {
		tb.Fatalf("updating: got %q, %v", problems, err)
	}
	return p
}

// connect connects a client, which leaves with the test.
func connect(tb testing.TB, p *mcp.Proxy) *sdk.ClientSession {
	tb.Helper()
	conn, err := p.Open()
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(ctx, &sdk.IOTransport{Reader: conn, Writer: conn}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = session.Close() })
	return session
}

// call calls a tool with a text and returns the text of the answer.
func call(tb testing.TB, session *sdk.ClientSession, tool, text string) (answer string, isError bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"text": text}})
	if err != nil {
		tb.Fatalf("calling %s: %v", tool, err)
	}
	for _, c := range result.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			answer += text.Text
		}
	}
	return answer, result.IsError
}

func toolNames(tb testing.TB, session *sdk.ClientSession) []string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		tb.Fatal(err)
	}
	names := []string{}
	for _, t := range list.Tools {
		names = append(names, t.Name)
	}
	return names
}

var goodTools = []string{"die", "echo", "env", "fail", "long", "until", "wait", "whoami"}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Of one server tools keep their names, of two they get the server's in front.
func TestPrefixRule(t *testing.T) {
	t.Parallel()
	p := newProxy(t, testServer(t, "alpha", "good"))
	one := connect(t, p)
	if got := toolNames(t, one); !slices.Equal(got, goodTools) {
		t.Errorf("one server: got %q, want %q", got, goodTools)
	}
	if got, _ := call(t, one, "echo", "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
	if _, err := p.Update([]mcp.Server{testServer(t, "beta_2", "good"), testServer(t, "alpha", "good"), testServer(t, "beta", "good")}); err != nil {
		t.Fatal(err)
	}
	three := connect(t, p)
	var want []string
	for _, server := range []string{"alpha_", "beta_", "beta_2_"} {
		for _, tool := range goodTools {
			want = append(want, server+tool)
		}
	}
	if got := toolNames(t, three); !slices.Equal(got, want) {
		t.Errorf("three servers: got %q, want %q", got, want)
	}
	for _, tool := range []string{"alpha_echo", "beta_echo", "beta_2_echo"} {
		if got, failed := call(t, three, tool, tool); got != tool || failed {
			t.Errorf("%s: got %q", tool, got)
		}
	}
	if got, failed := call(t, three, "echo", ""); !failed || !strings.Contains(got, `tool "echo" is unknown`) || !strings.Contains(got, "alpha") {
		t.Errorf("no prefix: got %q", got)
	}
	if got := toolNames(t, one); !slices.Equal(got, goodTools) {
		t.Errorf("the client of before: got %q, want what it had", got)
	}
}

func TestPromptsAndResources(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		servers     []string
		prompt, uri string
	}{
		{[]string{"a"}, "greet", "file:///readme"},
		{[]string{"a", "b"}, "b_greet", "file://b//readme"},
	} {
		var servers []mcp.Server
		for _, name := range test.servers {
			servers = append(servers, testServer(t, name, "good"))
		}
		session := connect(t, newProxy(t, servers...))
		prompts, err := session.ListPrompts(t.Context(), nil)
		if err != nil || len(prompts.Prompts) != len(servers) || prompts.Prompts[len(servers)-1].Name != test.prompt {
			t.Errorf("prompts: got %+v, %v", prompts, err)
		}
		prompt, err := session.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: test.prompt, Arguments: map[string]string{"who": "you"}})
		if err != nil || prompt.Description != "hello you" {
			t.Errorf("prompt: got %+v, %v", prompt, err)
		}
		resources, err := session.ListResources(t.Context(), nil)
		if err != nil || len(resources.Resources) != len(servers) || resources.Resources[len(servers)-1].URI != test.uri {
			t.Errorf("resources: got %+v, %v", resources, err)
		}
		read, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: test.uri})
		if err != nil || read.Contents[0].Text != "read me" {
			t.Errorf("resource: got %+v, %v", read, err)
		}
		tools, err := session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		templates, err := session.ListResourceTemplates(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		// The newest revision knows two words for it, and "" is none.
		for _, result := range []sdk.CacheableResult{tools, prompts, resources, templates, read} {
			if got := result.GetCacheScope(); got != "private" && got != "public" {
				t.Errorf("%T may be cached for %q", result, got)
			}
		}
		if _, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "file://c//readme"}); err == nil {
			t.Error("a resource of no server was read")
		}
	}
}

// A server is started on first use, where and as it should be, and once.
func TestLazyStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := mcp.New(mcp.Config{Dir: dir, Env: append(os.Environ(), "SHARED=env", "OWN=no")})
	defer p.Close()
	if _, err := p.Open(); !errors.Is(err, mcp.ErrNone) {
		t.Errorf("before any update: got %v", err)
	}
	if _, err := p.Call(t.Context(), "x", nil, 0); !errors.Is(err, mcp.ErrNone) {
		t.Errorf("before any update: got %v", err)
	}
	if problems, err := p.Update(nil); err != nil || len(problems) > 0 {
		t.Errorf("no servers: got %q, %v", problems, err)
	}
	if _, err := p.Open(); !errors.Is(err, mcp.ErrNone) {
		t.Errorf("after an update without servers: got %v", err)
	}
	if _, err := p.Update([]mcp.Server{testServer(t, "s", "good", "OWN=yes")}); err != nil {
		t.Fatal(err)
	}
	session := connect(t, p)
	if servers, running, failed, configured := p.State(); servers != 1 || running+failed != 0 || !configured {
		t.Errorf("after a client came: %d servers, %d running, %d failed", servers, running, failed)
	}
	first, _ := call(t, session, "whoami", "")
	if want := fmt.Sprintf("uid %d in %s", os.Getuid(), dir); !strings.HasSuffix(first, want) {
		t.Errorf("got %q, want it to end in %q", first, want)
	}
	for name, want := range map[string]string{"SHARED": "env", "OWN": "yes"} {
		if got, _ := call(t, session, "env", name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if _, err := p.Update([]mcp.Server{testServer(t, "s", "good", "OWN=yes")}); err != nil {
		t.Fatal(err)
	}
	if again, _ := call(t, connect(t, p), "whoami", ""); again != first {
		t.Errorf("the same configuration: got %q, want the same process, %q", again, first)
	}
	if _, running, _, _ := p.State(); running != 1 {
		t.Errorf("%d running, want 1", running)
	}
	if _, err := p.Update(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Call(t.Context(), "whoami", nil, time.Minute); err == nil || !strings.Contains(err.Error(), `"whoami" is unknown: no MCP servers are configured`) {
		t.Errorf("after the last server was taken away: got %v", err)
	}
}

// A replacement takes nothing away from a call that runs, and ends the server
// when its last client leaves.
func TestReplaceWhileACallRuns(t *testing.T) {
	t.Parallel()
	p := newProxy(t, testServer(t, "old", "good"))
	session := connect(t, p)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pid, _ := call(t, session, "whoami", "")
	old, _ := strconv.Atoi(strings.Fields(pid)[1])

	var calling sync.WaitGroup
	calling.Go(func() {
		if got, failed := call(t, session, "until", fifo); got != "done" || failed {
			t.Errorf("the call: got %q", got)
		}
	})
	testhelp.Eventually(t, func() bool { return exists(fifo + ".begun") }, "the call begins")
	if _, err := p.Update([]mcp.Server{testServer(t, "new", "good")}); err != nil {
		t.Fatal(err)
	}
	next, _ := call(t, connect(t, p), "whoami", "")
	if next == pid {
		t.Errorf("a new client got the old server, %s", next)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	calling.Wait()
	if got, _ := call(t, session, "echo", "still here"); got != "still here" {
		t.Errorf("after the replacement: got %q", got)
	}
	_ = session.Close()
	testhelp.Eventually(t, func() bool { return syscall.Kill(old, 0) != nil }, "the old server ends")
}

// The end of a server is reported with its last words, and without its secrets.
func TestServersThatFail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mode, tool string
		want       []string
	}{
		{"dies", "x", []string{`MCP server "bad": it ended with exit status 3`, "cannot open the database with [TOKEN]"}},
		{"junk", "x", []string{`"bad": it prints lines to standard output that are not messages of the protocol, such as "this is a log line`}},
		{"blank lines", "x", []string{`"bad": it prints lines to standard output that are not messages of the protocol, such as ""`}},
		{"prints", "x", []string{`such as "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx[TOKEN]"`}},
		{"tells", "x", []string{`"bad": it ended with exit status 3`, "EN]...."}},
		{"tells more", "x", []string{"The end of its standard error:\n...."}},
		{"long list", "", []string{`"bad": it lists more than 4 MiB`}},
		{"wide list", "", []string{`"bad": it lists more than 200000 values`}},
		{"no line", "x", []string{`"bad": it printed more than 16 MiB without the end of a line`}},
		{"good", "die", []string{`"bad": it ended with exit status 7`, "last words: bye [TOKEN]"}},
		{"huge", "x", []string{`"bad": it printed more than 16 MiB without the end of a line`}},
		{"many values", "x", []string{`"bad": it sent a message of more than 200000 values`}},
		{"deep", "x", []string{`"bad": calling "tools/call": it sent an answer that cannot be decoded: `}},
		{"asks", "x", []string{`"bad": it `}}, // has too many open, or does not read the answers
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			p := mcp.New(mcp.Config{Dir: t.TempDir(), Env: os.Environ(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			bad := testServer(t, "bad", test.mode, "TOKEN=hunter2secret")
			if _, err := p.Update([]mcp.Server{bad}); err != nil {
				t.Fatal(err)
			}
			var err error
			if test.tool == "" {
				_, err = connect(t, p).ListTools(t.Context(), nil)
			} else {
				_, err = p.Call(t.Context(), test.tool, map[string]any{"text": "bye"}, patience)
			}
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			if test.mode == "good" { // it is started again
				if r, err := p.Call(t.Context(), "echo", map[string]any{"text": "back"}, patience); err != nil || !strings.Contains(string(r.Content), "back") {
					t.Errorf("after its death: got %s, %v", r.Content, err)
				}
			}
			p.Close()
			if regexp.MustCompile(`hunt|cret`).MatchString(fmt.Sprint(err) + log.String()) {
				t.Errorf("the secret got out: %v\n%s", err, &log)
			}
			if strings.Contains(log.String(), "last words") || strings.Contains(log.String(), "database") {
				t.Errorf("the server's words are in the log: %s", &log)
			}
		})
	}
}

// An odd request that is not deadly is answered, by the same server.
func TestServersThatAreOdd(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"notifies": "fine", "foreign answers": "fine", "unknown content": "", "wrong result": "", "silent": "did not answer",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, testServer(t, "odd", mode))
			limit := patience
			if mode == "silent" {
				limit = time.Second
			}
			r, err := p.Call(t.Context(), "tool", map[string]any{}, limit)
			if got := string(r.Content) + fmt.Sprint(err); !strings.Contains(got, want) || r.Content == nil && err == nil {
				t.Errorf("got %.200s, want %q", got, want)
			}
		})
	}
}

// A server that greets people works.
func TestNoisyServer(t *testing.T) {
	t.Parallel()
	session := connect(t, newProxy(t, testServer(t, "noisy", "noisy")))
	if got, _ := call(t, session, "echo", "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
	if got, _ := call(t, session, "long", ""); len(got) != 5<<20 {
		t.Errorf("got %d bytes", len(got))
	}
	if got, failed := call(t, session, "fail", "luck"); !failed || got != "no luck" {
		t.Errorf("got %q, %v", got, failed)
	}
}

// One that hangs, one that dies and one that answers nonsense keep no other from
// the tools of the others.
func TestListWithoutThoseThatFail(t *testing.T) {
	t.Parallel()
	p := newProxy(t, testServer(t, "good", "good"), testServer(t, "dies", "dies"), testServer(t, "hangs", "hangs"),
		testServer(t, "nolist", "no list"), testServer(t, "wrong", "wrong types"), testServer(t, "missing", "good"))
	missing := mcp.Server{Name: "missing", Command: "no-such-program-anywhere"}
	problems, err := p.Update([]mcp.Server{testServer(t, "good", "good"), testServer(t, "dies", "dies"), testServer(t, "hangs", "hangs"), missing, missing})
	if err != nil || len(problems) != 2 || !strings.Contains(problems[0], "configured twice") || !strings.Contains(problems[1], `the program "no-such-program-anywhere" does not exist`) {
		t.Errorf("problems: got %q, %v", problems, err)
	}
	p.SetListTime(2 * time.Second)
	session := connect(t, p)
	if got, _ := call(t, session, "good_echo", "ready"); got != "ready" { // however slow the machine is
		t.Fatalf("got %q", got)
	}
	got := toolNames(t, session)
	if len(got) != len(goodTools) || got[0] != "good_die" {
		t.Errorf("got %q, want the tools of the good one", got)
	}
	if got, failed := call(t, session, "missing_x", ""); !failed || !strings.Contains(got, "no-such-program-anywhere") {
		t.Errorf("got %q", got)
	}
	testhelp.Eventually(t, func() bool { // one may still be about to die
		servers, _, failed, _ := p.State()
		return servers == 4 && failed >= 2
	}, "two of four servers have failed")
	hanging := newProxy(t, testServer(t, "hangs", "hangs"))
	if _, err := hanging.Call(t.Context(), "x", nil, 200*time.Millisecond); err == nil || !strings.Contains(err.Error(), `"hangs" was not ready within 200ms`) {
		t.Errorf("got %v", err)
	}
}

// A tool for which clients would refuse the whole list is fixed.
func TestOddSchemas(t *testing.T) {
	t.Parallel()
	list, err := connect(t, newProxy(t, testServer(t, "odd", "odd schemas"))).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(list.Tools)
	const want = `[{"inputSchema":{"type":"object"},"name":"a"},{"inputSchema":{"type":"object"},"name":"b"},` +
		`{"inputSchema":{"properties":{"x":{}},"type":"object"},"name":"c"},` +
		`{"inputSchema":{"type":"object"},"name":"d","outputSchema":{"type":"object"}},{"inputSchema":{"type":"object"},"name":"e"}]`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

// Results come as they were sent, numbers to the last digit.
func TestResults(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]mcp.Result{
		"no content": {
			Meta: []byte("null"), Content: []byte(`[{"type":"text","text":"The MCP server sent a result without content: {}"}]`),
			Structured: []byte("null"), IsError: true,
		},
		"exact": {
			Meta: []byte(`{"a":"<b>"}`),
			Content: []byte(`[{"type":"text","text":"<a href=\"x&y\">\\u003c>` + "\uFFFD" + `</a>"},` +
				`{"type":"audio","mimeType":"audio/wav","data":"UklGRg=="},{"type":"image","mimeType":"image/png","data":"iVBORw=="},` +
				`{"type":"resource","resource":{"uri":"file:///a","text":"t"}},{"type":"resource_link","uri":"file:///b","name":"b"}]`),
			Structured: []byte(`{"id":9007199254740993,"ratio":1.0,"tag":"<&>"}`),
		},
	} {
		p := newProxy(t, testServer(t, "s", mode))
		got, err := p.Call(t.Context(), "tool", nil, patience)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %s %s %s %v, %v\nwant %s %s %s", mode, got.Meta, got.Content, got.Structured, got.IsError, err, want.Meta, want.Content, want.Structured)
		}
		result, err := connect(t, p).CallTool(t.Context(), &sdk.CallToolParams{Name: "tool"})
		if err != nil || result.Content == nil {
			t.Errorf("%s: a client got %+v, %v", mode, result, err)
		}
	}
}

// Everything that takes time has the call's limit: the look for a tool whose name
// could be that of two servers, and the sending.
func TestLimitOfACall(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	problems, err := p.Update([]mcp.Server{testServer(t, "a", "good"), testServer(t, "a_b", "no list"), testServer(t, "deaf", "deaf")})
	const hidden = `a tool "b_NAME" of "a" is hidden by the tool "NAME" of "a_b"`
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0], hidden) {
		t.Errorf("got %q, %v, want one problem: %s", problems, err, hidden)
	}
	p.SetListTime(patience)
	for tool, want := range map[string]string{
		"a_b_echo": `"a_b_echo" could be a tool of several MCP servers, and one of them did not list its tools within 500ms`,
		"deaf_x":   "within 500ms|does not read its standard input", // the limit is of both
	} {
		_, err := p.Call(t.Context(), tool, map[string]any{"text": strings.Repeat("x", 1<<20)}, 500*time.Millisecond)
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("%s: got %v, want %q", tool, err, want)
		}
	}
}

// A client's message is as long as its transport lets it be.
func TestLongMessageOfAClient(t *testing.T) {
	t.Parallel()
	session := connect(t, newProxy(t, testServer(t, "s", "good")))
	if err := session.Ping(t.Context(), &sdk.PingParams{Meta: sdk.Meta{"a": strings.Repeat("x", 17<<20)}}); err != nil {
		t.Error(err)
	}
}

// Whatever a client asks for that is not offered is answered.
func TestNotOffered(t *testing.T) {
	t.Parallel()
	session := connect(t, newProxy(t, testServer(t, "s", "good")))
	if err := session.Ping(t.Context(), nil); err != nil {
		t.Errorf("ping: %v", err)
	}
	for name, ask := range map[string]func() error{
		"completion": func() error {
			_, err := session.Complete(t.Context(), &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "greet"}})
			return err
		},
		"subscription": func() error { return session.Subscribe(t.Context(), &sdk.SubscribeParams{URI: "file:///readme"}) },
		"prompt": func() error {
			_, err := session.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "none"})
			return err
		},
		"resource": func() error {
			_, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "file:///none"})
			return err
		},
	} {
		if err := ask(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got, _ := call(t, session, "echo", "still here"); got != "still here" {
		t.Errorf("got %q", got)
	}
}

func TestOddLists(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{
		"odd names":    {"with space/ü", "twice"},
		"endless list": {"again"},
	} {
		if got := toolNames(t, connect(t, newProxy(t, testServer(t, "odd", mode)))); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", mode, got, want)
		}
	}
}

// A caller that gives up, and one that leaves, end the call and not the server.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	p := newProxy(t, testServer(t, "s", "good"))
	for i, give := range []func(begun string) error{
		func(begun string) error {
			ctx, cancel := context.WithCancelCause(t.Context())
			reason := errors.New("enough")
			called := make(chan error, 1)
			go func() {
				_, err := p.Call(ctx, "wait", map[string]any{"text": begun}, 0)
				called <- err
			}()
			testhelp.Eventually(t, func() bool { return exists(begun) }, "the call begins")
			cancel(reason)
			if err := <-called; !errors.Is(err, reason) {
				return fmt.Errorf("got %w, want the cause", err)
			}
			return nil
		},
		func(begun string) error {
			conn, err := p.Open()
			if err != nil {
				return err
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			_, _ = fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`+"\n")
			_, _ = fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{"text":%q}}}`+"\n", begun)
			testhelp.Eventually(t, func() bool { return exists(begun) }, "the call begins")
			return conn.Close()
		},
	} {
		begun := filepath.Join(t.TempDir(), strconv.Itoa(i))
		if err := give(begun); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		testhelp.Eventually(t, func() bool { return exists(begun + ".cancelled") }, "the server is told")
	}
	if _, running, _, _ := p.State(); running != 1 {
		t.Error("the server is gone")
	}
}

// Close ends the servers with what they started, clients and calls included.
func TestClose(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := mcp.New(mcp.Config{Dir: dir, Env: os.Environ()})
	children, hangs := testServer(t, "children", "children"), testServer(t, "hangs", "hangs")
	if _, err := p.Update([]mcp.Server{children, hangs}); err != nil {
		t.Fatal(err)
	}
	session := connect(t, p)
	_, _ = call(t, session, "children_echo", "")
	told, failed := call(t, session, "children_die", "now")
	if !failed {
		t.Fatalf("got %q", told)
	}
	if m := regexp.MustCompile(`child (\d+), daemon (\d+)`).FindStringSubmatch(told); m == nil {
		t.Errorf("no children: %q", told)
	} else {
		for _, id := range m[1:] {
			pid, _ := strconv.Atoi(id)
			testhelp.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) }, "the children of the dead server end")
		}
	}
	begun := filepath.Join(t.TempDir(), "begun")
	var calling sync.WaitGroup
	calling.Go(func() {
		if _, err := p.Call(context.Background(), "children_wait", map[string]any{"text": begun}, patience); err == nil {
			t.Error("the call: no error")
		}
	})
	calling.Go(func() {
		if _, err := p.Call(context.Background(), "hangs_x", nil, patience); err == nil {
			t.Error("the call of one that hangs: no error")
		}
	})
	testhelp.Eventually(t, func() bool { return exists(begun) }, "the call begins")
	testhelp.Eventually(t, func() bool { _, running, _, _ := p.State(); return running == 2 }, "both run")
	daemon := testhelp.ReadFile(t, filepath.Join(dir, "daemon"))
	p.Close()
	calling.Wait()
	left, err := strconv.Atoi(strings.TrimSpace(string(daemon)))
	if err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return zombie(left) }, "what left the session ends")
	if _, err := p.Open(); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("after Close: got %v", err)
	}
	if _, err := p.Update(nil); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("after Close: got %v", err)
	}
	p.Close()
}

func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(data), ") Z ")
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	p := newProxy(t, testServer(t, "s", "good"))
	var many []mcp.Server
	for i := range mcp.MaxServers + 1 {
		many = append(many, mcp.Server{Name: "s" + strconv.Itoa(i), Command: "true"})
	}
	if _, err := p.Update(many); !errors.Is(err, mcp.ErrMany) {
		t.Errorf("servers: got %v", err)
	}
	for range 1000 {
		conn, err := p.Open()
		if errors.Is(err, mcp.ErrMany) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Error("a thousand clients were let in")
}

// Clients that left leave nothing, and servers that are not configured any more.
func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	p := mcp.New(mcp.Config{Dir: t.TempDir(), Env: os.Environ()})
	if now := runtime.NumGoroutine(); now != before {
		t.Errorf("before any use: %d goroutines more", now-before)
	}
	for i := range 5 {
		if _, err := p.Update([]mcp.Server{testServer(t, "s", "good", "ROUND="+strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			session := connect(t, p)
			if got, _ := call(t, session, "echo", "x"); got != "x" {
				t.Errorf("got %q", got)
			}
			_ = session.Close()
		}
	}
	if _, err := p.Update(nil); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return runtime.NumGoroutine() <= before }, "all goroutines end")
	p.Close()
}

// A flood takes no memory: what is not read into a message is not kept.
func TestMemoryOfAFlood(t *testing.T) {
	before := liveHeap()
	for _, mode := range []string{"notifies", "junk", "no line", "huge", "many values", "asks", "deep"} {
		p := newProxy(t, testServer(t, "bad", mode))
		_, _ = p.Call(t.Context(), "tool", map[string]any{}, patience)
	}
	if grown := liveHeap() - before; grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
