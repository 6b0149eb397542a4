package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/internal/shellquote"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestCat(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	m.ok("exec", "box", "sh", "-c", `printf 'a\r\n\033[2J' >f; printf '\000\377' >g; ln -s f l; ln -s loop loop; mkdir d`)
	if got, want := m.ok("cat", "box", "f", "g", "l"), "a\r\n\x1b[2J\x00\xffa\r\n\x1b[2J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := m.ok("cat", "box", "/proc/version"); !strings.HasPrefix(got, "Linux version ") {
		t.Errorf("a file of the kernel: got %q", got)
	}
	for file, want := range map[string]int{"nope": command.ExitNotFound, "d": command.ExitConflict, "loop": command.ExitConflict} {
		if code, stdout, stderr := m.run("cat", "box", file); code != want || stdout != "" {
			t.Errorf("cat %s: exit code %d, stdout %q, want %d: %s", file, code, stdout, want, stderr)
		}
	}
}

// edit runs the command with an editor, a line for the shell.
func (m localMachine) edit(editor string, args ...string) (code int, stderr string) {
	var errs bytes.Buffer
	p := newProgram(output.Streams{
		Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &errs,
		Getenv: func(name string) string { return map[string]string{"EDITOR": editor}[name] },
	})
	code = p.run(context.WithoutCancel(m.t.Context()), append([]string{"edit", "--on=local", "--state-dir", m.dir}, args...))
	return code, errs.String()
}

func TestEdit(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	work := strings.TrimSpace(m.ok("exec", "box", "pwd"))
	file := filepath.Join(work, "f")
	write(t, file, "one\n")
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if code, stderr := m.edit("sed -i s/one/two/", "box", "f"); code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if got := testhelp.Tree(t, work); len(got) != 1 || got[0] != "f -rw-r----- two\n" {
		t.Errorf("got %q, want the content changed and the mode as it was", got)
	}
	if code, stderr := m.edit("true", "box", "f"); code != 0 || stderr != "note: nothing is changed\n" {
		t.Errorf("without a change: exit code %d, %q", code, stderr)
	}
	if code, stderr := m.edit("exit 3; true", "box", "f"); code != 1 || !strings.Contains(stderr, "exit status 3: nothing is changed") {
		t.Errorf("an editor that fails: exit code %d, %q", code, stderr)
	}
	if code, stderr := m.edit("printf new >", "box", "d/../new"); code != 0 || m.ok("cat", "box", "new") != "new" {
		t.Errorf("a new file: exit code %d, %q", code, stderr)
	}

	if code, stderr := m.edit("exit 9; true", "box", "nope/new"); code != command.ExitNotFound || !strings.Contains(stderr, "/nope in sandbox ") {
		t.Errorf("a file in no directory: exit code %d, %q", code, stderr)
	}
	if code, stderr := m.edit("true", "box", "none"); code != 0 || stderr != "note: nothing is changed\n" {
		t.Errorf("a new file that was not written: exit code %d, %q", code, stderr)
	}
	if code, _, _ := m.run("cat", "box", "none"); code != command.ExitNotFound {
		t.Error("a new file that was not written is there")
	}

	// Another process was faster.
	code, stderr := m.edit("printf theirs >"+shellquote.Word(file)+"; printf mine >", "box", "f")
	_, kept, found := strings.Cut(strings.TrimSpace(stderr), "; what you wrote is kept in ")
	if code != command.ExitConflict || !found {
		t.Fatalf("changed meanwhile: exit code %d, %q", code, stderr)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(kept)) })
	if got, err := os.ReadFile(kept); err != nil || string(got) != "mine" {
		t.Errorf("%s holds %q, %v, want what was written", kept, got, err)
	}
	if got := m.ok("cat", "box", "f"); got != "theirs" {
		t.Errorf("the file holds %q, want theirs", got)
	}
}

func TestAct(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	file := filepath.Join(t.TempDir(), "action.json")
	write(t, file, `{"action": {"action": "run", "args": {"command": "echo from a file"}}}`)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"box", `{"action":"run","args":{"command":"echo bare"}}`}, `"content": "bare"`},
		{[]string{"box", "--file", file}, `"content": "from a file"`},
		{[]string{"-o", "yaml", "box", `{"action":"run","args":{"command":"echo yaml"}}`}, "\ncontent: yaml\n"},
	} {
		if got := m.ok(append([]string{"act"}, tt.args...)...); !strings.Contains(got, tt.want) {
			t.Errorf("%q: got %s\nwant %s", tt.args, got, tt.want)
		}
	}
	code, stdout, stderr := m.run("act", "box", `{"action":"run","args":{"command":"(exit 5)"}}`)
	if code != 5 || !strings.Contains(stdout, `"exit_code": 5`) || stderr != "" {
		t.Errorf("a command that failed: exit code %d, %q, %q", code, stdout, stderr)
	}
	for _, tt := range []struct{ action, want string }{
		{`{"action":"fly"}`, `action "fly" is unknown`},
		{`{`, "Invalid request parameters: "},
		{`{"action":"run","args":{"command":5}}`, "must be a string"},
		{"", "Invalid request parameters: "}, // from standard input
	} {
		args := []string{"act", "box", tt.action}
		if tt.action == "" {
			args = args[:2]
		}
		if code, stdout, stderr := m.run(args...); code != command.ExitUsage || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%q: exit code %d, %q, %q\nwant %d, %q", tt.action, code, stdout, stderr, command.ExitUsage, tt.want)
		}
	}
}

// A stopped sandbox keeps its files and variables, and says what to do.
func TestStopAndStart(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	id := strings.TrimSpace(m.ok("create", "--name", "box", "-e", "A=b"))
	m.ok("exec", "box", "touch", "kept")
	if got := m.ok("stop", "box"); got != id+"\n" {
		t.Errorf("stop: got %q, want the id", got)
	}
	code, _, stderr := m.run("exec", "box", "true")
	if code != command.ExitOwn || !strings.Contains(stderr, "start it with 'runtimectl start "+id+"'") {
		t.Errorf("exec: exit code %d, %q", code, stderr)
	}
	if code, _, _ := m.run("act", "box", `{"action":"run","args":{"command":""}}`); code != command.ExitConflict {
		t.Errorf("act: exit code %d, want %d", code, command.ExitConflict)
	}
	if got := m.ok("ls"); !strings.Contains(got, " stopped ") {
		t.Errorf("ls: %s", got)
	}
	if got := m.ok("cat", "box", "kept"); got != "" {
		t.Errorf("cat: got %q", got)
	}
	m.ok("start", "box")
	if got := m.ok("exec", "box", "sh", "-c", "ls; echo $A"); got != "kept\nb\n" {
		t.Errorf("after start: got %q", got)
	}
	if got := m.ok("logs", "box"); strings.Count(got, "msg=serving") != 2 {
		t.Errorf("logs: %s\nwant two starts", got)
	}
	if got := m.ok("logs", "--tail", "0", "box"); got != "" {
		t.Errorf("without lines: %q", got)
	}
	if got := m.ok("logs", "--tail", "1", "box"); strings.Count(got, "\n") != 1 {
		t.Errorf("logs --tail 1: %q", got)
	}
}

func TestRenewAndPrune(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	id := strings.TrimSpace(m.ok("create", "--name", "over", "--ttl", "1h"))
	m.ok("create", "--name", "stays")
	if got := m.ok("prune"); got != "" {
		t.Errorf("prune of nothing: %s", got)
	}
	m.ok("renew", "--ttl", "1ns", "over")
	if got := m.ok("ls"); !strings.Contains(got, "time is over") {
		t.Errorf("ls of a sandbox that is overdue: %s", got)
	}
	code, got, stderr := m.run("prune", "--dry-run")
	if code != 0 || !strings.Contains(got, id) || !strings.Contains(got, "its time was up") || stderr != "note: nothing was removed; without --dry-run these are:\n" {
		t.Errorf("prune --dry-run: exit code %d, %s%s", code, stderr, got)
	}
	m.ok("renew", "--never", "over")
	if got := m.ok("prune", "--dry-run"); got != "" {
		t.Errorf("prune --dry-run after renew --never: %s", got)
	}
	m.ok("renew", "--ttl", "1ns", "over")
	m.ok("prune")
	if got := m.ok("ls", "-o", "json"); strings.Contains(got, id) || !strings.Contains(got, `"name": "stays"`) {
		t.Errorf("after prune: %s", got)
	}
	// The rest of a creator that was killed.
	if err := os.Mkdir(filepath.Join(m.dir, "local", "0123456789ab"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := m.ok("prune"); !strings.Contains(got, "0123456789ab   -      its creator died") {
		t.Errorf("prune of what was left half done: %s", got)
	}
	const needsEngine = "this needs an engine, and --on local does without one"
	for line, want := range map[string]string{
		"pause stays": needsEngine, "resume stays": needsEngine, "stats": needsEngine, "events": needsEngine, "pool image": needsEngine,
		"create --pool x": "not supported: the driver of local processes cannot keep sandboxes warm",
	} {
		code, _, stderr := m.run(strings.Fields(line)...)
		if code != command.ExitUsage || !strings.HasSuffix(stderr, "runtimectl: "+want+"\n") {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
	}
}
