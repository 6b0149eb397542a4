package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/testhelp"
)

// ending is how a command line ended.
type ending struct {
	code           int
	stdout, stderr string
}

// background runs a command line beside the test, which gets its end; it is interrupted
// at the end of the test.
func (m localMachine) background(args ...string) <-chan ending {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.t.Context()))
	line := append([]string{args[0], "--on=local", "--state-dir", m.dir}, args[1:]...)
	ended, done := make(chan ending, 1), make(chan struct{})
	go func() {
		defer close(done)
		code, stdout, stderr := inProcess(ctx, nil, line...)
		ended <- ending{code, stdout, stderr}
	}()
	m.t.Cleanup(func() { cancel(); <-done })
	return ended
}

// listed are the actions of the sandbox box.
func (m localMachine) listed(flags ...string) (list []api.RecordedAction) {
	m.t.Helper()
	args := append(append([]string{"actions", "-o", "json"}, flags...), "box")
	if err := json.Unmarshal([]byte(m.ok(args...)), &list); err != nil {
		m.t.Fatal(err)
	}
	return list
}

// begun waits until a command line runs in the sandbox box, and returns its action.
func (m localMachine) begun(text string) (a api.RecordedAction) {
	m.t.Helper()
	testhelp.Eventually(m.t, func() bool {
		running := m.listed("--state", "running")
		i := slices.IndexFunc(running, func(a api.RecordedAction) bool { return strings.Contains(a.Text, text) })
		if i >= 0 {
			a = running[i]
		}
		return i >= 0
	}, "a command with %q runs", text)
	return a
}

// Actions are listed, filtered and completed, waited for, and cancelled.
func TestActions(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	m.ok("exec", "--session", "tests", "box", "echo", "in a session")
	exec := m.background("exec", "box", "--", "sh", "-c", "echo hello; until test -e go; do sleep 0.1; done; exit 7")
	a := m.begun("echo hello")
	if a.Kind != "exec" || a.End != nil || a.N == 0 {
		t.Errorf("got %+v", a)
	}
	if got := m.ok("actions", "box"); !strings.HasPrefix(got, "N  ") || !strings.Contains(got, a.ID+"   running") {
		t.Errorf("got %s", got)
	}
	if got := m.listed("--session", "tests"); len(got) == 0 || slices.ContainsFunc(got, func(a api.RecordedAction) bool { return a.Session != "tests" }) {
		t.Errorf("of a session: got %+v", got)
	}
	for _, word := range []string{"wait", "cancel"} {
		if got := completions(t, m.dir, word+" --on local STATE box "); got != a.ID {
			t.Errorf("%s: completed with %q", word, got)
		}
		if got := completions(t, m.dir, word+" --on local STATE b"); got != "box" {
			t.Errorf("%s: completed with %q", word, got)
		}
	}
	wait := m.background("wait", "-o", "json", "box", a.ID)
	m.ok("exec", "box", "touch", "go")
	if got := <-exec; got.code != 7 {
		t.Errorf("exec: got %+v", got)
	}
	var ended struct {
		State       string
		Observation struct{ Extras map[string]any }
	}
	if got := <-wait; got.code != 7 || json.Unmarshal([]byte(got.stdout), &ended) != nil || ended.State != api.StateDone || ended.Observation.Extras["exit_code"] != 7.0 {
		t.Errorf("wait: got %+v", got)
	}
	for _, line := range [][]string{{"wait", a.ID}, {"cancel", a.ID}, {"wait", fmt.Sprint(a.N)}} { // it has ended
		want := 0
		if line[0] == "wait" {
			want = 7
		}
		if code, got, stderr := m.run(line[0], "box", line[1]); code != want || !strings.Contains(got, a.ID+"   done") {
			t.Errorf("%q: exit code %d, %s, %s", line, code, got, stderr)
		}
	}
	if got := m.ok("output", "box", fmt.Sprint(a.N)); got != "hello\n" {
		t.Errorf("output by number: got %q", got)
	}
	m.ok("act", "box", fmt.Sprintf(`{"id":"%d","action":{"action":"run","args":{"command":"echo mine"}}}`, a.N))
	if got := m.ok("follow", "box", fmt.Sprint(a.N)); got != "mine\n" {
		t.Errorf("an id that looks like a number: got %q", got)
	}
}

// Ctrl-C while a command waits for its turn in a session ends the wait, and not the command
// that has the turn.
func TestExecInterruptedInQueue(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	first := m.background("exec", "--session", "s", "box", "--", "sh", "-c", "until test -e go; do sleep 0.1; done; echo done")
	m.begun("test -e go")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	second := make(chan ending, 1)
	go func() {
		code, stdout, stderr := inProcess(ctx, nil, "exec", "--on=local", "--state-dir", m.dir, "--session", "s", "box", "echo", "second")
		second <- ending{code, stdout, stderr}
	}()
	testhelp.Eventually(t, func() bool { return len(m.listed("--state", "reserved")) > 0 }, "the second command waits")
	cancel()
	if got, want := <-second, (ending{command.ExitInterrupted, "", "runtimectl: interrupted\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	m.ok("exec", "box", "touch", "go")
	if got, want := <-first, (ending{0, "done\n", ""}); got != want {
		t.Errorf("the other command: got %+v, want %+v", got, want)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	exec := m.background("exec", "box", "sleep", "1000")
	a := m.begun("sleep")
	if got := m.ok("cancel", "-o", "yaml", "box", a.ID); !strings.Contains(got, "ended_by: cancel") || !strings.Contains(got, "state: done") {
		t.Errorf("got %s", got)
	}
	if got := <-exec; got.code != 130 {
		t.Errorf("exec: got %+v", got)
	}
}

func TestActionErrors(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	for _, tt := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"wait", "box", "no-such"}, command.ExitNotFound, `There is no action "no-such"`},
		{[]string{"cancel", "box", "no-such"}, command.ExitNotFound, `There is no action "no-such"`},
		{[]string{"wait", "box", "99"}, command.ExitNotFound, `There is no action "99"`},
		{[]string{"wait", "box"}, command.ExitUsage, "an argument is missing: runtimectl wait [flags] SANDBOX ACTION"},
		{[]string{"action", "wait", "box"}, command.ExitUsage, "an argument is missing: runtimectl action wait [flags] SANDBOX ACTION"},
		{[]string{"action", "cancel", "box", "no-such"}, command.ExitNotFound, `There is no action "no-such"`},
		{[]string{"wait", "none", "no-such"}, command.ExitNotFound, "no such sandbox"},
		{[]string{"actions", "--state", "over", "box"}, command.ExitUsage, `--state "over": must be one of reserved, running`},
	} {
		if code, stdout, stderr := m.run(tt.args...); code != tt.code || stdout != "" || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%q: exit code %d, %q, %q", tt.args, code, stdout, stderr)
		}
	}
}

// Ctrl-C ends the wait and not the action.
func TestWaitInterrupted(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	m.background("exec", "box", "sleep", "1000")
	a := m.begun("sleep")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, stderr := inProcess(ctx, nil, "wait", "--on=local", "--state-dir", m.dir, "box", a.ID)
	if code != command.ExitInterrupted || stderr != "runtimectl: interrupted; the action goes on\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if got := m.begun("sleep"); got.ID != a.ID {
		t.Errorf("got %+v", got)
	}
}
