package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// Tools are listed and called as a model would.
func TestTool(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	tool := func(args ...string) (code int, stdout, stderr string) {
		line := []string{"tool", args[0], "--on=local", "--state-dir", m.dir}
		return inProcess(t.Context(), nil, append(line, args[1:]...)...)
	}

	code, stdout, stderr := tool("ls", "-d", "anthropic", "box")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || len(lines) < 4 || !strings.HasPrefix(lines[2], "str_replace_based_edit_tool   command,path") || !strings.HasPrefix(lines[3], "workspace_changes") {
		t.Errorf("ls: exit code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr = tool("ls", "-d", "actiond", "--for", "openai-responses", "box")
	var flat []struct{ Type, Name string }
	if err := json.Unmarshal([]byte(stdout), &flat); code != 0 || err != nil || len(flat) < 4 || flat[0].Type != "function" || flat[0].Name != "bash" {
		t.Errorf("ls --for openai-responses: exit code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr = tool("ls", "--for", "openai", "box")
	var tools []struct{ Function struct{ Name string } }
	if err := json.Unmarshal([]byte(stdout), &tools); code != 0 || err != nil || len(tools) == 0 || tools[0].Function.Name != "execute_bash" {
		t.Errorf("ls --for: exit code %d, %q, %q", code, stdout, stderr)
	}

	var answer struct {
		Content   string `json:"content"`
		IsError   bool   `json:"is_error"`
		ErrorCode string `json:"error_code"`
		SHA256    string `json:"sha256"`
	}
	call := func(args ...string) {
		t.Helper()
		answer.Content, answer.ErrorCode, answer.SHA256 = "", "", ""
		code, stdout, stderr := tool(append([]string{"call"}, args...)...)
		if err := json.Unmarshal([]byte(stdout), &answer); (code != 0) != answer.IsError || err != nil {
			t.Fatalf("%q: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
	call("box", "execute_bash", `{"command": "echo hello"}`)
	if answer.Content != "hello" || answer.IsError {
		t.Errorf("got %+v", answer)
	}
	call("-d", "gemini", "box", "write_file", `{"file_path": "a.txt", "content": "x\n"}`)
	if len(answer.SHA256) != 64 || answer.IsError {
		t.Errorf("got %+v", answer)
	}
	call("-d", "actiond", "box", "bash", `{"command": "mkdir d\ncd d"}`)
	call("-d", "actiond", "box", "edit", `{"path": "b.txt", "new_str": "x\n"}`)
	call("-d", "actiond", "box", "read", `{"path": "b.txt"}`)
	if !strings.Contains(answer.Content, "/d/b.txt") || answer.IsError {
		t.Errorf("got %+v", answer)
	}
	call("box", "execute_bash", `{'command': 'ls'}`)
	if !answer.IsError || answer.ErrorCode != "invalid_json" {
		t.Errorf("got %+v", answer)
	}
	if code, _, stderr := tool("call", "-d", "nobody", "box", "bash", "{}"); code != 2 || !strings.Contains(stderr, `dialect "nobody" is unknown; dialects are actiond, `) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
