package cli

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox/drivertest"
)

// built is where programs put what it built, "" until a test needs it.
var built string

// TestMain keeps temporary directories near the root: tests put sockets there,
// and the kernel takes no longer paths than 107 bytes for those. Started as an MCP
// server, the test binary is one.
func TestMain(m *testing.M) {
	if mode := os.Getenv(mcpServerVariable); mode != "" {
		os.Exit(serveMCP(mode))
	}
	if file := os.Getenv(listenVariable); file != "" {
		listenInstead(file)
		return
	}
	if os.Getenv(replacedVariable) != "" {
		sayReplaced()
		return
	}
	if len(os.TempDir()) > 20 {
		os.Setenv("TMPDIR", "/tmp")
	}
	removeHome, err := drivertest.EmptyHome()
	if err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	removeHome()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// programs builds both programs, as make build does, and returns their
// directory.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// It is built once, for all tests, and not at all for a fuzzer's workers.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "runtimectl-test-")
	if err != nil {
		return "", err
	}
	built = dir
	return dir, testhelp.Build(context.Background(), dir+"/", "../../server", "../../runtimectl")
})

// inProcess runs a command line without a process of its own.
func inProcess(ctx context.Context, env map[string]string, args ...string) (code int, stdout, stderr string) {
	return inProcessWith(ctx, nil, env, args...)
}

// inProcessWith does so in a program with a driver of Kubernetes.
func inProcessWith(ctx context.Context, open platform.OpenCluster, env map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	p := newProgram(output.Streams{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(name string) string { return env[name] }})
	p.OpenCluster = open
	code = p.run(ctx, args)
	return code, out.String(), errs.String()
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	const (
		noFiles = "Completion ended with directive: ShellCompDirectiveNoFileComp\n"
		files   = "Completion ended with directive: ShellCompDirectiveDefault\n"
	)
	tests := []struct {
		args   string
		code   int
		stdout string // is part of it
		stderr string // is all of it
	}{
		{args: "", stdout: "Look at sandboxes:"},
		{args: "--help", stdout: "Look at sandboxes:"},
		{args: "help demo", stdout: "--keep"},
		{args: "version", stdout: "actiond runtimectl "},
		{args: "--version", stdout: "actiond runtimectl "},
		{args: "completion bash", stdout: "bash completion"},
		{args: "__complete ls --output j", stdout: "json\nyaml\n:4\n", stderr: noFiles},
		{args: "__complete exec --timeout ", stdout: ":4\n", stderr: noFiles},
		{args: "__complete create --name box --memory ", stdout: ":4\n", stderr: noFiles},
		{args: "__complete create --env-file ", stdout: ":0\n", stderr: files},
		{args: "__complete act box --file ", stdout: ":0\n", stderr: files},
		{args: "__complete create --volume ", stdout: ":0\n", stderr: files},
		{args: "__complete create --state-dir ", stdout: ":16\n", stderr: "Completion ended with directive: ShellCompDirectiveFilterDirs\n"},
		{args: "__complete tool call box str", stdout: "str_replace_editor\tView", stderr: noFiles},
		{args: "__complete tool call -d anthropic box ", stdout: "bash\tRun", stderr: noFiles},
		{
			args: "demoo", code: 2,
			stderr: "runtimectl: there is no command \"demoo\"; did you mean demo?\nRun 'runtimectl --help' for usage.\n",
		},
		{
			args: "toi", code: 2, // short words are like few others
			stderr: "runtimectl: there is no command \"toi\"\nRun 'runtimectl --help' for usage.\n",
		},
		{
			args: "tag a b", code: 2,
			stderr: "runtimectl: there is no command \"tag\": images are the engine's: 'docker tag'; 'runtimectl image --tag' names the one it builds\n" +
				"Run 'runtimectl --help' for usage.\n",
		},
		{
			args: "login a", code: 2,
			stderr: "runtimectl: there is no command \"login\": it has no accounts; 'docker login' is for the engine's registries\nRun 'runtimectl --help' for usage.\n",
		},
		{
			args: "cp -r -a x y", code: 2, // as without the flags
			stderr: "runtimectl: neither \"x\" nor \"y\" is in a sandbox: write SANDBOX:PATH\nRun 'runtimectl cp --help' for usage.\n",
		},
		{
			args: "completion tcsh", code: 2,
			stderr: "runtimectl: there is no command \"tcsh\"; did you mean bash or zsh or fish?\nRun 'runtimectl completion --help' for usage.\n",
		},
		{
			args: "help exce", code: 2,
			stderr: "runtimectl: there is no command \"exce\"; did you mean exec?\nRun 'runtimectl help --help' for usage.\n",
		},
		{args: "help tool call", stdout: "--session"},
		{
			args: "exce --state-dir /tmp box -- ls", code: 2,
			stderr: "runtimectl: there is no command \"exce\"; did you mean exec?\nRun 'runtimectl --help' for usage.\n",
		},
		{
			args: "tool lst --on=local box", code: 2,
			stderr: "runtimectl: there is no command \"lst\"; did you mean ls?\nRun 'runtimectl tool --help' for usage.\n",
		},
		{
			args: "--nope", code: 2,
			stderr: "runtimectl: unknown flag: --nope\nRun 'runtimectl --help' for usage.\n",
		},
		{
			args: "create --memroy 1g debian", code: 2,
			stderr: "runtimectl: unknown flag: --memroy; did you mean --memory?\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "run -d debian sleep 9", code: 125,
			stderr: "runtimectl: unknown shorthand flag: 'd' in -d: 'runtimectl create' makes a sandbox that stays\nRun 'runtimectl run --help' for usage.\n",
		},
		{
			args: "run --publish 80:80 debian", code: 125,
			stderr: "runtimectl: unknown flag: --publish: 'runtimectl port-forward' reaches a port of a sandbox\nRun 'runtimectl run --help' for usage.\n",
		},
		{
			args: "create -p 80:80 debian", code: 2,
			stderr: "runtimectl: unknown shorthand flag: 'p' in -p: 'runtimectl port-forward' reaches a port of a sandbox\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "serve --addr nope", code: 2,
			stderr: "runtimectl: --addr \"nope\": must be HOST:PORT or unix:PATH\nRun 'runtimectl serve --help' for usage.\n",
		},
		{args: "--on docker version", stdout: "actiond runtimectl "},
		{args: "--on=local version", stdout: "actiond runtimectl "},
		{
			args: "--on moon ls", code: 2,
			stderr: "runtimectl: --on \"moon\": must be docker, kubernetes, kubernetes:CONTEXT, kubernetes:CONTEXT/NAMESPACE or local\nRun 'runtimectl ls --help' for usage.\n",
		},
		{
			args: "create --on kubernetes:prod --pids-limit 99 debian", code: 2,
			stderr: "runtimectl: --pids-limit cannot be honoured on Kubernetes: leave it out with --on kubernetes:prod\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "create --on docker --server-image x debian", code: 2,
			stderr: "runtimectl: --server-image is for sandboxes on Kubernetes: leave it out, or use --on kubernetes\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "run --toleration gpu debian -- true", code: 125,
			stderr: "runtimectl: --toleration is for sandboxes on Kubernetes: leave it out, or use --on kubernetes\nRun 'runtimectl run --help' for usage.\n",
		},
		{
			args: "create --on=local --node-selector disk=ssd", code: 2,
			stderr: "runtimectl: --node-selector is for sandboxes on Kubernetes: leave it out, or use --on kubernetes\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "serve --on kubernetes --pool warm debian", code: 2,
			stderr: "runtimectl: --pool names the sandboxes that are kept ready: give it a size with --warm\nRun 'runtimectl serve --help' for usage.\n",
		},
		{
			args: "delete box", code: 2,
			stderr: "runtimectl: there is no command \"delete\": use 'runtimectl rm'\nRun 'runtimectl --help' for usage.\n",
		},
		{
			args: "create --gpus 0,1 debian", code: 2,
			stderr: "runtimectl: --gpus: invalid specification: GPUs \"0\": must be all, a number of at least 1, or device= and UUIDs as 'nvidia-smi -L' lists them, or names such as nvidia.com/gpu=0\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "action output --grep ( box a", code: 2,
			stderr: "runtimectl: --grep \"(\": missing closing )\nRun 'runtimectl action output --help' for usage.\n",
		},
		{
			args: "sh box", code: 2,
			stderr: "runtimectl: sh is for a terminal: without one, use exec\nRun 'runtimectl sh --help' for usage.\n",
		},
		{
			args: "--state-dir /tmp lss", code: 2,
			stderr: "runtimectl: there is no command \"lss\"; did you mean ls?\nRun 'runtimectl --help' for usage.\n",
		},
		{
			args: "--state-dir /tmp top", code: 2,
			stderr: "runtimectl: there is no command \"top\": what sandboxes use is in 'runtimectl stats'; for their processes, 'runtimectl exec SANDBOX -- ps aux'\nRun 'runtimectl --help' for usage.\n",
		},
		{args: "--state-dir /tmp version", stdout: "actiond runtimectl "},
		{args: "--state-dir /tmp help exec", stdout: "runtimectl exec [flags]"},
		{args: "--state-dir /tmp completion bash", stdout: "bash completion"},
		{
			args: "create --ttl 5 debian", code: 2,
			stderr: "runtimectl: invalid argument \"5\" for \"--ttl\" flag: \"5\" is not a duration: write 90s, 2h or 7d\nRun 'runtimectl create --help' for usage.\n",
		},
		{args: "create --on kubernetes --help", stdout: "--toleration TAINT"},
		{args: "help --on=kubernetes:prod create", stdout: "--toleration TAINT"},
		{args: "__complete create --on kubernetes --tol", stdout: "--toleration\ton Kubernetes", stderr: noFiles},
		{
			args: "create --on=local --allow-root debian", code: 2,
			stderr: "runtimectl: --allow-root cannot be honoured without an engine: leave it out with --on local\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "exec --user root --session s box id", code: 125,
			stderr: "runtimectl: --user: a persistent shell keeps the user of its sandbox: leave --session out\nRun 'runtimectl exec --help' for usage.\n",
		},
		{
			args: "--on local pause box", code: 2,
			stderr: "runtimectl: this needs an engine, and --on local does without one\n",
		},
		{
			args: "images", code: 2,
			stderr: "runtimectl: there is no command \"images\": images are the engine's: 'docker images'; 'runtimectl image' builds one\nRun 'runtimectl --help' for usage.\n",
		},
		{
			args: "rm -f", code: 2,
			stderr: "runtimectl: an argument is missing: runtimectl rm SANDBOX... [flags]\nRun 'runtimectl rm --help' for usage.\n",
		},
		{args: "attach --help", stdout: "Sh attaches your terminal"},
		{args: "kill --help", stdout: "without giving it time"},
		{args: "port --help", stdout: "Ports lists the TCP ports"},
		{
			args: "version now", code: 2,
			stderr: "runtimectl: unexpected argument \"now\": there are only flags\nRun 'runtimectl version --help' for usage.\n",
		},
		{
			args: "demo --nope", code: 2,
			stderr: "runtimectl: unknown flag: --nope\nRun 'runtimectl demo --help' for usage.\n",
		},
		{
			args: "ls -o xml", code: 2,
			stderr: "runtimectl: invalid argument \"xml\" for \"-o, --output\" flag: must be table or json or yaml\nRun 'runtimectl ls --help' for usage.\n",
		},
		{
			args: "create", code: 2,
			stderr: "runtimectl: an image is missing\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "create --memory lots debian", code: 2,
			stderr: "runtimectl: --memory: \"lots\" is not a number of bytes: write 512m or 2g\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "create --on=local --memory 1g", code: 2,
			stderr: "runtimectl: --memory cannot be honoured without an engine: leave it out with --on local\nRun 'runtimectl create --help' for usage.\n",
		},
		{
			args: "create --server /no/such/program debian", code: 1,
			stderr: "runtimectl: there is no server to start: stat /no/such/program: no such file or directory; --server wants a program\n",
		},
		{
			args: "run debian --", code: 125,
			stderr: "runtimectl: the command to run is missing: runtimectl run [flags] IMAGE -- COMMAND [ARGUMENT...]\nRun 'runtimectl run --help' for usage.\n",
		},
		{
			args: "exec --nope box -- ls", code: 125,
			stderr: "runtimectl: unknown flag: --nope\nRun 'runtimectl exec --help' for usage.\n",
		},
		{
			args: "exec -e 1=2 box -- ls", code: 125,
			stderr: "runtimectl: --env: \"1\" is not the name of a variable\nRun 'runtimectl exec --help' for usage.\n",
		},
		{
			args: "exec box -w /src -- ls", code: 125,
			stderr: "runtimectl: flag -w must come before \"box\": runtimectl exec [flags] SANDBOX -- COMMAND [ARGUMENT...]\nRun 'runtimectl exec --help' for usage.\n",
		},
		{
			args: "pool --owner me debian", code: 2,
			stderr: "runtimectl: --owner is for one sandbox, and pool makes many\nRun 'runtimectl pool --help' for usage.\n",
		},
		{
			args: "exec --timeout -1s box true", code: 125,
			stderr: "runtimectl: --timeout -1s: must not be negative\nRun 'runtimectl exec --help' for usage.\n",
		},
		{
			args: "logs --tail -1 box", code: 2,
			stderr: "runtimectl: --tail -1: must not be negative\nRun 'runtimectl logs --help' for usage.\n",
		},
		{
			args: "mcp --session a/b box", code: 2,
			stderr: "runtimectl: \"session\" must be 1 to 64 characters of A-Z a-z 0-9 . _ - and not \".\" or \"..\", got the string \"a/b\"\nRun 'runtimectl mcp --help' for usage.\n",
		},
		{
			args: "act --file /no/such/file box", code: 3,
			stderr: "runtimectl: open /no/such/file: no such file or directory\n",
		},
		{
			args: "rm", code: 2,
			stderr: "runtimectl: an argument is missing: runtimectl rm SANDBOX... [flags]\nRun 'runtimectl rm --help' for usage.\n",
		},
		{
			args: "cp box:a", code: 2,
			stderr: "runtimectl: an argument is missing: runtimectl cp SANDBOX:PATH DEST|-\n  runtimectl cp SOURCE|- SANDBOX:PATH [flags]\nRun 'runtimectl cp --help' for usage.\n",
		},
		{
			args: "logs box and", code: 2,
			stderr: "runtimectl: unexpected argument \"and\": runtimectl logs [flags] SANDBOX\nRun 'runtimectl logs --help' for usage.\n",
		},
		{
			args: "tool ls --for opnai box", code: 2,
			stderr: "runtimectl: --for: " + tools.CheckFormat("opnai").Error() + "\nRun 'runtimectl tool ls --help' for usage.\n",
		},
		{
			args: "demo --server /no/such/program", code: 1,
			stderr: "runtimectl: there is no server to start: stat /no/such/program: no such file or directory; --server wants a program\n",
		},
		{
			args: "demo --server /", code: 1,
			stderr: "runtimectl: there is no server to start: run /: permission denied; --server wants a program\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			args := strings.Split(tt.args, " ") // an empty word at the end is one to be completed
			if tt.args == "" {
				args = []string{} // for nil cobra takes those of the test program
			}
			code, stdout, stderr := inProcess(t.Context(), nil, args...)
			if code != tt.code || stderr != tt.stderr {
				t.Errorf("exit code %d, stderr %q\nwant %d, %q", code, stderr, tt.code, tt.stderr)
			}
			if !strings.Contains(stdout, tt.stdout) || code != 0 && stdout != "" {
				t.Errorf("stdout %q\nwant %q in it, and nothing after an error", stdout, tt.stdout)
			}
		})
	}
}

func TestServerBesideIsMissing(t *testing.T) {
	t.Parallel()
	alone := filepath.Join(t.TempDir(), "runtimectl")
	// A copy may be open in a child of another test for a moment, and then cannot run.
	if err := os.Link(filepath.Join(programs(t), "runtimectl"), alone); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), alone, "demo").CombinedOutput()
	want := "runtimectl: there is no server to start: stat " + filepath.Dir(alone) +
		"/server: no such file or directory; build both programs with 'make build', or use --server\n"
	if err == nil || string(out) != want {
		t.Errorf("got %v, %q\nwant an error, %q", err, out, want)
	}
}

// A package installs runtimectl in bin, and the server in lib/actiond.
func TestServerInLib(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	server, script := filepath.Join(root, "usr/lib/actiond/server"), []byte("#!/bin/sh\n")
	if err := errors.Join(os.MkdirAll(filepath.Dir(server), 0o700), os.WriteFile(server, script, 0o700)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"bin": server + " is not a Linux executable", "sbin": "/usr/sbin/server: no such file"} {
		program := filepath.Join(root, "usr", dir, "runtimectl")
		if err := errors.Join(os.Mkdir(filepath.Dir(program), 0o700), os.Link(filepath.Join(programs(t), "runtimectl"), program)); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), program, "run", "--state-dir", filepath.Join(root, "state"), "image", "--", "true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("in %s: got %v, %q\nwant an error with %q", dir, err, out, want)
		}
	}
}
