package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/sandbox"
)

func TestServeUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"serve --warm 2":                        "--warm needs an image",
		"serve --warm -1 debian":                "must not be negative",
		"serve --metrics-addr 8701":             "--metrics-addr \"8701\": must be HOST:PORT",
		"serve --key-file a --key-secret b":     "none of the others can be",
		"serve --max-sandboxes -1":              "must not be negative",
		"serve --name x debian":                 "--name is for one sandbox",
		"serve --key x debian":                  "--key is for one sandbox",
		"serve a b":                             "",
		"serve --on=local --state-dir /nowhere": "needs an engine",
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

// What no sandbox can have is refused at the start, and not with each creation.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := inProcess(t.Context(), nil, "serve", "--addr", "127.0.0.1:0", "--state-dir", t.TempDir(),
		"--server", filepath.Join(programs(t), "server"), "--network", "host")
	if code != command.ExitUsage || stdout != "" || !strings.Contains(stderr, "network host") {
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
		if err := os.WriteFile(file, []byte(bad.text), bad.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, bad.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := p.gatewayKey(file, dir); err == nil || !strings.Contains(err.Error(), bad.want) || strings.Contains(err.Error(), first) {
			t.Errorf("%s: got %v, want %q", name, err, bad.want)
		}
	}
	file = filepath.Join(dir, "good")
	if err := os.WriteFile(file, []byte(strings.Repeat("k", minKey)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := p.gatewayKey(file, dir); err != nil || key != strings.Repeat("k", minKey) {
		t.Errorf("got %q, %v", key, err)
	}
	if _, err := p.gatewayKey(filepath.Join(dir, "none"), dir); err == nil {
		t.Error("a file that is not there is taken")
	}
}
