package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// localMachine runs commands with --on=local on a state directory of its own, whose
// sandboxes are removed at the end.
type localMachine struct {
	t   *testing.T
	dir string
}

func newLocalMachine(t *testing.T) localMachine {
	t.Helper()
	m := localMachine{t, shortDir(t)}
	t.Cleanup(func() {
		for id := range strings.FieldsSeq(m.ok("ls", "-q")) {
			m.ok("rm", id)
		}
		left, err := os.ReadDir(filepath.Join(m.dir, "local"))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	return m
}

// shortDir is a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rctl-") //nolint:usetesting // t.TempDir is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// run runs a command line whose first word is the command.
func (m localMachine) run(args ...string) (code int, stdout, stderr string) {
	m.t.Helper()
	line := []string{args[0], "--on=local", "--state-dir", m.dir}
	switch args[0] {
	case "run", "create", "start":
		line = append(line, "--server", filepath.Join(programs(m.t), "server"))
	}
	// Not the test's own context: that is over when it is cleaned up.
	return inProcess(context.WithoutCancel(m.t.Context()), nil, append(line, args[1:]...)...)
}

// ok is run for a command that must succeed; it returns what that printed.
func (m localMachine) ok(args ...string) string {
	m.t.Helper()
	code, stdout, stderr := m.run(args...)
	if code != 0 {
		m.t.Fatalf("%q: exit code %d: %s", args, code, stderr)
	}
	return stdout
}

const localWarning = "warning: --on local isolates nothing: "

func TestLocalLife(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	code, stdout, stderr := m.run("create", "--name", "box", "--label", "a=b", "--ttl", "1h", "-e", "SECRET=s")
	id := strings.TrimSpace(stdout)
	if code != 0 || !sandbox.IsID(id) || !strings.HasPrefix(stderr, localWarning) {
		t.Fatalf("create: exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	var list []sandboxInfo
	if err := json.Unmarshal([]byte(m.ok("ls", "-o", "json")), &list); err != nil || len(list) != 1 {
		t.Fatalf("ls: %+v, %v", list, err)
	}
	// A server that does not answer within a second, on a slow machine, leaves its sandbox ready.
	if got := list[0]; got.ID != id || got.Name != "box" || got.State != "idle" && got.State != "ready" || got.Labels["a"] != "b" || got.Deadline == nil {
		t.Errorf("ls: got %+v", got)
	}
	if got := m.ok("ls", "-q"); got != id+"\n" {
		t.Errorf("ls -q: got %q, want the id", got)
	}
	if got := m.ok("inspect", id[:6]); !strings.Contains(got, "\nlost") {
		t.Errorf("inspect by a short id says nothing of protection: %s", got)
	}
	if got := m.ok("exec", "box", "--", "sh", "-c", `echo "$SECRET $1"; pwd`, "sh", "a  b"); got != "s a  b\n"+filepath.Join(m.dir, "local", id, "work")+"\n" {
		t.Errorf("exec: got %q", got)
	}
	if got := m.ok("rm", "box"); got != id+"\n" {
		t.Errorf("rm: got %q, want the id", got)
	}
	if code, _, stderr := m.run("rm", "box"); code != command.ExitNotFound || stderr != "runtimectl: \"box\": no such sandbox\n" {
		t.Errorf("rm of what is gone: exit code %d, %q", code, stderr)
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	if got := m.ok("create", "--name", "box", "--output", "json"); !strings.Contains(got, `"name": "box"`) {
		t.Errorf("create prints %s", got)
	}
	tests := []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr string // is part of it
	}{
		{name: "output", args: []string{"box", "--", "echo", "hi"}, stdout: "hi\n"},
		{name: "without the dashes", args: []string{"box", "echo", "-n", "hi"}, stdout: "hi"},
		{name: "bytes as they are", args: []string{"box", "printf", `a\r\n\tb\r\r\n\377\033[2J`}, stdout: "a\r\n\tb\r\r\n\xff\x1b[2J"},
		{name: "all of much", args: []string{"box", "seq", "1", "20000"}, stdout: numbers(20000)},
		{name: "more than is kept", args: []string{"box", "head", "-c", "30000000", "/dev/zero"}, stdout: strings.Repeat("\x00", 30000000)},
		{name: "no output", args: []string{"box", "--", "true"}},
		{name: "words mean nothing to the shell", args: []string{"box", "--", "printf", "%s|", "a b", "$HOME", "'", "*", ";", "~", "A=b"}, stdout: "a b|$HOME|'|*|;|~|A=b|"},
		{name: "a line in one word", args: []string{"box", "--", "ls -la"}, code: 127, stderr: "note: no shell splits this one word; write: sh -c 'ls -la'\n"},
		{name: "nor does the first", args: []string{"box", "--", "A=b"}, code: 127},
		{name: "its own exit code", args: []string{"box", "--", "sh", "-c", "exit 42"}, code: 42},
		{name: "a signal", args: []string{"box", "--", "sh", "-c", "kill -9 $$"}, code: 137},
		{name: "not to be run", args: []string{"box", "--", "/etc/passwd"}, code: 126},
		{name: "empty input", args: []string{"box", "--", "cat"}},
		{name: "elsewhere", args: []string{"-w", "/", "box", "--", "pwd"}, stdout: "/\n"},
		{name: "nowhere", args: []string{"-w", "/no/such", "box", "--", "pwd"}, code: 126, stderr: "runtimectl: pwd: cannot begin in /no/such: no such file or directory\n"},
		{name: "two streams", args: []string{"box", "--", "sh", "-c", "echo out; echo err >&2"}, stdout: "out\n", stderr: "err\n"},
		{name: "no terminal", args: []string{"box", "--", "sh", "-c", "test -t 0 || test -t 1 || test -t 2 || echo none"}, stdout: "none\n"},
		{name: "variable", args: []string{"-e", "A=b c", "box", "--", "sh", "-c", "echo $A"}, stdout: "b c\n"},
		{name: "timeout", args: []string{"--timeout", "4s", "box", "--", "sleep", "1000"}, code: 124, stderr: "runtimectl: the command timed out after 4s\n"},
		{name: "no time to start", args: []string{"--timeout", "1us", "box", "--", "sleep", "1000"}, code: 124, stderr: "runtimectl: the command timed out after 1µs\n"},
		{name: "as another user", args: []string{"--user", "4242", "box", "--", "id"}, code: 125, stderr: "runtimectl: action \"exec\": argument \"user\": this sandbox was not created with --allow-root, so all programs run as its own user\n"},
		{name: "as no user", args: []string{"--user", "no-such-user", "box", "--", "id"}, code: 125, stderr: "runtimectl: action \"exec\": argument \"user\": this sandbox has no user \"no-such-user\"\n"},
		{name: "as oneself", args: []string{"--user", strconv.Itoa(os.Geteuid()), "-w", "/", "box", "--", "sh", "-c", "id -u; pwd"}, stdout: fmt.Sprintf("%d\n/\n", os.Geteuid())},
		{name: "no sandbox", args: []string{"nope", "--", "true"}, code: 125, stderr: "runtimectl: \"nope\": no such sandbox\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := localMachine{t, m.dir}
			code, stdout, stderr := m.run(append([]string{"exec"}, tt.args...)...)
			printed := stdout == tt.stdout || tt.code > 1 && tt.stdout == ""
			if code != tt.code || !printed || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit code %d, %d bytes %.1000q, stderr %q\nwant %d, %d bytes %.1000q, %q", code, len(stdout), stdout, stderr, tt.code, len(tt.stdout), tt.stdout, tt.stderr)
			}
		})
	}
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// Output is there before the command ends, and an interrupt lets the command say
// something to it.
func TestExecInterrupted(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs(t), "runtimectl"), "exec", "--on=local", "--state-dir", m.dir, "box", "--",
		"sh", "-c", "trap 'echo bye; exit 5' INT; echo go; while :; do sleep 0.01; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "go\n" {
		t.Fatalf("got %q, %v, want go", line, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.HasSuffix(string(rest), "bye\n") {
		t.Errorf("after the interrupt it says %q, %v, want bye", rest, err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("exit code %d, want the command's", cmd.ProcessState.ExitCode())
	}
}

// A command that ignores the interrupt after its time is killed, and so is one
// whose output has no reader any more.
func TestExecStops(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	pid := ""
	for limit := time.Second; pid == ""; limit *= 2 { // until the command begins in time
		code, stdout, stderr := m.run("exec", "--timeout", limit.String(), "box", "sh", "-c", "trap '' INT; echo $$; while :; do sleep 0.1; done")
		if pid = strings.TrimSpace(stdout); code != command.ExitTimeout || pid == "" && limit > time.Minute {
			t.Fatalf("got %d, %q, %q", code, stdout, stderr)
		}
	}
	testhelp.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	}, "process %s ends", pid)
}

// A terminal's translation of line ends is undone wherever parts begin.
func TestTerminalOutput(t *testing.T) {
	t.Parallel()
	const text, want = "a\r\nb\r\r\n\r\nc\rd\r", "a\nb\r\n\nc\rd\r"
	for i := range len(text) {
		for j := i; j <= len(text); j++ {
			var got strings.Builder
			o := &terminalOutput{out: &got}
			for _, part := range []string{text[:i], text[i:j], text[j:]} {
				if err := o.write([]byte(part)); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.flush(); err != nil || got.String() != want {
				t.Errorf("cut at %d and %d: got %q, %v, want %q", i, j, got.String(), err, want)
			}
		}
	}
}

// A persistent session is where the command before left it.
func TestExecSession(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	m.ok("exec", "--session", "s", "box", "cd", "/")
	if got := m.ok("exec", "--session", "s", "box", "pwd"); got != "/\n" {
		t.Errorf("got %q, want /", got)
	}
	if got := m.ok("exec", "box", "pwd"); got == "/\n" {
		t.Error("a fresh shell is where another one went")
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	code, stdout, stderr := m.run("run", "debian:bookworm", "--", "sh", "-c", "echo out; exit 3")
	note := "note: there are no images with --on local: debian:bookworm is not used\n"
	if code != 3 || stdout != "out\n" || !strings.HasPrefix(stderr, localWarning) || !strings.HasSuffix(stderr, note) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, stdout, _ := m.run("run", "--", "echo", "hi"); code != 0 || stdout != "hi\n" {
		t.Errorf("without an image: exit code %d, stdout %q", code, stdout)
	}
	if left := m.ok("ls", "-q"); left != "" {
		t.Errorf("left: %s", left)
	}
	// Should this program be killed, the sandbox ends itself.
	if got := m.ok("run", "--", "cat", "../facts"); !strings.Contains(got, `"idle":300000000000`) {
		t.Errorf("its sandbox has no idle limit: %s", got)
	}
}

// A name calls one sandbox.
func TestNameIsTaken(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	id := strings.TrimSpace(m.ok("create", "--name", "box"))
	code, stdout, stderr := m.run("create", "--name", "box")
	if code != command.ExitConflict || stdout != "" || !strings.Contains(stderr, id) {
		t.Errorf("a second one: exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	m.ok("rm", "box")
	m.ok("create", "--name", "box")
}

// One of many parallel creations of a name succeeds, the others conflict.
func TestNameIsTakenOnce(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	codes := make([]int, 6)
	var group sync.WaitGroup
	for i := range codes {
		group.Go(func() { codes[i], _, _ = m.run("create", "--name", "dup") })
	}
	group.Wait()
	slices.Sort(codes)
	if want := []int{0, command.ExitConflict, command.ExitConflict, command.ExitConflict, command.ExitConflict, command.ExitConflict}; !slices.Equal(codes, want) {
		t.Errorf("exit codes %v, want %v", codes, want)
	}
}

// A command whose sandbox is killed says so, and what to do.
func TestLocalKilledUnderCommand(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	id := strings.TrimSpace(m.ok("create"))
	var facts struct{ PID int }
	data, err := os.ReadFile(filepath.Join(m.dir, "local", id, "facts"))
	if err == nil {
		err = json.Unmarshal(data, &facts)
	}
	if err != nil {
		t.Fatal(err)
	}
	code, _, stderr := m.run("exec", id, "--", "sh", "-c", fmt.Sprintf("kill -9 %d; sleep 100", facts.PID))
	if code != command.ExitOwn || !strings.Contains(stderr, "sandbox "+id+" is stopped") || !strings.Contains(stderr, "runtimectl start "+id) {
		t.Errorf("got %d, %s", code, stderr)
	}
}

// Where there are no images, what looks like one is the command.
func TestRunLocalImage(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	const note = "note: with --on local there are no images, and \"no-such-image\" was the command\n"
	if code, _, stderr := m.run("run", "no-such-image", "echo", "hi"); code != command.ExitAbsent || !strings.Contains(stderr, note) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, _, stderr := m.run("run", "--", "no-such-image", "echo"); code != command.ExitAbsent || strings.Contains(stderr, note) {
		t.Errorf("behind --: exit code %d, %q", code, stderr)
	}
}

// A Docker context that is not there is a mistake of the caller.
func TestNoDockerContext(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs(t), "runtimectl"), "ls", "--state-dir", shortDir(t))
	cmd.Env = append(os.Environ(), "DOCKER_CONTEXT=nosuch", "DOCKER_HOST=", "DOCKER_CONFIG="+t.TempDir())
	out, _ := cmd.CombinedOutput() // the code says it
	if code := cmd.ProcessState.ExitCode(); code != command.ExitUsage || !strings.Contains(string(out), "there is no Docker context \"nosuch\"") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// The variable names the state directory where the flag does not.
func TestStateDirVariable(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	id := m.ok("create")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"ls", "-q"}, id},
		{[]string{"--state-dir", shortDir(t), "ls", "-q"}, ""},
	} {
		env := map[string]string{"ACTIOND_STATE_DIR": m.dir, "ACTIOND_ON": "local"}
		if code, stdout, stderr := inProcess(t.Context(), env, tt.args...); code != 0 || stdout != tt.want {
			t.Errorf("%q: exit code %d, %q, %s; want %q", tt.args, code, stdout, stderr, tt.want)
		}
	}
}
