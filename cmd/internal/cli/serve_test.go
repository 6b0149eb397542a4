package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

func TestServeUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"serve --warm 2":                    "--warm needs an image",
		"serve --warm -1 debian":            "must not be negative",
		"serve --metrics-addr 8701":         "--metrics-addr \"8701\": must be HOST:PORT",
		"serve --key-file a --key-secret b": "none of the others can be",
		"serve --max-sandboxes -1":          "must not be negative",
		"serve --name x debian":             "--name is for one sandbox",
		"serve --key x debian":              "--key is for one sandbox",
		"serve a b":                         "",
		"serve --addr 8700":                 "must be HOST:PORT or unix:PATH",
		"serve --addr unix:":                "must be HOST:PORT or unix:PATH",
		"serve --on=local debian":           "there are no images with --on local: leave debian out",
		"serve --on=local --warm 2":         "--warm needs an engine: leave it out with --on local",
		"serve --on=local --memory 1g":      "--memory cannot be honoured without an engine",
	} {
		code, stdout, stderr := inProcess(t.Context(), nil, strings.Fields(args)...)
		if code != command.ExitUsage || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: exit code %d, %q, %q, want %d and %q", args, code, stdout, stderr, command.ExitUsage, want)
		}
	}
}

// unlisted is a platform that cannot be asked.
type unlisted struct {
	sandbox.Driver
	err error
}

func (u unlisted) List(context.Context) ([]*sandbox.Sandbox, error) { return nil, u.err }

// A gateway waits for an engine that is down, and ends where it would never be let in.
func TestServeWithoutEngine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		code int
	}{
		"down":      {&sandbox.UnreachableError{Platform: "the engine", Err: syscall.ECONNREFUSED}, 0},
		"no rights": {&sandbox.UnreachableError{Platform: "the engine", Err: syscall.EACCES}, command.ExitAuth},
	} {
		var said strings.Builder
		p := newProgram(output.Streams{Stderr: &said, Stdout: io.Discard})
		_, err := p.warmPool(t.Context(), unlisted{err: tt.err}, sandbox.Spec{}, serveFlags{}, nil)
		if code := command.ExitCode(err); code != tt.code || strings.Contains(said.String(), "until it is back") != (tt.code == 0) {
			t.Errorf("%s: got %v, exit code %d, %q", name, err, code, said.String())
		}
	}
}

// A setting that no sandbox can have is refused at the start, and not with each creation.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := inProcess(t.Context(), nil, "serve", "--addr", "127.0.0.1:0", "--state-dir", t.TempDir(),
		"--server", filepath.Join(programs(t), "server"), "--network", "host")
	if code != command.ExitUsage || stdout != "" || !strings.Contains(stderr, "network host") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// servedHere is a gateway that runs in this process.
type servedHere struct {
	t       *testing.T
	address string // the first line of its output
	key     string
	client  *http.Client
	stop    func() // ends standard input, and waits
	said    string // all of standard error, after stop
}

func serveLocal(t *testing.T, m localMachine, args ...string) *servedHere {
	t.Helper()
	return serveHere(t, m.dir, nil, append([]string{"--on=local"}, args...)...)
}

// serveHere is a gateway with a state directory and variables.
func serveHere(t *testing.T, dir string, env map[string]string, args ...string) *servedHere {
	t.Helper()
	stdin, parent := io.Pipe()
	out, stdout := io.Pipe()
	var said strings.Builder
	p := newProgram(output.Streams{Stdin: stdin, Stdout: stdout, Stderr: &said, Getenv: func(name string) string { return env[name] }})
	ended := make(chan int, 1)
	go func() {
		code := p.run(context.WithoutCancel(t.Context()), append([]string{
			"serve", "--state-dir", dir, "--server", filepath.Join(programs(t), "server"), "--until-eof",
		}, args...))
		_ = stdout.Close() // never fails
		ended <- code
	}()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("no address: exit code %d, %s", <-ended, said.String())
	}
	s := &servedHere{t: t, address: strings.TrimSuffix(first, "\n")}
	s.stop = sync.OnceFunc(func() {
		_ = parent.Close() // never fails
		more, _ := io.ReadAll(lines)
		if code := <-ended; code != 0 || len(more) > 0 {
			t.Errorf("exit code %d, more output %q: %s", code, more, said.String())
		}
		s.said = said.String()
	})
	t.Cleanup(s.stop)
	key := testhelp.ReadFile(t, filepath.Join(dir, keyFileName))
	s.key = strings.TrimSpace(string(key))
	s.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if path, isSocket := strings.CutPrefix(s.address, "unix://"); isSocket {
				network, address = "unix", path
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}
	return s
}

// ask makes a request with the gateway's key.
func (s *servedHere) ask(method, path, body string) (status int, answer string) {
	s.t.Helper()
	base := s.address
	if strings.HasPrefix(base, "unix:") {
		base = "http://localhost"
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set(api.GatewayKeyHeader, s.key)
	r.Header.Set("Content-Type", "application/json")
	w, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Body.Close()
	data, err := io.ReadAll(w.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return w.StatusCode, string(data)
}

// make makes a sandbox, and returns what the gateway says of it.
func (s *servedHere) make(body string) (made api.Sandbox) {
	s.t.Helper()
	status, answer := s.ask("POST", "/v1/sandboxes", body)
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status != http.StatusCreated {
		s.t.Fatalf("got %d %s, %v", status, answer, err)
	}
	return made
}

// A program has sandboxes on this machine for as long as it lives: over a socket that is its
// user's alone, and what it made goes with it, and nothing else.
func TestServeLocal(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	stays := strings.TrimSpace(m.ok("create", "--name", "stays"))
	socket := filepath.Join(m.dir, "gateway.sock")
	s := serveLocal(t, m, "--addr", "unix:"+socket, "--remove")
	if s.address != "unix://"+socket {
		t.Errorf("got %q", s.address)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	made := s.make(`{}`)
	if made.Deadline == nil || made.Deadline.Sub(made.Created) > removedTTL {
		t.Errorf("ends at %v, want an hour after %v at most", made.Deadline, made.Created)
	}
	if made := s.make(`{"ttl_seconds": 7200}`); made.Deadline == nil || made.Deadline.Sub(made.Created) < removedTTL {
		t.Errorf("ends at %v, want two hours after %v", made.Deadline, made.Created)
	}
	work := filepath.Join(shortDir(t), "work")
	in := s.make(`{"working_dir": "` + work + `", "env": {"A": "b"}}`)
	status, answer := s.ask("POST", "/sandboxes/"+in.ID+"/execute_action", `{"action": {"action": "run", "args": {"command": "pwd; echo $A > file"}}}`)
	if status != 200 || !strings.Contains(answer, work) {
		t.Errorf("got %d %s, want %s", status, answer, work)
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/sandboxes/" + in.ID + "/health", "", 200, `{"status":"ok"}`},
		{"POST", "/sandboxes/" + in.ID + "/api/execution/tools", `{"tool_name": "terminal", "action": {"command": "cat file"}}`, 200, `"text":"b"}],"is_error":false`},
		{"POST", "/sandboxes/" + in.ID + "/api/execution/tools", `{"tool_name": "task_tracker", "action": {}}`, 422, `{"detail":"tool_name`},
		{"POST", "/v1/sandboxes", `{"image": "debian"}`, 422, "the driver of local processes cannot honour an image; leave that out"},
		{"POST", "/v1/sandboxes", `{"disk": 1000000000}`, 422, "cannot honour a disk limit"},
		{"POST", "/v1/sandboxes", `{"memory": 1000000000, "network": "none"}`, 422, "cannot honour a memory limit, a network"},
		{"POST", "/v1/sandboxes", `{"read_only": true, "user": "root"}`, 422, "cannot honour another user, read-only files"},
		{"POST", "/v1/sandboxes", `{"working_dir": "here"}`, 422, "must be an absolute path"},
		{"POST", "/v1/sandboxes", `{"working_dir": "` + work + `/file"}`, 422, "not a directory"},
		{"POST", "/v1/sandboxes/" + in.ID + "/pause", "", 409, "the driver of local processes cannot pause sandboxes"},
		{"GET", "/image_exists?image=debian", "", 404, "runtime_container_image"},
		{"POST", "/start", `{"image": "debian", "session_id": "s"}`, 422, "cannot honour an image"},
	} {
		if status, answer := s.ask(tt.method, tt.path, tt.body); status != tt.status || !strings.Contains(answer, tt.want) {
			t.Errorf("%s %s %s: got %d %s, want %d %q", tt.method, tt.path, tt.body, status, answer, tt.status, tt.want)
		}
	}
	s.stop()
	if left := m.ok("ls", "-q"); left != stays+"\n" {
		t.Errorf("left: %q, want %s", left, stays)
	}
	if !strings.HasPrefix(s.said, localWarning) || strings.Contains(s.said, s.key) {
		t.Errorf("said %s", s.said)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(work, "file")); string(data) != "b\n" {
		t.Errorf("the file in the working directory: %q, %v", data, err)
	}
}

// Without --remove sandboxes stay, and have no end of their own.
func TestServeLocalStays(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	s := serveLocal(t, m, "--addr", "127.0.0.1:0")
	if !strings.HasPrefix(s.address, "http://127.0.0.1:") {
		t.Errorf("got %q", s.address)
	}
	made := s.make(`{"name": "box"}`)
	if made.Deadline != nil {
		t.Errorf("ends at %v", made.Deadline)
	}
	s.stop()
	if left := m.ok("ls", "-q"); left != made.ID+"\n" {
		t.Errorf("left: %q, want %s", left, made.ID)
	}
}

// A path that leaves no room for sockets is refused at the start, and one that is no server's is
// not replaced.
func TestServeLocalRefuses(t *testing.T) {
	t.Parallel()
	server := filepath.Join(programs(t), "server")
	long := filepath.Join(shortDir(t), strings.Repeat("d", 100))
	code, stdout, stderr := inProcess(t.Context(), nil, "serve", "--on=local", "--server", server, "--state-dir", long)
	if code != command.ExitUsage || stdout != "" || !strings.Contains(stderr, "choose a shorter one with --state-dir") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	file := filepath.Join(shortDir(t), "file")
	testhelp.WriteFile(t, file, "mine", 0o600)
	code, stdout, stderr = inProcess(t.Context(), nil, "serve", "--on=local", "--server", server, "--state-dir", shortDir(t), "--addr", "unix:"+file)
	if data, err := os.ReadFile(file); code == 0 || stdout != "" || string(data) != "mine" {
		t.Errorf("exit code %d, %q, %q; the file: %q, %v", code, stdout, stderr, data, err)
	}
	code, stdout, stderr = inProcess(t.Context(), nil, "serve", "--on=local", "--server", file, "--state-dir", shortDir(t))
	if code == 0 || stdout != "" || !strings.Contains(stderr, "there is no server to start") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// The key is made once, is readable for no other user, and is not printed.
func TestGatewayKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var said strings.Builder
	p := newProgram(output.Streams{Stderr: &said, Stdout: io.Discard})
	first, err := p.gatewayKey("", dir)
	if err != nil || len(first) < minKey {
		t.Fatalf("got %d characters, %v", len(first), err)
	}
	again, err := p.gatewayKey("", dir)
	if err != nil || again != first {
		t.Errorf("the second time: another key, %v", err)
	}
	if strings.Contains(said.String(), first) || !strings.Contains(said.String(), filepath.Join(dir, keyFileName)) {
		t.Errorf("said %q, want where the key is, and not the key", said.String())
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("got %v, %v, want one file", files, err)
	}
	file := filepath.Join(dir, "mine")
	for name, bad := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"readable": {first, 0o640, "chmod 600"},
		"short":    {"secret", 0o600, "at least 32"},
		"empty":    {"\n", 0o600, "at least 32"},
		"two":      {first + "\n" + first, 0o600, "one line"},
	} {
		testhelp.WriteFile(t, file, bad.text, bad.mode)
		if err := os.Chmod(file, bad.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := p.gatewayKey(file, dir); err == nil || !strings.Contains(err.Error(), bad.want) || strings.Contains(err.Error(), first) {
			t.Errorf("%s: got %v, want %q", name, err, bad.want)
		}
	}
	file = filepath.Join(dir, "good")
	testhelp.WriteFile(t, file, strings.Repeat("k", minKey)+"\n", 0o600)
	if key, err := p.gatewayKey(file, dir); err != nil || key != strings.Repeat("k", minKey) {
		t.Errorf("got %q, %v", key, err)
	}
	if _, err := p.gatewayKey(filepath.Join(dir, "none"), dir); err == nil {
		t.Error("a file that is not there is taken")
	}
}
