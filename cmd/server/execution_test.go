package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/internal/testhelp"
)

// dot is an image of one pixel.
const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// Each tool of OpenHands' execution protocol answers with its own observation.
func TestExecutionTools(t *testing.T) {
	t.Parallel()
	_, dir, socket := serveForTest(t, "--no-enable-browser")
	base, spec := tcpForTest(t, socket), contract.NewSpec(t)
	image, err := base64.StdEncoding.DecodeString(dot)
	if err != nil {
		t.Fatal(err)
	}
	testhelp.WriteFile(t, filepath.Join(dir, "dot.png"), string(image), 0o644)
	for _, tt := range []struct {
		name, body string
		status     int
		want       string // a regular expression; DIR is the working directory
	}{
		{
			"a command", `{"tool_name":"terminal","action":{"command":"echo hi; false","is_input":false,"timeout":null,"reset":false,"kind":"TerminalAction"}}`, 200,
			`^{"observation":{"content":\[{"type":"text","text":"hi"}\],"is_error":false,"command":"echo hi; false","exit_code":1,"timeout":false,` +
				`"metadata":{"exit_code":1,"pid":-1,"username":"[^"]*","hostname":"[^"]*","working_dir":"DIR","py_interpreter_path":"[^"]*","prefix":"",` +
				`"suffix":"\\n\[The command completed with exit code 1.\]"},"kind":"TerminalObservation"}}$`,
		},
		{
			"a command that goes on", `{"tool_name":"terminal","action":{"command":"read -r line; echo got $line","timeout":0.2}}`, 200,
			`"text":""}\],"is_error":false,.*"exit_code":-1,"timeout":true,"metadata":{"exit_code":-1,"pid":-1,"prefix":"",` +
				`"suffix":"\\n\[The command timed out after 0.2 seconds. .*or use the timeout parameter in terminal for future commands.\]`,
		},
		{"another one meanwhile", `{"tool_name":"terminal","action":{"command":"ls"}}`, 200, `"is_error":true,"command":"ls","exit_code":-1,.*NOT executed.*parameter in terminal`},
		{"its input", `{"tool_name":"terminal","action":{"command":"x","is_input":true}}`, 200, `"text":"(x\\n)?got x"}\],"is_error":false,.*"exit_code":0`},
		{"two commands", `{"tool_name":"terminal","action":{"command":"ls\nls"}}`, 200, `Cannot execute multiple commands.*"is_error":true,"command":"ls\\nls","timeout":false,"kind":"TerminalObservation"`},
		{"reset", `{"tool_name":"terminal","action":{"command":"","reset":true}}`, 200, `new shell.*"is_error":false.*"working_dir":"DIR"`},
		{
			"create", `{"tool_name":"file_editor","action":{"command":"create","path":"DIR/a.txt","file_text":"one\n","old_str":null,"view_range":null}}`, 200,
			`created successfully.*"is_error":false,"command":"create","path":"DIR/a.txt","prev_exist":false,"new_content":"one\\n","kind":"FileEditorObservation"`,
		},
		{
			"str_replace", `{"tool_name":"file_editor","action":{"command":"str_replace","path":"DIR/a.txt","old_str":"one","new_str":"two"}}`, 200,
			`has been edited.*"command":"str_replace","path":"DIR/a.txt","prev_exist":true,"old_content":"one\\n","new_content":"two\\n"`,
		},
		{"insert", `{"tool_name":"file_editor","action":{"command":"insert","path":"DIR/a.txt","insert_line":1,"new_str":"three"}}`, 200, `"old_content":"two\\n","new_content":"two\\nthree\\n"`},
		{"undo_edit", `{"tool_name":"file_editor","action":{"command":"undo_edit","path":"DIR/a.txt"}}`, 200, `undone.*"old_content":"two\\nthree\\n","new_content":"two\\n"`},
		{"view", `{"tool_name":"file_editor","action":{"command":"view","path":"DIR/a.txt"}}`, 200, `1\\ttwo.*"is_error":false,"command":"view","path":"DIR/a.txt","kind"`},
		{"no such file", `{"tool_name":"file_editor","action":{"command":"view","path":"DIR/none"}}`, 200, `"is_error":true,"command":"view","path":"DIR/none","kind"`},
		{"no match", `{"tool_name":"file_editor","action":{"command":"str_replace","path":"DIR/a.txt","old_str":"nine","new_str":""}}`, 200, `"is_error":true,"command":"str_replace"`},
		{"an image", `{"tool_name":"file_editor","action":{"command":"view","path":"DIR/dot.png"}}`, 200, `"content":\[{"type":"image","image_urls":\["data:image/png;base64,iVBOR.*"\]}\],"is_error":false`},
		{
			"grep", `{"tool_name":"grep","action":{"pattern":"TWO","path":null,"include":"*.txt"}}`, 200,
			`"text":"Found 1 file\(s\) containing pattern 'TWO' in 'DIR' \(filtered by '\*.txt'\):\\nDIR/a.txt"}\],"is_error":false,` +
				`"matches":\["DIR/a.txt"\],"pattern":"TWO","search_path":"DIR","include_pattern":"\*.txt","truncated":false,"kind":"GrepObservation"`,
		},
		{"grep without a match", `{"tool_name":"grep","action":{"pattern":"none"}}`, 200, `"is_error":false,"matches":\[\],"pattern":"none","search_path":"DIR","truncated":false`},
		{"grep of a bad expression", `{"tool_name":"grep","action":{"pattern":"("}}`, 200, `"is_error":true,"matches":\[\],"pattern":"\("`},
		{
			"glob", `{"tool_name":"glob","action":{"pattern":"*.txt","path":"DIR"}}`, 200,
			`"text":"Found 1 file\(s\) matching pattern .*:\\nDIR/a.txt".*"files":\["DIR/a.txt"\],"pattern":"\*.txt","search_path":"DIR","truncated":false,"kind":"GlobObservation"`,
		},
		{
			"apply_patch", `{"tool_name":"apply_patch","action":{"patch":"*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+four\n*** End Patch"}}`, 200,
			`"is_error":false,"message":"[^"]+","fuzz":0,"kind":"ApplyPatchObservation"`,
		},
		{"a bad patch", `{"tool_name":"apply_patch","action":{"patch":"x"}}`, 200, `"is_error":true,"fuzz":0,"kind":"ApplyPatchObservation"`},
		{"an argument is missing", `{"tool_name":"grep","action":{}}`, 200, `"pattern\\" is missing.*"is_error":true,"matches":\[\],"pattern":""`},
		{"a tool of the other server", `{"tool_name":"task_tracker","action":{"command":"view"}}`, 422, `^{"detail":"tool_name \\"task_tracker\\" is unknown`},
		{"no action", `{"tool_name":"grep"}`, 422, `^{"detail":"body: action must be an object`},
		{"no object", `[]`, 422, `^{"detail":"body:`},
		{"no tool", `{"action":{}}`, 422, `^{"detail":"body: tool_name`},
	} {
		body := strings.ReplaceAll(tt.body, "DIR", dir)
		status, answer := executionCall(t, base, body, testKey, "")
		want := strings.ReplaceAll(tt.want, "DIR", regexp.QuoteMeta(dir))
		if status != tt.status || !regexp.MustCompile(want).MatchString(answer) {
			t.Errorf("%s: got %d %s\nwant %d %s", tt.name, status, answer, tt.status, want)
		}
		if err := spec.CheckResponse(http.MethodPost, "/api/execution/tools", status, "application/json", []byte(answer)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	once := `{"tool_name":"terminal","action":{"command":"echo x >>once; wc -l <once"}}`
	_, first := executionCall(t, base, once, testKey, "one")
	if _, again := executionCall(t, base, once, testKey, "one"); again != first || !strings.Contains(first, `"text":"1"`) {
		t.Errorf("sent again with its id: got %s, then %s", first, again)
	}
	if status, answer := executionCall(t, base, once, "wrong", ""); status != http.StatusForbidden {
		t.Errorf("with another key: got %d %s", status, answer)
	}
}

// executionCall posts a call and returns the answer.
func executionCall(t *testing.T, base, body, key, id string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/api/execution/tools", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Session-API-Key", key)
	if id != "" {
		request.Header.Set("Idempotency-Key", id)
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// Started as OpenHands starts the container of a conversation, without root's rights, the server
// answers on the port, and no command can find the key, although it came in the environment.
func TestExecutionContainer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("commands of root can read everything")
	}
	const key = "1f0c5a6e7d"
	binary, dir := buildServer(t), t.TempDir()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	cmd := exec.CommandContext(t.Context(), binary, "init", "--host", "127.0.0.1", "--port", port, "--working-dir", dir, "--no-enable-browser")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + t.TempDir(), "OH_EXECUTION_ONLY=true", "OH_SESSION_API_KEYS_0=" + key}
	var log testhelp.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v:\n%s", err, &log)
		}
	}()
	base := "http://127.0.0.1:" + port
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for range 20_000 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := new(http.Client).Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		<-look.C
	}
	for command, want := range map[string]string{
		`pwd`:                  dir,
		`env | grep -c ` + key: "0",
		`cat /proc/[0-9]*/environ 2>/dev/null | grep -ac '1f0c5a6e7[d]'`: "0",
	} {
		body, err := json.Marshal(map[string]any{"tool_name": "terminal", "action": map[string]any{"command": command}})
		if err != nil {
			t.Fatal(err)
		}
		if status, answer := executionCall(t, base, string(body), key, ""); status != 200 || !bytes.Contains([]byte(answer), []byte(`"text":"`+want+`"`)) {
			t.Errorf("%s: got %d %s, want %q", command, status, answer, want)
		}
	}
	if strings.Contains(log.String(), "level=WARN") {
		t.Errorf("it warned:\n%s", &log)
	}
}
