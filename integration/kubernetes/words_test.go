//go:build kubernetes

package kubernetes_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/testhelp"
)

// words runs runtimectl as a user of the cluster does.
type words struct {
	t       *testing.T
	program string
	env     []string
}

func newWords(t *testing.T) *words {
	t.Helper()
	return &words{t, shared.path("runtimectl"), append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG="+shared.kubeconfig(),
		"ACTIOND_ON=kubernetes:test/"+namespace(t), "ACTIOND_SERVER_IMAGE="+serverImage)}
}

// try runs a command and returns what it printed and its exit code.
func (w *words) try(input string, args ...string) (stdout, stderr string, code int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program, args...)
	cmd.Env, cmd.Dir = w.env, w.t.TempDir()
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &said
	err := cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		code = ended.ExitCode()
	} else if err != nil {
		w.t.Fatalf("%q: %v", args, err)
	}
	w.t.Logf("runtimectl %s: %d\n%s%s", strings.Join(args, " "), code, out.String(), said.String())
	return out.String(), said.String(), code
}

// begin starts a command that runs until it is interrupted, and waits for a line with a text. end
// interrupts it, and fails the test unless it then ends well.
func (w *words) begin(text string, args ...string) (end func()) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.program, args...)
	cmd.Env, cmd.Dir = w.env, w.t.TempDir()
	r, out, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	err = errors.Join(cmd.Start(), out.Close())
	lines := bufio.NewReader(r)
	said := ""
	for err == nil && !strings.Contains(said, text) {
		var line string
		line, err = lines.ReadString('\n')
		said += line
	}
	if err != nil {
		w.t.Fatalf("%q: %v, %q", args, err, said)
	}
	rest := make(chan []byte, 1)
	go func() { // ends with the command
		later, _ := io.ReadAll(lines)
		rest <- later
	}()
	return func() {
		w.t.Helper()
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		later := <-rest
		if err := errors.Join(cmd.Wait(), r.Close()); err != nil {
			w.t.Errorf("%q ended with %v: %s%s", args, err, said, later)
		}
	}
}

// want fails the test unless a command succeeds and prints a text.
func (w *words) want(text, input string, args ...string) string {
	w.t.Helper()
	out, _, code := w.try(input, args...)
	if code != 0 || !strings.Contains(out, text) {
		w.t.Errorf("runtimectl %s ended with %d, want %q", strings.Join(args, " "), code, text)
	}
	return out
}

// refused fails the test unless a command fails and says a text.
func (w *words) refused(text string, args ...string) {
	w.t.Helper()
	if _, said, code := w.try("", args...); code == 0 || !strings.Contains(said, text) {
		w.t.Errorf("runtimectl %s ended with %d, want a refusal with %q", strings.Join(args, " "), code, text)
	}
}

// Every command of runtimectl, in a sandbox that is a Pod.
func TestWords(t *testing.T) {
	t.Parallel()
	w := newWords(t)
	w.want("Kubernetes v1.", "", "doctor")
	without := *w
	without.env = append(slices.Clone(w.env), "ACTIOND_SERVER_IMAGE=")
	without.refused("missing: no image with the server is configured", "doctor")
	id := strings.TrimSpace(w.want("", "", "create", "--name", "build", "--memory", "256m", "--ttl", "1h", "--pull", "never", "-e", "GREETING=hello", busyboxImage))
	w.want(id, "", "ls")
	if out := w.want("256 MiB of memory, 2 processors", "", "inspect", "build"); strings.Contains(out, "0 processes") {
		t.Error("inspect names a limit of processes that a Pod does not have")
	}

	w.want("hello 7", "", "exec", "build", "--", "sh", "-c", "echo $GREETING 7")
	if _, _, code := w.try("", "exec", "build", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("the exit code of a command is %d, not 7", code)
	}
	w.want("from here", "from here\n", "exec", "-i", "build", "--", "cat")
	w.want("42", `{"action": "run", "args": {"command": "echo $((20+22))"}}`, "act", "build", "-")
	w.want("a tool", `{"command": "echo a tool"}`, "tool", "call", "build", "execute_bash", "-")
	w.want("execute_bash", "", "tool", "ls", "build")
	w.want("execute_bash", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`+"\n"+
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n", "mcp", "build")
	w.testFiles()

	w.want("serving", "", "logs", "build")
	var stats []struct {
		Memory      uint64 `json:"memory"`
		MemoryLimit uint64 `json:"memory_limit"`
	}
	if err := json.Unmarshal([]byte(w.want(id, "", "stats", "-o", "json", "build")), &stats); err != nil || len(stats) != 1 || stats[0].Memory == 0 || stats[0].MemoryLimit != 256<<20 {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	w.testPorts()
	w.want("", "", "renew", "--ttl", "2h", "build")
	for _, word := range []string{"stop", "start", "pause", "resume"} {
		w.refused("the driver of Kubernetes cannot", word, "build")
	}
	w.refused("no paths of a host", "create", "-v", "/etc:/data", busyboxImage)
	w.refused("--pids-limit", "create", "--pids-limit", "100", busyboxImage)
	w.testEvents(id)
	w.want("", "", "prune")
	w.refused("no such sandbox", "inspect", "build")
}

// testFiles copies a directory into the sandbox and out of it, with links of the agent in
// it, and edits a file.
func (w *words) testFiles() {
	t := w.t
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/in/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	testhelp.WriteFile(t, dir+"/in/sub/file", "copied\n", 0o640)
	w.want("", "", "cp", dir+"/in", "build:")
	w.want("copied", "", "cat", "build", "in/sub/file")
	w.want("", "", "exec", "build", "--", "sh", "-c", "cd in && ln -s /etc/passwd abs && ln -s sub/file inside && mkdir closed && chmod 0 closed")
	_, said, code := w.try("", "cp", "build:in", dir+"/out")
	if data, err := os.ReadFile(dir + "/out/inside"); code != 0 || err != nil || string(data) != "copied\n" {
		t.Errorf("copied out: %q, %v", data, err)
	}
	for _, note := range []string{"abs is a link to /etc/passwd", "closed may not be read"} {
		if !strings.Contains(said, note) {
			t.Errorf("cp does not say that %s", note)
		}
	}
	w.refused("not found", "cat", "build", "/none")
	w.refused("permission denied", "cat", "build", "/var/lib/actiond/x")
	w.env = append(w.env, `EDITOR=sh -c 'echo edited >>"$1"' sh`)
	w.want("", "", "edit", "build", "in/sub/file")
	w.want("copied\nedited\n", "", "cat", "build", "in/sub/file")
}

// testPorts has a web server in the sandbox, and reaches it from here.
func (w *words) testPorts() {
	w.want("", "", "act", "build", `{"action": "run", "args": {"command": "nc -ll -p 8080 -e sh -c 'while read -r line && [ ${#line} -gt 1 ]; do :; done; echo HTTP/1.0 200; echo; echo web' >/dev/null 2>&1 &"}}`)
	for end := time.Now().Add(time.Minute); ; {
		if out, _, _ := w.try("", "ports", "build"); strings.Contains(out, "8080") {
			break
		}
		if time.Now().After(end) {
			w.t.Fatal("port 8080 is not listed")
		}
		<-time.After(100 * time.Millisecond)
	}
	ctx, stop := context.WithTimeout(w.t.Context(), time.Minute)
	defer stop()
	forward := exec.CommandContext(ctx, w.program, "port-forward", "build", ":8080")
	forward.Env = w.env
	out, err := forward.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		w.t.Fatal(err)
	}
	defer forward.Wait()
	defer stop()
	buffer := make([]byte, 4096)
	n, err := out.Read(buffer)
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(buffer[:n]))
	if err != nil || address == "" {
		w.t.Errorf("port-forward printed %q, %v", buffer[:n], err)
		return
	}
	answer, err := http.Get("http://" + address + "/")
	if err != nil {
		w.t.Error(err)
		return
	}
	defer answer.Body.Close()
	if data, err := io.ReadAll(answer.Body); err != nil || string(data) != "web\n" {
		w.t.Errorf("the port answered %q, %v", data, err)
	}
}

// testEvents removes the sandbox while its events are followed.
func (w *words) testEvents(id string) {
	ctx, stop := context.WithTimeout(w.t.Context(), time.Minute)
	defer stop()
	events := exec.CommandContext(ctx, w.program, "events", "-o", "json")
	events.Env = w.env
	out, err := events.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := events.Start(); err != nil {
		w.t.Fatal(err)
	}
	defer events.Wait()
	defer stop()
	removed := false
	for d := json.NewDecoder(out); ; {
		if !removed {
			<-time.After(3 * time.Second) // until it watches
			w.want(id, "", "rm", "build")
			removed = true
		}
		var e map[string]any
		if err := d.Decode(&e); err != nil {
			w.t.Errorf("the events ended before the sandbox: %v", err)
			return
		}
		w.t.Logf("event %v", e)
		for _, value := range e {
			if value == "destroy" {
				return
			}
		}
	}
}
