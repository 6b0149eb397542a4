package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/testhelp"
)

// A program is followed from its beginning to its end, while it runs and afterwards, and its
// output is read as bytes.
func TestFollow(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	exec := m.background("exec", "box", "--", "sh", "-c", `echo out; printf 'err\r\n\377' >&2; until test -e go; do sleep 0.1; done; echo more; exit 7`)
	a := m.begun("echo out")
	following := m.background("follow", "box", a.ID)
	testhelp.Eventually(t, func() bool { return m.listed()[0].OutputBytes == 10 }, "the output of both streams is not recorded")
	m.ok("exec", "box", "touch", "go")
	<-exec
	want := ending{7, "out\nmore\n", "err\r\n\xff"}
	if got := <-following; got != want {
		t.Errorf("while it ran: got %+v", got)
	}
	code, stdout, stderr := m.run("follow", "box", a.ID)
	if got := (ending{code, stdout, stderr}); got != want {
		t.Errorf("after its end: got %+v", got)
	}
	for _, tt := range []struct{ flags, want string }{
		{"--stream stdout", "out\nmore\n"},
		{"--stream stderr", "err\r\n\xff"},
		{"--stream stdout --offset 4", "more\n"},
		{"--offset 10", "more\n"},
		{"--offset 15", ""},
		{"--stream stdout --tail 1", "more\n"},
		{"--stream stdout --grep ^m", "more\n"},
		{"--stream stdout --grep out -C 1", "out\nmore\n"},
		{"--grep nothing", ""},
	} {
		if got := m.ok(append(append([]string{"output"}, strings.Fields(tt.flags)...), "box", a.ID)...); got != tt.want {
			t.Errorf("output %s: got %q", tt.flags, got)
		}
	}
	for _, word := range []string{"follow", "output"} {
		if got := completions(t, m.dir, word+" --on local STATE box "+a.ID); got != a.ID {
			t.Errorf("%s: completed with %q", word, got)
		}
	}
}

// The exit code of following other actions is that of exec too, or says that they failed.
func TestFollowOthers(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	newest := func() string { return m.listed()[0].ID }
	m.run("exec", "--session", "tests", "box", "--", "sh", "-c", "echo in a session; exit 3")
	if code, stdout, stderr := m.run("follow", "box", newest()); code != 3 || stdout != "in a session\n" || stderr != "" {
		t.Errorf("a session's: exit code %d, %q, %q", code, stdout, stderr)
	}
	if code, _, stderr := m.run("act", "box", `{"action":"run","args":{"command":"sleep 1000","blocking":true},"timeout":3}`); code != command.ExitTimeout {
		t.Errorf("act: exit code %d, %q", code, stderr)
	}
	if code, _, stderr := m.run("follow", "box", newest()); code != command.ExitTimeout || stderr != "runtimectl: the command timed out\n" {
		t.Errorf("late: exit code %d, %q", code, stderr)
	}
	if code, stdout, stderr := m.run("act", "box", `{"action":"read","args":{"path":"/no/such"}}`); code != command.ExitFailed || !strings.Contains(stdout, `"code": "file_not_found"`) {
		t.Errorf("act: exit code %d, %q, %q", code, stdout, stderr)
	}
	if code, stdout, stderr := m.run("follow", "box", newest()); code != command.ExitOwn || stdout != "" || !strings.HasPrefix(stderr, "runtimectl: the action failed: ") {
		t.Errorf("a failure: exit code %d, %q, %q", code, stdout, stderr)
	}
	m.ok("act", "box", `{"action":"write","args":{"path":"f","content":"x"}}`)
	if code, stdout, stderr := m.run("follow", "box", newest()); code != 0 || stdout+stderr != "" {
		t.Errorf("a write: exit code %d, %q, %q", code, stdout, stderr)
	}
	if code, _, stderr := m.run("output", "--offset", "9", "box", newest()); code != command.ExitFailed || !strings.Contains(stderr, "Offset 9 is beyond the 0 bytes") {
		t.Errorf("behind the end: exit code %d, %q", code, stderr)
	}
	for word, want := range map[string]int{"follow": command.ExitOwn, "output": command.ExitNotFound} {
		if code, _, stderr := m.run(word, "box", "no-such"); code != want || !strings.Contains(stderr, "There is no action") {
			t.Errorf("%s of nothing: exit code %d, %q", word, code, stderr)
		}
	}
	if code, _, stderr := m.run("output", "--stream", "both", "box", "x"); code != command.ExitUsage || !strings.Contains(stderr, "must be stdout or stderr") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// Ctrl-C ends the following and not the action.
func TestFollowInterrupted(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	m.background("exec", "box", "sleep", "1000")
	a := m.begun("sleep")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, stderr := inProcess(ctx, nil, "follow", "--on=local", "--state-dir", m.dir, "box", a.ID)
	if code != command.ExitInterrupted || stderr != "runtimectl: interrupted; the action goes on\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if got := m.begun("sleep"); got.ID != a.ID || got.State != api.StateRunning {
		t.Errorf("got %+v", got)
	}
}
