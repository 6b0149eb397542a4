package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// A background job of Gemini's begins in the shell's directory and with its variables, prints into an output of its own,
// and is an exec that goes on after the answer: it is listed, read and ended by its PID.
func TestBackgroundByToolCalls(t *testing.T) {
	t.Parallel()
	c, dir := newToolCaller(t)
	type args = map[string]any
	shell := func(a args) string { t.Helper(); return c.call("gemini", "run_shell_command", a, "").text() }
	read := func(pid int, more args) string {
		t.Helper()
		more["pid"] = pid
		return c.call("gemini", "read_background_output", more, "").Content
	}
	list := func() string { return c.call("gemini", "list_background_processes", args{}, "").Content }

	if got := list(); got != "No program was started in the background." {
		t.Errorf("got %q", got)
	}
	shell(args{"command": "mkdir sub; cd sub; export GREETING=hi; mkfifo go"})
	begun := c.call("gemini", "run_shell_command", args{"command": "echo $GREETING $PWD\nread line <go; echo UP $line; : >up; read line <go; exit 3", "is_background": true, "delay_ms": 300}, "")
	pids := regexp.MustCompile(`PID is (\d+)`).FindStringSubmatch(begun.Text)
	if want := "hi " + filepath.Join(dir, "sub") + "\n"; begun.Content != want || pids == nil {
		t.Fatalf("got %q and %q, want %q", begun.Content, begun.Text, want)
	}
	pid, err := strconv.Atoi(pids[1])
	if err != nil {
		t.Fatal(err)
	}

	// Nothing of it comes in the answer of a later command.
	if got := shell(args{"command": "echo now >go; until [ -e up ]; do :; done; echo hello"}); !strings.HasPrefix(got, "hello\n[The command completed") {
		t.Errorf("got %q", got)
	}
	testhelp.Eventually(t, func() bool { return strings.Contains(read(pid, args{}), "UP now\n") }, "the output is not there")
	if got, want := read(pid, args{"lines": 1}), fmt.Sprintf("UP now\n[PID %d runs. It printed ", pid); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	second := c.call("gemini", "run_shell_command", args{"command": "pwd; sleep 1000 & wait", "is_background": true, "dir_path": "..", "delay_ms": 100}, "")
	if second.Content != dir+"\n" {
		t.Errorf("got %q, want %q", second.Content, dir)
	}
	if lines := strings.Split(list(), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], fmt.Sprintf("PID %d runs: ", pid)) || !strings.HasSuffix(lines[0], "runs: pwd; sleep 1000 & wait") {
		t.Errorf("got %q", lines)
	}

	shell(args{"command": "echo end >go"})
	testhelp.Eventually(t, func() bool { return strings.Contains(list(), fmt.Sprintf("PID %d ended with exit code 3: ", pid)) }, "its end is not there")
	if got := read(pid, args{"delay_ms": 1}); !strings.HasPrefix(got, "hi ") || !strings.Contains(got, "ended with exit code 3") {
		t.Errorf("got %q", got)
	}
	group := regexp.MustCompile(`PID is (\d+)`).FindStringSubmatch(second.Text)[1]
	shell(args{"command": "kill -- -" + group})
	testhelp.Eventually(t, func() bool { return strings.Contains(list(), "PID "+group+" was ended by SIGTERM: ") }, "it goes on")
	c.call("gemini", "read_background_output", args{"pid": 1}, "invalid_argument")

	// One that ends at once is answered as a command is.
	failed := c.call("gemini", "run_shell_command", args{"command": "echo no; exit 4", "is_background": true, "delay_ms": 60000}, "command_failed")
	if failed.Text != "no\n[The program ended with exit code 4.]" {
		t.Errorf("got %q", failed.Text)
	}
	c.call("gemini", "run_shell_command", args{"command": "true", "is_background": true, "dir_path": "none"}, "not_started")

	// The same id joins the job and starts none; its action is an exec that runs, and can be cancelled. Over MCP as well.
	call := func(method, path, id, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, c.base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "X-Session-Api-Key": {testKey}}
		if id != "" {
			r.Header.Set("Idempotency-Key", id)
		}
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		data, err := io.ReadAll(w.Body)
		if err != nil || w.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %s, %v", method, path, w.StatusCode, data, err)
		}
		return string(data)
	}
	const arguments = `{"command":"echo $$; sleep 1000","is_background":true}`
	for path, body := range map[string]string{
		"/v1/tools/call":      `{"dialect":"gemini","name":"run_shell_command","arguments":` + arguments + `}`,
		"/mcp?dialect=gemini": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_shell_command","arguments":` + arguments + `}}`,
	} {
		first := regexp.MustCompile(`PID is \d+`).FindString(call("POST", path, "job"+path[:3], body))
		again := regexp.MustCompile(`PID is \d+`).FindString(call("POST", path, "job"+path[:3], body))
		if first == "" || first != again {
			t.Errorf("%s: got %q and %q", path, first, again)
		}
		action := "/v1/actions/" + url.PathEscape("job"+path[:3])
		if got := call("GET", action, "", ""); !strings.Contains(got, `"state":"running"`) || !strings.Contains(got, `"kind":"exec"`) {
			t.Errorf("got %s", got)
		}
		if got := call("GET", action+"/output", "", ""); "PID is "+strings.TrimSpace(got) != first {
			t.Errorf("got %q, want %s", got, first)
		}
		if got := call("DELETE", action, "", ""); !strings.Contains(got, `"outcome":"cancelled"`) {
			t.Errorf("got %s", got)
		}
	}

	// Strands' shell keeps nothing, and is killed after its timeout.
	if got := c.call("strands", "shell", args{"command": "cd /; export X=1; pwd; (exit 0)"}, "").Content; got != "/\n" {
		t.Errorf("got %q", got)
	}
	if got := c.call("strands", "shell", args{"command": "pwd; echo [$X]; exit 5"}, "command_failed").Text; got != dir+"\n[]\n[The program ended with exit code 5.]" {
		t.Errorf("got %q", got)
	}
	if got := c.call("strands", "shell", args{"command": "echo a; sleep 1000", "timeout": 0.3}, "timed_out").Text; !strings.HasPrefix(got, "a\n[The program was ended by SIGTERM. It was told to by kill_after.]") {
		t.Errorf("got %q", got)
	}
}

// A job that goes on is found and listed first, however many were started after it.
func TestBackgroundOfManyJobs(t *testing.T) {
	t.Parallel()
	c, _ := newToolCaller(t)
	start := func(command string, delay int) string {
		t.Helper()
		text := c.call("gemini", "run_shell_command", map[string]any{"command": command, "is_background": true, "delay_ms": delay}, "").Text
		if m := regexp.MustCompile(`PID is (\d+)`).FindStringSubmatch(text); m != nil {
			return m[1]
		}
		return ""
	}
	first := start("echo still here; exec sleep 1000", 200)
	for range 50 {
		start(":", 60000) // which ends before its answer
	}
	list := func() []string {
		return strings.Split(c.call("gemini", "list_background_processes", map[string]any{}, "").Content, "\n")
	}
	if got := list(); len(got) != 51 || got[0] != "PID "+first+" runs: echo still here; exec sleep 1000" || got[50] != "[More programs were started; read_background_output finds them by PID.]" {
		t.Errorf("got %d lines: %q", len(got), got)
	}
	read := func() string {
		pid, err := strconv.Atoi(first)
		if err != nil {
			t.Fatal(err)
		}
		return c.call("gemini", "read_background_output", map[string]any{"pid": pid}, "").Content
	}
	if got := read(); !strings.HasPrefix(got, "still here\n[PID "+first+" runs.") {
		t.Errorf("got %q", got)
	}
	c.call("gemini", "run_shell_command", map[string]any{"command": "kill " + first}, "")
	testhelp.Eventually(t, func() bool { return strings.Contains(read(), "PID "+first+" was ended by SIGTERM") }, "it goes on")
	if got := list(); len(got) != 51 || strings.HasPrefix(got[0], "PID "+first) {
		t.Errorf("got %d lines: %q", len(got), got)
	}
}
