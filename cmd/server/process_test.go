package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
)

// serverProcess is a server process whose commands run as another user.
type serverProcess struct {
	*testing.T
	cmd              *exec.Cmd
	dir, work, state string
	log              bytes.Buffer
	client           *http.Client
	key              string
}

// newServer is a server that was not started.
func newServer(t *testing.T, binary string, env []string, args ...string) *serverProcess {
	t.Helper()
	dir, err := os.MkdirTemp("", "up") //nolint:usetesting // the user of the commands can go there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &serverProcess{T: t, key: "k", dir: dir, work: filepath.Join(dir, "work"), state: filepath.Join(dir, "state")}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), binary, append([]string{
		"--addr", "unix:" + socket, "--working-dir", s.work, "--state-dir", s.state, "--no-enable-browser", "--plugins", "vscode",
	}, args...)...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = &s.log
	s.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	return s
}

// start starts it, and ends it with the test.
func (s *serverProcess) start() {
	t := s.T
	t.Helper()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	awaitAlive(t, s.client)
}

func (s *serverProcess) do(method, path string, body io.Reader, header ...string) (status int, answer string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, "http://sandbox"+path, body)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set(api.KeyHeader, s.key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.Fatalf("%s %s: %v\n%s", method, path, err, &s.log)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// act sends an action and returns its observation.
func (s *serverProcess) act(kind string, args map[string]any, header ...string) (content string) {
	s.Helper()
	action := map[string]any{"action": kind, "args": args}
	if timeout, ok := args["timeout"]; ok {
		action["timeout"] = timeout
		delete(args, "timeout")
	}
	if session, ok := args["session"]; ok {
		action["session"] = session
		delete(args, "session")
	}
	body, err := json.Marshal(map[string]any{"action": action})
	if err != nil {
		s.Fatal(err)
	}
	status, answer := s.do("POST", "/v1/actions", bytes.NewReader(body), header...)
	var o struct{ Content string }
	if err := json.Unmarshal([]byte(answer), &o); err != nil || status/100 != 2 {
		s.Fatalf("%v: %d %s", args, status, answer)
	}
	return o.Content
}

func (s *serverProcess) run(command string, header ...string) string {
	s.Helper()
	return s.act("run", map[string]any{"command": command}, header...)
}

func (s *serverProcess) want(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s: got %q, want %q", what, got, want)
	}
}
