package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// asRoot runs a program as an operator does.
func asRoot(t *testing.T, e *executor.Executor, a api.ExecAction) api.ExecObservation {
	t.Helper()
	a.User = api.UserRoot
	o, err := e.Watch(t.Context(), api.Request{Action: a, Timeout: new(60.0)}, api.Watch{Operator: true})
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	return o.(api.ExecObservation)
}

// Only an operator's request runs a program as root, and only where the sandbox allows it.
func TestExecRootRefused(t *testing.T) {
	t.Parallel()
	u := other(t)
	dir := testhelp.PublicDir(t)
	closed, _ := start(t, executor.Config{User: u, WorkingDir: dir})
	open, _ := start(t, executor.Config{User: u, WorkingDir: dir, AllowRoot: true})
	marker := filepath.Join(dir, "ran")
	for _, tt := range []struct {
		name     string
		executor *executor.Executor
		operator bool
		want     string
	}{
		{"an agent", open, false, "only POST /v1/actions"},
		{"an agent of another sandbox", closed, false, "only POST /v1/actions"},
		{"an operator of another sandbox", closed, true, "--allow-root"},
	} {
		_, err := tt.executor.Watch(t.Context(), api.Request{Action: api.ExecAction{Argv: []string{"touch", marker}, User: api.UserRoot}}, api.Watch{Operator: tt.operator})
		if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != 400 || !strings.Contains(refusal.Detail, tt.want) {
			t.Errorf("%s: got %v, want a refusal with %q", tt.name, err, tt.want)
		}
	}
	if _, err := os.Lstat(marker); err == nil {
		t.Error("it ran")
	}
}

// Nothing that the agent chose reaches a program of root's.
func TestExecRootInheritsNothing(t *testing.T) {
	t.Parallel()
	u := other(t)
	u.Home = testhelp.PublicDir(t)
	dir := testhelp.PublicDir(t)
	e, _ := start(t, executor.Config{User: u, WorkingDir: dir, AllowRoot: true, Env: []string{"SESSION_API_KEY=x", "PATH=" + dir, "LD_PRELOAD=" + dir + "/x.so", "BASH_ENV=" + dir + "/x"}})
	if err := e.Export(t.Context(), map[string]string{"ENV": dir + "/x", "PYTHONPATH": dir, "PATH": dir}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"id", "ls", "sh"} {
		testhelp.WriteProgram(t, filepath.Join(dir, name), "#!/bin/sh\necho owned\n")
	}
	o := asRoot(t, e, api.ExecAction{Argv: []string{"env"}, Env: api.Variables{"GIVEN": "by the operator"}})
	for line := range strings.Lines(o.Stdout) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		want := map[string]string{
			"HOME": "/root", "LOGNAME": "root", "USER": "root", "SHELL": "/bin/sh", "TERM": "xterm-256color", "PAGER": "cat", "GIVEN": "by the operator",
		}[name]
		if name != "ACTIOND_TREE" && name != "PATH" && value != want || name == "PATH" && strings.Contains(value, dir) {
			t.Errorf("the environment has %s", line)
		}
	}
	for _, test := range []struct{ name, line, want string }{
		{"user", "id -u; id -g; pwd", "0\n0\n/\n"},
		{"program", "ls -d /", "/\n"},
		{"terminal", "stat -c '%u %A' $(readlink /proc/$$/fd/1) | sed 's/-w----$/------/'", "0 crw-------\r\n"}, // or for write(1) of group tty too
		{"session", "read -r _ _ _ _ _ session _ </proc/$$/stat; echo $session $$", "same"},
	} {
		a := api.ExecAction{Command: test.line}
		if test.name == "terminal" {
			a.TTY = &api.TTY{Rows: 2, Cols: 2}
		}
		o := asRoot(t, e, a)
		if test.want == "same" {
			if words := strings.Fields(o.Stdout); len(words) != 2 || words[0] != words[1] {
				t.Errorf("%s: got %q", test.name, o.Content)
			}
		} else if o.Content != test.want {
			t.Errorf("%s: got %q, want %q", test.name, o.Content, test.want)
		}
	}
	if o := asRoot(t, e, api.ExecAction{Argv: []string{"cat"}, Input: "in"}); o.Stdout != "in" {
		t.Errorf("input: got %q", o.Content)
	}
	if o := execute(t, e, api.ExecAction{Command: "/usr/bin/id -u; pwd"}); o.Stdout != fmt.Sprintf("%d\n%s\n", u.UID, dir) {
		t.Errorf("the agent's programs: got %q", o.Content)
	}
}

// A directory is on root's PATH if root alone may write to it and to all above it.
func TestOwnedByRoot(t *testing.T) {
	t.Parallel()
	u := other(t)
	base, err := os.MkdirTemp("/var/lib", "actiond-test-") //nolint:usetesting // all above it is root's, as above /usr/bin
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	at := func(name string) string { return filepath.Join(base, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(base, 0o755))
	for name, mode := range map[string]os.FileMode{"bin": 0o755, "group": 0o775, "all": 0o777, "sticky": 0o777 | os.ModeSticky, "agents": 0o755, "above": 0o755} {
		must(os.Mkdir(at(name), mode))
		must(os.Chmod(at(name), mode))
	}
	must(os.Mkdir(at("above/bin"), 0o755))
	for _, name := range []string{"agents", "above"} {
		must(os.Chown(at(name), int(u.UID), 0))
	}
	must(os.WriteFile(at("file"), nil, 0o755))
	for link, target := range map[string]string{"link": "bin", "to-agents": "agents", "loop": "loop", "agents/link": base + "/bin", "by-agents": "agents/link"} {
		must(os.Symlink(target, at(link)))
	}
	for name, want := range map[string]string{
		"bin": "bin", "link": "bin", "bin/../bin": "bin", "by-agents": "bin", // without the agent's link, which may lead elsewhere later
		"group": "", "all": "", "sticky": "", "agents": "", "above/bin": "", "to-agents": "", "loop": "", "file": "", "missing": "",
	} {
		if want != "" {
			want = at(want)
		}
		if got := executor.OwnedByRoot(at(name)); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// The end of a program of root's is the end of all that it started, also of an orphan that
// left its session and became another user.
func TestExecRootEnds(t *testing.T) {
	t.Parallel()
	u := other(t)
	e, _ := start(t, executor.Config{User: u, WorkingDir: testhelp.PublicDir(t), AllowRoot: true})
	const line = `(setsid setpriv --reuid 65533 --regid 65533 --clear-groups sh -c 'echo $$; exec sleep 1000' &); sleep 1000`
	gone := func(what string, o api.ExecObservation) {
		t.Helper()
		var hidden int
		if _, err := fmt.Sscan(o.Stdout, &hidden); err != nil {
			t.Fatalf("%s: got %q", what, o.Content)
		}
		testhelp.Eventually(t, func() bool { // it is a zombie until init reaps it
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", hidden))
			return err != nil || strings.Contains(string(stat), ") Z ")
		}, "%s: process %d ends", what, hidden)
	}
	o := asRoot(t, e, api.ExecAction{Command: line, KillAfter: 1})
	if o.EndedBy == nil || *o.EndedBy != "kill_after" {
		t.Errorf("got %+v", o)
	}
	gone("what it left after its time", o)

	cancelled := make(chan struct{})
	cancel := sync.OnceFunc(func() { close(cancelled) })
	got, err := e.Watch(context.Background(), api.Request{Action: api.ExecAction{Command: "trap '' INT; " + line, User: api.UserRoot}}, api.Watch{
		Operator: true, Cancelled: cancelled, Output: func(o api.Output) {
			if len(o.Data) > 0 {
				cancel()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o = got.(api.ExecObservation)
	if o.EndedBy == nil || *o.EndedBy != "cancel" {
		t.Errorf("got %+v", o)
	}
	gone("what it left once cancelled", o)
}
