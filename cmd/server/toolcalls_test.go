package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/internal/testhelp"
)

// toolStep is a call as a model makes it, the action it stands for, and pieces
// of what the model reads then. DIR is the working directory.
type toolStep struct {
	tool, arguments, action string
	says                    []string
}

// greeterStory is the first example of OpenHands, told by a model.
var greeterStory = []toolStep{
	{
		"str_replace_editor", `{"command": "create", "path": "DIR/greeter.py", "file_text": "", "security_risk": "LOW"}`,
		`{"action": "edit", "args": {"path": "DIR/greeter.py", "command": "create", "file_text": "", "old_str": null, "new_str": null, "insert_line": null,
			"start": 1, "end": -1, "thought": "", "security_risk": 0, "impl_source": "oh_aci"}}`,
		[]string{"File created successfully at: DIR/greeter.py"},
	},
	{
		"str_replace_editor", `{"command": "insert", "path": "DIR/greeter.py", "insert_line": 0, "new_str": "name = input(\"Enter your name: \")\nprint(f\"Hello, {name}!\")"}`,
		`{"action": "edit", "args": {"path": "DIR/greeter.py", "command": "insert", "file_text": null, "old_str": null,
			"new_str": "name = input(\"Enter your name: \")\nprint(f\"Hello, {name}!\")", "insert_line": 0,
			"start": 1, "end": -1, "thought": "", "security_risk": -1, "impl_source": "oh_aci"}}`,
		[]string{"The file DIR/greeter.py has been edited.", `1	name = input("Enter your name: ")`},
	},
	{
		"execute_bash", `{"command": "chmod +x greeter.py"}`,
		`{"action": "run", "args": {"command": "chmod +x greeter.py", "is_input": false, "blocking": false, "is_static": false, "cwd": null, "hidden": false, "thought": "", "security_risk": -1}}`,
		[]string{"[The command completed with exit code 0.]"},
	},
	{
		"execute_bash", `{"command": "echo 'TestUser' | python3 greeter.py", "timeout": "60"}`,
		`{"action": "run", "args": {"command": "echo 'TestUser' | python3 greeter.py", "is_input": false, "blocking": true, "is_static": false, "cwd": null, "hidden": false, "thought": "", "security_risk": -1}, "timeout": 60}`,
		[]string{"Enter your name: Hello, TestUser!"},
	},
	{"think", `{"thought": "It works."}`, `null`, []string{"Your thought has been logged."}},
}

// tcpForTest makes a server on a socket reachable for programs that speak HTTP
// over TCP.
func tcpForTest(t *testing.T, socketURL string) string {
	t.Helper()
	socket := strings.TrimPrefix(socketURL, "unix://")
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "sandbox"})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	proxy.Transport = transport
	srv := httptest.NewServer(proxy)
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(srv.Close)
	return srv.URL
}

// toolAnswer is what a controller reads.
type toolAnswer struct {
	Action      json.RawMessage `json:"action"`
	Observation json.RawMessage `json:"observation"`
	Content     string          `json:"content"`
	Text        string          `json:"text"`
	Extras      struct {
		Metadata struct{ Prefix, Suffix string } `json:"metadata"`
		Diff     string                          `json:"diff"`
	} `json:"extras"`
	SHA256    string `json:"sha256"`
	IsError   bool   `json:"is_error"`
	ErrorCode string `json:"error_code"`
	ID        string `json:"tool_call_id"`
}

func (a toolAnswer) text() string {
	return a.Extras.Metadata.Prefix + a.Content + a.Extras.Metadata.Suffix
}

// toolCaller posts tool calls and holds the answers to the document.
type toolCaller struct {
	t    *testing.T
	base string
	spec *contract.Spec
}

func newToolCaller(t *testing.T) (c *toolCaller, dir string) {
	t.Helper()
	_, dir, socket := serveForTest(t, "--no-enable-browser")
	return &toolCaller{t, tcpForTest(t, socket), contract.NewSpec(t)}, dir
}

func (c *toolCaller) post(path, dialect, tool string, arguments any) toolAnswer {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"dialect": dialect, "name": tool, "arguments": arguments, "tool_call_id": "c1"})
	if err != nil {
		c.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Session-API-Key", testKey)
	response, err := new(http.Client).Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.spec.CheckResponse(http.MethodPost, path, response.StatusCode, response.Header.Get("Content-Type"), data); err != nil {
		c.t.Error(err)
	}
	var answer toolAnswer
	if err := json.Unmarshal(data, &answer); err != nil || response.StatusCode != http.StatusOK || answer.ID != "c1" {
		c.t.Fatalf("%s %s: %d %s, %v", path, tool, response.StatusCode, data, err)
	}
	return answer
}

// call is a tool call that must succeed, or fail with the word for it.
func (c *toolCaller) call(dialect, tool string, arguments any, code string) toolAnswer {
	c.t.Helper()
	answer := c.post("/v1/tools/call", dialect, tool, arguments)
	if answer.IsError != (code != "") || answer.ErrorCode != code {
		c.t.Errorf("%s %s %v: got error %q, want %q: %s", dialect, tool, arguments, answer.ErrorCode, code, answer.Content)
	}
	return answer
}

// actiondStory is the example in the dialect "actiond", with relative paths and commands of several lines.
var actiondStory = []toolStep{
	{
		"bash", `{"command": "mkdir sub # for the greeter\ncd sub"}`,
		`{"action": "run", "args": {"command": "mkdir sub # for the greeter\ncd sub", "is_input": false, "blocking": false, "is_static": false, "cwd": null, "hidden": false, "return_on_input": true, "dialect": "actiond", "thought": "", "security_risk": -1}}`,
		[]string{"[The command completed with exit code 0.]"},
	},
	{
		"edit", `{"path": "greeter.py", "old_str": "", "new_str": "name = input(\"Enter your name: \")\nprint(f\"Hello, {name}!\")\n"}`,
		`{"action": "write", "args": {"path": "greeter.py", "content": "name = input(\"Enter your name: \")\nprint(f\"Hello, {name}!\")\n", "start": 0, "end": -1, "dialect": "actiond", "thought": "", "security_risk": -1}}`,
		[]string{"bytes to DIR/sub/greeter.py."},
	},
	{
		"edit", `{"path": "greeter.py", "old_str": "Hello", "new_str": "Welcome"}`,
		`{"action": "edit", "args": {"path": "greeter.py", "command": "str_replace", "file_text": null, "old_str": "Hello", "new_str": "Welcome", "insert_line": null,
			"start": 1, "end": -1, "dialect": "actiond", "thought": "", "security_risk": -1, "impl_source": "oh_aci"}}`,
		[]string{"The file DIR/sub/greeter.py has been edited.", `2	print(f"Welcome, {name}!")`},
	},
	{
		"read", `{"path": "../sub/greeter.py", "view_range": [1, 1]}`,
		`{"action": "read", "args": {"path": "../sub/greeter.py", "start": 0, "end": -1, "impl_source": "oh_aci", "view_range": [1, 1], "dialect": "actiond", "thought": "", "security_risk": -1}}`,
		[]string{`1	name = input("Enter your name: ")`},
	},
	{
		"search", `{"pattern": "Wel+come"}`,
		`{"action": "grep", "args": {"pattern": "Wel+come", "path": "", "include": "", "exclude": "", "ignore_case": false, "fixed_strings": false, "names_only": false, "no_ignore": false, "limit": 0, "file_limit": 0, "thought": "", "security_risk": -1}}`,
		[]string{"File: DIR/sub/greeter.py", `L2: print(f"Welcome, {name}!")`},
	},
	{
		"search", `{"include": "*.py"}`,
		`{"action": "glob", "args": {"pattern": "**/*.py", "path": "", "ignore_case": false, "no_ignore": false, "thought": "", "security_risk": -1}}`,
		[]string{"DIR/sub/greeter.py"},
	},
	{
		"bash", `{"command": "python3 greeter.py"}`,
		`{"action": "run", "args": {"command": "python3 greeter.py", "is_input": false, "blocking": false, "is_static": false, "cwd": null, "hidden": false, "return_on_input": true, "dialect": "actiond", "thought": "", "security_risk": -1}}`,
		[]string{"Enter your name:", "[The command waits for input."},
	},
	{
		"bash", `{"command": "TestUser", "is_input": true}`,
		`{"action": "run", "args": {"command": "TestUser", "is_input": true, "blocking": false, "is_static": false, "cwd": null, "hidden": false, "return_on_input": true, "dialect": "actiond", "thought": "", "security_risk": -1}}`,
		[]string{"Welcome, TestUser!", "[The command completed with exit code 0.]"},
	},
}

// The story through both endpoints: what the model says, the actions, what the
// model reads.
func TestGreeterByToolCalls(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the greeter is a Python program")
	}
	for dialect, story := range map[string][]toolStep{"openhands": greeterStory, "actiond": actiondStory} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			c, dir := newToolCaller(t)
			for _, step := range story {
				arguments := strings.ReplaceAll(step.arguments, "DIR", dir)
				translated := c.post("/v1/tools/translate", dialect, step.tool, arguments)
				var got, want any
				if err := json.Unmarshal([]byte(strings.ReplaceAll(step.action, "DIR", dir)), &want); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(translated.Action, &got); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got %s, want %v", step.arguments, translated.Action, want)
				}
				answer := c.call(dialect, step.tool, arguments, "")
				for _, piece := range step.says {
					if piece = strings.ReplaceAll(piece, "DIR", dir); !strings.Contains(answer.text(), piece) {
						t.Errorf("%s: got %q, want %q in it", step.arguments, answer.text(), piece)
					}
				}
			}
		})
	}
}

// What the tools of "actiond" say of a wrong call is of the call's own arguments: no other tool is named.
func TestActiondByToolCalls(t *testing.T) {
	t.Parallel()
	c, dir := newToolCaller(t)
	type args = map[string]any
	testhelp.WriteFile(t, filepath.Join(dir, "a.txt"), "x\nx\n", 0o644)
	for _, tt := range []struct {
		tool       string
		arguments  args
		code, says string
	}{
		{"edit", args{"path": "a.txt", "old_str": "x", "new_str": "y"}, "multiple_matches", "Please ensure it is unique."},
		{"edit", args{"path": "a.txt", "old_str": "z", "new_str": "y"}, "no_match", "did not appear verbatim"},
		{"edit", args{"path": "a.txt", "old_str": "x", "new_str": "y", "replace_all": true}, "", "Replaced 2 occurrence(s) in " + dir + "/a.txt."},
		{"edit", args{"path": "none.txt", "old_str": "x", "new_str": "y"}, "file_not_found", "The path " + dir + "/none.txt does not exist."},
		{"edit", args{"path": ".", "old_str": "x", "new_str": "y"}, "is_directory", "is a directory. Give the path of a file."},
		{"edit", args{"path": "new/b.txt", "new_str": "b"}, "", "Wrote 1 bytes to " + dir + "/new/b.txt."},
		{"read", args{"path": "."}, "", dir + "/new/b.txt"},
		{"read", args{"path": "a.txt", "view_range": []int{5, 9}}, "invalid_range", "`view_range`"},
		{"bash", args{"command": "x=5\n(exit $x)"}, "command_failed", "exit code 5"},
		{"bash", args{"command": "", "restart": true}, "", "A new shell was started in " + dir},
		{"bash", args{"command": "echo [$x]"}, "", "[]"},
	} {
		answer := c.call("actiond", tt.tool, tt.arguments, tt.code)
		if text := answer.text(); !strings.Contains(text, tt.says) || strings.Contains(text, "`view`") || strings.Contains(text, "execute_bash") {
			t.Errorf("%s %v: got %q, want %q in it", tt.tool, tt.arguments, text, tt.says)
		}
	}
}

// Read, replace, read: the hash says which bytes the model has seen.
func TestReadReplaceRead(t *testing.T) {
	t.Parallel()
	c, dir := newToolCaller(t)
	type args = map[string]any
	path := filepath.Join(dir, "notes.txt")
	latin := []byte("caf\xe9 one\r\nline two\r\n")
	testhelp.WriteFile(t, path, latin, 0o640)
	first := c.call("gemini", "read_file", args{"file_path": "notes.txt"}, "")
	second := c.call("gemini", "replace", args{"file_path": "notes.txt", "old_string": "line two", "new_string": "line 2", "if_sha256": first.SHA256}, "")
	c.call("gemini", "replace", args{"file_path": "notes.txt", "old_string": "line 2", "new_string": "x", "if_sha256": first.SHA256}, "conflict")
	third := c.call("gemini", "read_file", args{"file_path": "notes.txt"}, "")
	if first.SHA256 == "" || second.SHA256 != third.SHA256 || first.SHA256 == second.SHA256 || !strings.Contains(third.Content, "line 2") {
		t.Errorf("got hashes %q, %q, %q and %q", first.SHA256, second.SHA256, third.SHA256, third.Content)
	}
	// The other bytes are as they were, also those that are not UTF-8.
	if got, err := os.ReadFile(path); err != nil || string(got) != "caf\xe9 one\r\nline 2\r\n" {
		t.Errorf("got %q, %v", got, err)
	}
	c.call("gemini", "replace", args{"file_path": "notes.txt", "old_string": "nowhere", "new_string": "x"}, "no_match")
	c.call("gemini", "read_file", args{"file_path": "nope.txt"}, "file_not_found")
	c.call("strands", "fileEditor", args{"command": "create", "path": path, "file_text": ""}, "already_exists")
	c.call("anthropic", "bash", args{"command": "(exit 3)"}, "command_failed")
	c.call("strands", "bash", args{"mode": "execute", "command": "sleep 1000", "timeout": 0.1}, "") // it goes on
	c.call("strands", "bash", args{"mode": "restart"}, "")
	c.call("", "browser", args{"code": "noop()"}, "unsupported") // it is off
}

// A file of ten megabytes is edited in its place, and refused where a dialect
// has a smaller limit.
func TestLargeFileByToolCalls(t *testing.T) {
	t.Parallel()
	c, dir := newToolCaller(t)
	type args = map[string]any
	path := filepath.Join(dir, "large.txt")
	large := bytes.Repeat([]byte("0123456789abcde\n"), 10<<20/16)
	copy(large[5<<20:], "here is the one\n")
	testhelp.WriteFile(t, path, large, 0o644)
	c.call("gemini", "replace", args{"file_path": path, "old_string": "here is the one", "new_string": "here it is"}, "")
	got, err := os.ReadFile(path)
	want := bytes.Replace(large, []byte("here is the one"), []byte("here it is"), 1)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
	}
	c.call("strands", "fileEditor", args{"command": "view", "path": path}, "file_too_large")
	found := c.call("gemini", "grep_search", args{"pattern": "here it is", "context": 0}, "")
	if wantLine := fmt.Sprintf("L%d: here it is", 5<<20/16+1); !strings.Contains(found.Content, wantLine) {
		t.Errorf("got %q, want %q in it", found.Content, wantLine)
	}
}

// fakeModel plays the greeter story to whatever speaks to it as to OpenAI's API.
type fakeModel struct {
	dir string

	mu       sync.Mutex
	step     int
	problems []string
}

func (m *fakeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var asked struct {
		Model    string
		Messages []struct {
			Role, Content string
			ID            string `json:"tool_call_id"`
		}
		Tools []struct{ Function struct{ Name string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Model != "fake" || len(asked.Tools) < 5 || r.Header.Get("Authorization") != "Bearer k" {
		m.problems = append(m.problems, fmt.Sprintf("asked %s: %v, %+v", r.URL, err, asked))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	last := asked.Messages[len(asked.Messages)-1]
	if m.step == 0 {
		if last.Content != "Write a greeter." {
			m.problems = append(m.problems, "the task is "+last.Content)
		}
	} else {
		for _, piece := range actiondStory[m.step-1].says {
			if piece = strings.ReplaceAll(piece, "DIR", m.dir); last.Role != "tool" || last.ID != fmt.Sprint("call_", m.step-1) || !strings.Contains(last.Content, piece) {
				m.problems = append(m.problems, fmt.Sprintf("step %d: told %+v, want %q", m.step, last, piece))
			}
		}
	}
	message := map[string]any{"role": "assistant", "content": "The greeter greets."}
	if m.step < len(actiondStory) {
		s := actiondStory[m.step]
		message["content"] = nil
		message["tool_calls"] = []any{map[string]any{"id": fmt.Sprint("call_", m.step), "type": "function", "function": map[string]any{
			"name": s.tool, "arguments": strings.ReplaceAll(s.arguments, "DIR", m.dir),
		}}}
	}
	m.step++
	if err := json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": message}}}); err != nil {
		m.problems = append(m.problems, err.Error())
	}
}

// The agents of the README play the story to its end.
func TestExampleAgents(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the greeter is a Python program")
	}
	for _, command := range [][]string{{"go", "run", "-trimpath", "../../docs/examples/agent"}, {"python3", "../../docs/examples/agent.py"}} {
		t.Run(command[0], func(t *testing.T) {
			t.Parallel()
			_, dir, socket := serveForTest(t)
			model := &fakeModel{dir: dir}
			srv := httptest.NewServer(model)
			defer srv.Close()
			agent := exec.CommandContext(t.Context(), command[0], append(command[1:], "Write", "a", "greeter.")...)
			agent.Env = append(os.Environ(), "OPENAI_BASE_URL="+srv.URL+"/v1", "OPENAI_API_KEY=k", "MODEL=fake",
				"SANDBOX_URL="+socket, "SESSION_API_KEY="+testKey)
			out, err := agent.CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), "The greeter greets.\n") {
				t.Errorf("got %q, %v", out, err)
			}
			if model.step != len(actiondStory)+1 || len(model.problems) > 0 {
				t.Errorf("the model was asked %d times: %q", model.step, model.problems)
			}
		})
	}
}

// An agent ends with what the model or the sandbox said, or with which of them
// cannot be reached.
func TestExampleAgentsTellErrors(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("one agent is a Python program")
	}
	_, _, socket := serveForTest(t)
	url := tcpForTest(t, socket)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error": {"message": "no such key"}}`)
	}))
	defer srv.Close()
	program := filepath.Join(t.TempDir(), "agent")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "../../docs/examples/agent").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// No server listens on port 1.
	const unreachable = "http://127.0.0.1:1"
	for _, tt := range []struct{ model, sandbox, key, want string }{
		{srv.URL, url, testKey, "no such key"},
		{srv.URL, url, "wrong", "Invalid API Key"},
		{unreachable, url, testKey, unreachable + "/v1/chat/completions"},
		{srv.URL, unreachable, testKey, unreachable + "/v1/tools"},
		{srv.URL, "", testKey, "URL"},
	} {
		for _, command := range [][]string{{program}, {"python3", "../../docs/examples/agent.py"}} {
			agent := exec.CommandContext(t.Context(), command[0], append(command[1:], "Hello.")...)
			agent.Env = append(os.Environ(), "OPENAI_BASE_URL="+tt.model+"/v1", "MODEL=fake", "SANDBOX_URL="+tt.sandbox, "SESSION_API_KEY="+tt.key)
			out, err := agent.CombinedOutput()
			if err == nil || !strings.Contains(string(out), tt.want) || strings.Count(string(out), "\n") != 1 {
				t.Errorf("%s: got %q, %v, want one line with %q", command[0], out, err, tt.want)
			}
		}
	}
}

// The README links the agents and gives their lengths.
func TestExamplesInTheReadme(t *testing.T) {
	t.Parallel()
	readme := testhelp.ReadFile(t, "../../README.md")
	for name, said := range map[string]string{
		"docs/examples/agent.py":      "46 lines of\n[Python](",
		"docs/examples/agent/main.go": "46 lines of [Go](",
	} {
		code := testhelp.ReadFile(t, "../../"+name)
		if !strings.Contains(string(readme), said+name+")") {
			t.Errorf("README.md does not say %s%s)", said, name)
		}
		want, _, _ := strings.Cut(said, " ")
		if lines := len(strings.FieldsFunc(string(code), func(r rune) bool { return r == '\n' })); strconv.Itoa(lines) != want {
			t.Errorf("%s has %d lines, README.md says %s", name, lines, want)
		}
	}
}
