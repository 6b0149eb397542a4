package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/testhelp"
)

// upgradable is a server process whose commands run as another user.
type upgradable struct {
	*testing.T
	cmd              *exec.Cmd
	dir, work, state string
	log              bytes.Buffer
	client           *http.Client
	key              string
}

// startUpgradable starts a server in a directory of its own.
func startUpgradable(t *testing.T, binary string, env []string, args ...string) *upgradable {
	t.Helper()
	s := newUpgradable(t, binary, env, args...)
	s.start()
	return s
}

// newUpgradable is a server that was not started.
func newUpgradable(t *testing.T, binary string, env []string, args ...string) *upgradable {
	t.Helper()
	dir, err := os.MkdirTemp("", "up") //nolint:usetesting // the user of the commands can go there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &upgradable{T: t, key: "k", dir: dir, work: filepath.Join(dir, "work"), state: filepath.Join(dir, "state")}
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
func (s *upgradable) start() {
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

func (s *upgradable) do(method, path string, body io.Reader, header ...string) (status int, answer string) {
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
func (s *upgradable) act(kind string, args map[string]any, header ...string) (content string) {
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

func (s *upgradable) run(command string, header ...string) string {
	s.Helper()
	return s.act("run", map[string]any{"command": command}, header...)
}

func (s *upgradable) want(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// upgrade uploads a program.
func (s *upgradable) upgrade(program, query string) (status int, u api.Upgraded, answer string) {
	s.Helper()
	f, err := os.Open(program)
	if err != nil {
		s.Fatal(err)
	}
	defer f.Close()
	status, answer = s.do("POST", "/v1/upgrade?"+query, f, "Content-Type", "application/octet-stream")
	_ = json.Unmarshal([]byte(answer), &u)
	return status, u, answer
}

// put sends the beginning of a file, once the server has it; end sends the rest and returns an
// error unless that was answered.
func (s *upgradable) put(name string) (end func() error) {
	s.Helper()
	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPut, "http://sandbox/v1/files?path="+filepath.Join(s.work, name), body)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set(api.KeyHeader, s.key)
	answered := make(chan error, 1)
	go func() {
		resp, err := s.client.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	begin := bytes.Repeat([]byte("x"), 4<<20) // more than connections hold
	if _, err := more.Write(begin); err != nil {
		s.Fatal(err)
	}
	return func() error {
		_ = more.Close() // the transport waits for its body
		return <-answered
	}
}

// version is the server's; "" where it is just being replaced.
func (s *upgradable) version() string {
	resp, err := s.client.Get("http://sandbox/server_info")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var info api.ServerInfo
	_ = json.NewDecoder(resp.Body).Decode(&info)
	return info.Version
}

// build builds a program in a directory that all users can read, with flags of the linker.
func build(t *testing.T, name, flags, pkg string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w "+flags, "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func otherUser(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run commands as another user")
	}
	return []string{"--username", "nobody"}
}

// A program that is wrong leaves the server as it was, at whichever step that shows.
func TestUpgradeRefused(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	s := startUpgradable(t, buildServer(t), []string{"SESSION_API_KEY=k"}, user...)
	fake := testhelp.ReadFile(t, build(t, "fake", "", "./testdata/fake"))
	shell := s.run("X=42; echo $$")
	machine := bytes.Clone(fake)
	binary.LittleEndian.PutUint16(machine[18:], uint16(elf.EM_RISCV))
	mode := func(word string) []byte { return append(bytes.Clone(fake), " "+word...) }
	for _, tt := range []struct {
		name    string
		program []byte
		status  int
		want    string
	}{
		{"empty", nil, 422, "not an ELF file"},
		{"a script", []byte("#!/bin/sh\necho actiond server v9\n"), 422, "not an ELF file"},
		{"torn", fake[:len(fake)/2], 422, "this server keeps running"},
		{"another machine", machine, 422, "EM_RISCV"},
		{"hangs", mode("hangs"), 422, "did not answer"},
		{"fails", mode("fails"), 422, "a sentence"},
		{"is another program", mode("talks"), 422, "hello"},
		{"refuses the memory", mode("refuses"), 422, "too new for me"},
	} {
		file := filepath.Join(t.TempDir(), "program")
		write(t, file, tt.program)
		status, _, answer := s.upgrade(file, "wait=5")
		if status != tt.status || !strings.Contains(answer, tt.want) {
			t.Errorf("%s: got %d %s, want %d and %q", tt.name, status, answer, tt.status, tt.want)
		}
		s.want("after "+tt.name, s.run("echo $X $$"), "42 "+shell)
	}
	if status, _, answer := s.upgrade(os.DevNull, "wait=x"); status != 422 {
		t.Errorf("a wrong wait: got %d %s", status, answer)
	}
	// The directory is found through no link.
	if err := os.Rename(s.state, s.state+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.work, s.state); err != nil {
		t.Fatal(err)
	}
	if status, _, answer := s.upgrade("/proc/self/exe", ""); status < 400 {
		t.Errorf("through a link: got %d %s", status, answer)
	}
	if left := entries(t, s.work); len(left) > 0 {
		t.Errorf("the working directory has %q", left)
	}
}

// Who could be the agent upgrades nothing.
func TestUpgradeOff(t *testing.T) {
	t.Parallel()
	server := buildServer(t)
	same := startUpgradable(t, server, []string{"SESSION_API_KEY=k"})
	if status, _, answer := same.upgrade(server, ""); status != http.StatusConflict || !strings.Contains(answer, "same user") {
		t.Errorf("with one user: got %d %s", status, answer)
	}
	open := startUpgradable(t, server, nil, otherUser(t)...)
	if status, _, answer := open.upgrade(server, ""); status != http.StatusConflict || !strings.Contains(answer, "no key") {
		t.Errorf("without a key: got %d %s", status, answer)
	}
	locked := startUpgradable(t, server, []string{"SESSION_API_KEY=other"}, otherUser(t)...)
	if status, _, answer := locked.upgrade(server, ""); status != http.StatusForbidden {
		t.Errorf("with another key: got %d %s", status, answer)
	}
	// The words are for the server, and a memory for what wrote it.
	for _, args := range [][]string{{"upgrade"}, {"upgrade", "check"}, {"upgrade", "check", "0"}, {"upgrade", "resume", "98", "99"}, {"upgrade", "other", "3"}} {
		if err := run(t.Context(), args, nil, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
