package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

// replacedVariable makes the test program say as what it was started.
const replacedVariable = "ACTIOND_TEST_REPLACED"

// replaced is what a program that replaced another has of it.
type replaced struct {
	PID    int
	Args   []string
	Caller string
	Stdin  string
}

func sayReplaced() {
	stdin, _ := io.ReadAll(os.Stdin)
	if err := json.NewEncoder(os.Stdout).Encode(replaced{os.Getpid(), os.Args, os.Getenv(platform.CallerVariable), string(stdin)}); err != nil {
		log.Fatal(err)
	}
}

// Runtimectl replaces itself by runtimectl-kubernetes where that is wanted, and takes it
// from no directory that depends on the current one.
func TestReplacedOnKubernetes(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	// put makes a directory with runtimectl-kubernetes, which is this test program.
	put := func(name string) string {
		dir := filepath.Join(root, name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(self, filepath.Join(dir, "runtimectl-kubernetes"))); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	beside, path, current := put("beside"), put("path"), put("current")
	put("current/relative")
	alone := filepath.Join(root, "alone")
	notProgram := filepath.Join(root, "file")
	if err := errors.Join(os.Mkdir(alone, 0o700), os.Mkdir(notProgram, 0o700), os.Mkdir(filepath.Join(notProgram, "runtimectl-kubernetes"), 0o700),
		os.Link(filepath.Join(programs(t), "runtimectl"), filepath.Join(beside, "runtimectl")),
		os.Link(filepath.Join(programs(t), "runtimectl"), filepath.Join(alone, "runtimectl"))); err != nil {
		t.Fatal(err)
	}
	missing := "runtimectl: --on kubernetes needs the program runtimectl-kubernetes, which is neither in " + alone +
		" nor in PATH: it is in the release beside runtimectl, and 'make build-kubernetes' builds it\n"
	for _, tt := range []struct {
		name, dir, path, on, args string
		program                   string // that runs, none if empty
		out                       string // begins so if none does
		code                      int
	}{
		{name: "beside", dir: beside, path: path, args: "ls --on kubernetes", program: beside},
		{name: "in PATH", dir: alone, path: notProgram + ":" + path, args: "--on kubernetes:prod/agents exec box -- sh -c ls", program: path},
		{name: "by the variable", dir: alone, path: path, on: "kubernetes", args: "act box --file -", program: path},
		{name: "completion", dir: alone, path: path, on: "kubernetes:x", args: "__complete exec b", program: path},
		{name: "missing", dir: alone, path: notProgram, args: "ls --on kubernetes", out: missing, code: 1},
		{name: "missing for a command", dir: alone, args: "exec --on kubernetes box -- ls", out: missing, code: 125},
		{name: "empty entries", dir: alone, path: ":" + notProgram + "::", args: "ls --on kubernetes", out: missing, code: 1},
		{name: "relative entries", dir: alone, path: ".:relative:./relative:../current", args: "ls --on kubernetes", out: missing, code: 1},
		{name: "doctor reports it", dir: alone, args: "doctor --on kubernetes", out: "missing   host   --on kubernetes needs", code: 1},
		{name: "no completion without it", dir: alone, args: "__complete exec --on kubernetes b", out: ":4\n"},
		{name: "version", dir: alone, path: path, on: "kubernetes", args: "version", out: "actiond runtimectl "},
		{name: "manifests", dir: alone, path: path, on: "kubernetes", args: "manifests", out: "# The namespace"},
		{name: "a mistake", dir: beside, args: "ls --on kubernetes --state-dir x", out: "runtimectl: --state-dir cannot be honoured on Kubernetes", code: 2},
		{name: "another platform", dir: beside, on: "kubernetes", args: "ls --on local --state-dir state", out: "SANDBOX"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), filepath.Join(tt.dir, "runtimectl"), strings.Fields(tt.args)...)
			cmd.Dir = current
			cmd.Env = []string{"PATH=" + tt.path, "HOME=" + root, "ACTIOND_ON=" + tt.on, replacedVariable + "=yes", "PWD=" + current}
			cmd.Stdin = strings.NewReader("input")
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if tt.program == "" {
				if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.HasPrefix(stdout.String()+stderr.String(), tt.out) {
					t.Errorf("exit code %d, %q, %q\nwant %d, %q", code, &stdout, &stderr, tt.code, tt.out)
				}
				return
			}
			var got replaced
			if err := errors.Join(err, json.Unmarshal(stdout.Bytes(), &got)); err != nil {
				t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
			}
			want := replaced{cmd.Process.Pid, append([]string{filepath.Join(tt.program, "runtimectl-kubernetes")}, strings.Fields(tt.args)...), got.Caller, "input"}
			if got.Caller == "" || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v\nwant %+v, with a version", got, want)
			}
		})
	}
}

// Only the same version takes the place of a runtimectl, and a program without the
// driver does not look for another one.
func TestReplacedVersion(t *testing.T) {
	t.Parallel()
	opened := errors.New("the driver is opened")
	open := func(platform.Cluster) (sandbox.Driver, error) { return nil, opened }
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, caller string
		open         platform.OpenCluster
		want         string
	}{
		{"the same", "v1.2.3", open, opened.Error()},
		{"started by hand", "", open, opened.Error()},
		{"another", "v1.2.4", open, "runtimectl-kubernetes " + self + " is version v1.2.3, and the runtimectl that started it is version v1.2.4: install the same version of both"},
		{"without the driver", "v1.2.3", nil, "this program does not have the driver of Kubernetes: runtimectl-kubernetes has it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			p := newProgram(output.Streams{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &stderr, Getenv: func(string) string { return "" }})
			p.Version, p.Caller, p.OpenCluster = "v1.2.3", tt.caller, tt.open
			p.Become = func(program string, _ ...string) error { return fmt.Errorf("%s is started", program) }
			if code := p.run(t.Context(), []string{"ls", "--on", "kubernetes"}); code != 1 || stderr.String() != "runtimectl: "+tt.want+"\n" {
				t.Errorf("exit code %d, %q\nwant 1, %q", code, &stderr, tt.want)
			}
		})
	}
}
