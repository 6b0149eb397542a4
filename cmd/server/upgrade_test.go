package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/internal/handover"
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
	s.awaitAlive()
}

// awaitAlive waits until a server answers.
func (s *upgradable) awaitAlive() {
	t := s.T
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		resp, err := s.client.Get("http://sandbox/alive")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(until) {
			t.Fatalf("the server is not ready: %v\n%s", err, &s.log)
		}
	}
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

// An upgrade keeps shells with all that is in them, what is recorded, and the process; what
// it cannot keep it waits for, or says.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	one, two := build(t, "one", "-X main.release=v1", "."), build(t, "two", "-X main.release=v2", ".")
	s := startUpgradable(t, one, []string{"SESSION_API_KEY=k"}, user...)
	first := s.run("X=42; f() { echo f; }; cd /tmp; sleep 1000 & echo $$", "Idempotency-Key", "first")
	shell := first[strings.LastIndexByte(first, '\n')+1:]
	s.run("(exit 7)")
	for _, session := range []string{"busy", "full"} { // the limits below include the start of a shell
		s.act("run", map[string]any{"command": "true", "session": session})
	}
	s.act("run", map[string]any{"command": "X=6; echo begins; while [ ! -e " + s.work + "/go ]; do sleep 0.01; done; echo $X ends", "timeout": 0.2, "session": "busy"})
	s.act("run", map[string]any{"command": "printf '\\033[?1049h\\033[3;5Hfull'; read x; printf '\\033[?1049lleft'", "timeout": 0.5, "session": "full"})

	// Without a program the signal does nothing.
	if err := s.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	s.want("version", s.version(), "v1")

	// A request that changes something is waited for, and named.
	end := s.put("whole")
	status, _, answer := s.upgrade(two, "wait=0")
	if status != http.StatusConflict || !strings.Contains(answer, "the request PUT /v1/files") {
		t.Fatalf("while a file comes: got %d %s", status, answer)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	s.want("version", s.version(), "v1")
	s.want("the shell", s.run("echo $X $$"), "42 "+shell)

	// The program of that request is there.
	if err := s.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); s.version() != "v2"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the signal did not upgrade: %s", &s.log)
		}
	}
	s.want("the shell", s.run("echo $? $X $PWD $$; f; kill -0 $! && echo lives"), "0 42 /tmp "+shell+"\nf\nlives")
	s.run("(exit 7)")
	c, err := client.New(client.Config{BaseURL: "unix://" + filepath.Join(s.dir, "s"), Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	terminal, err := c.Terminal(t.Context(), "full", true) // which is not waited for
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	status, u, answer := s.upgrade(one, "")
	if status != 200 || u.Version != "v1" || u.Previous != "v2" || u.Sessions != 3 || len(u.Ended) > 0 || len(u.Unknown) > 0 {
		t.Fatalf("got %d %s", status, answer)
	}
	if err := contract.NewSpec(t).CheckResponse("POST", "/v1/upgrade", status, "application/json", []byte(answer)); err != nil {
		t.Error(err)
	}
	s.want("$?", s.run("echo $? $$"), "7 "+shell)
	s.want("a repeated action", s.run("X=42; f() { echo f; }; cd /tmp; sleep 1000 & echo $$", "Idempotency-Key", "first"), first)
	_, events := s.do("GET", "/v1/actions/first/events?after=1", nil)
	if strings.Contains(events, `"seq":1,`) || !strings.Contains(events, `"seq":2`) || !strings.Contains(events, "observation") {
		t.Errorf("followed behind the first event: %s", events)
	}
	write(t, filepath.Join(s.work, "go"), nil)
	s.want("a command that ran", s.act("run", map[string]any{"command": "", "session": "busy", "timeout": 60}), "6 ends")
	if got := s.act("run", map[string]any{"command": "", "session": "full", "timeout": 0.2}); !strings.Contains(got, "    full") {
		t.Errorf("the full-screen program shows %q", got)
	}
	s.want("the program", s.act("run", map[string]any{"command": "y", "is_input": true, "session": "full", "timeout": 60}), "left")

	// Force makes what runs unknown, or ends it, and says so.
	end = s.put("cut")
	s.act("run", map[string]any{"command": "sleep 1000", "is_static": true}, "Idempotency-Key", "unknown", "Prefer", "respond-async") // in a shell of its own
	waitUntil(t, func() bool {
		_, record := s.do("GET", "/v1/actions/unknown", nil)
		return strings.Contains(record, `"state":"running"`)
	})
	status, u, answer = s.upgrade(two, "wait=0&force=true")
	if status != 200 || u.Version != "v2" || fmt.Sprint(u.Unknown) != "[unknown]" || !strings.Contains(fmt.Sprint(u.Ended), "the request PUT /v1/files") {
		t.Fatalf("by force: got %d %s", status, answer)
	}
	if err := end(); err == nil {
		t.Error("the file that came was answered")
	}
	if left := entries(t, s.work); fmt.Sprint(left) != "[go whole]" {
		t.Errorf("the working directory has %q", left)
	}
	if _, metrics := s.do("GET", "/metrics", nil); !strings.Contains(metrics, `actiond_upgrades_total{result="done"} 3`+"\n") || strings.Contains(metrics, `actiond_upgrades_total{result="refused"} 0`+"\n") {
		t.Error("the upgrades are not counted")
	}
	_, answer = s.do("GET", "/v1/actions/unknown", nil)
	if !strings.Contains(answer, `"state":"unknown"`) {
		t.Errorf("the action is %s", answer)
	}
	// The end of a shell is seen by the program that did not start it.
	if got := s.run("kill $!; exit 5"); !strings.HasSuffix(got, "exit") {
		t.Errorf("exit: got %q", got)
	}
	s.want("the next shell", s.run("echo $PWD"), "/tmp")
	if left := entries(t, s.state); strings.Contains(fmt.Sprint(left), "server") {
		t.Errorf("the state directory has %q", left)
	}
	if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid)); err != nil || !strings.HasPrefix(string(got), strconv.Itoa(s.cmd.Process.Pid)) {
		t.Errorf("the process: %q, %v", got, err)
	}
}

// A program that is wrong leaves the server as it was, at whichever step that shows.
func TestUpgradeRefused(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	s := startUpgradable(t, buildServer(t), []string{"SESSION_API_KEY=k"}, user...)
	fake, err := os.ReadFile(build(t, "fake", "", "./testdata/fake"))
	if err != nil {
		t.Fatal(err)
	}
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
		{"torn", fake[:len(fake)/2], 422, "This server goes on as it was"},
		{"another machine", machine, 422, "EM_RISCV"},
		{"hangs", mode("hangs"), 422, "did not answer"},
		{"fails", mode("fails"), 422, "a sentence"},
		{"is another program", mode("talks"), 422, "hello"},
		{"refuses the state", mode("refuses"), 422, "too new for me"},
		{"cannot be executed at last", mode("locks"), 500, "could not be executed"},
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

// A state of a format that is too old or too new is refused by its number, also where the rest
// cannot be read: format 1 has names in UTF-8. One of format 2 has no actions.
func TestTakeOverFormat(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		`{"Format":1,"Previous":"\u4e2d"}`:        "format 1, and this server goes on with 2 to 3",
		`{"Format":4,"More":{}}`:                  "format 4, and this server goes on with 2 to 3",
		`{"Format":2}`:                            "sessions is missing",
		`{"Format":3,"Previous":"\u4e2d"}`:        "U+4E2D",
		`{"Format":2,"Executor":{"Sessions":{}}}`: "",
		`{"Format":3,"Executor":{},"Server":{"Actions":[{"ID":"a","Request":"e30="}]}}`: "action \"a\"",
		`{}`: "format 0",
	} {
		file, err := handover.Write(json.RawMessage(state))
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := takeOver([]string{handover.Command, handover.Check, strconv.Itoa(fd)}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", state, err, want)
		}
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
	// The words are for the server, and a document for what wrote it.
	for _, args := range [][]string{{"upgrade", "check", "0"}, {"upgrade", "resume", "99"}, {"upgrade", "other", "3"}} {
		if err := run(t.Context(), args, nil, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
