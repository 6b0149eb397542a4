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

// asRoot runs a program of root's as an operator does.
func asRoot(t *testing.T, e *executor.Executor, a api.ExecAction) api.ExecObservation {
	t.Helper()
	a.User = api.UserRoot
	return operate(t, e, a)
}

// operate runs a program as an operator does.
func operate(t *testing.T, e *executor.Executor, a api.ExecAction) api.ExecObservation {
	t.Helper()
	o, err := e.Watch(t.Context(), api.Request{Action: a, Timeout: new(60.0)}, api.Watch{Operator: true})
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	return o.(api.ExecObservation)
}

// Only an operator's request runs a program as another user, and only where the sandbox allows it.
func TestExecUserRefused(t *testing.T) {
	t.Parallel()
	u := other(t)
	dir := testhelp.PublicDir(t)
	closed, _ := start(t, executor.Config{User: u, WorkingDir: dir})
	open, _ := start(t, executor.Config{User: u, WorkingDir: dir, AllowRoot: true})
	marker := filepath.Join(dir, "ran")
	refused := func(name string, e *executor.Executor, user string, operator bool, status int, want string) {
		t.Helper()
		_, err := e.Watch(t.Context(), api.Request{Action: api.ExecAction{Argv: []string{"touch", marker}, User: user}}, api.Watch{Operator: operator})
		if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != status || !strings.Contains(refusal.Detail, want) {
			t.Errorf("%s as %.20q: got %v, want %d with %q", name, user, err, status, want)
		}
	}
	for _, user := range []string{"root", "0", "00", "daemon", "1", "65521"} {
		refused("an agent", open, user, false, 400, "only POST /v1/actions")
		refused("an agent of another sandbox", closed, user, false, 400, "only POST /v1/actions")
		refused("an operator of another sandbox", closed, user, true, 400, "--allow-root")
	}
	for _, user := range []string{
		"root\n", "Root", " root", "root:x", " 0x0", "0x0", "-1", "+0", "0 ", "1.0", "4294967295", "4294967296", "18446744073709551616", "no-such-user", "\x00", "../etc/passwd",
		strings.Repeat("9", 1<<20), strings.Repeat("x", 1<<20),
	} {
		refused("an operator", open, user, true, 422, "has no user")
		refused("an agent", open, user, false, 422, "has no user")
	}
	if _, err := os.Lstat(marker); err == nil {
		t.Error("it ran")
	}
}

// The sandbox's own user may be named by everyone, and changes nothing.
func TestExecAsOneself(t *testing.T) {
	t.Parallel()
	u := other(t)
	dir := testhelp.PublicDir(t)
	theirs, _ := start(t, executor.Config{User: u, WorkingDir: dir, Env: []string{"KEPT=yes"}})
	roots, _ := start(t, executor.Config{WorkingDir: dir, Env: []string{"KEPT=yes"}})
	allowed, _ := start(t, executor.Config{WorkingDir: dir, Env: []string{"KEPT=yes"}, AllowRoot: true})
	for _, tt := range []struct {
		executor *executor.Executor
		uid      int
		names    []string
	}{
		{theirs, int(u.UID), []string{"", u.Name, fmt.Sprint(u.UID), fmt.Sprintf("0%d", u.UID)}},
		{roots, 0, []string{"", "root", "0"}},
		{allowed, 0, []string{"", "root", "0"}},
	} {
		for _, name := range tt.names {
			o := execute(t, tt.executor, api.ExecAction{Command: "id -u; pwd; echo $KEPT", User: name})
			if want := fmt.Sprintf("%d\n%s\nyes\n", tt.uid, dir); o.Content != want {
				t.Errorf("%q: got %q, want %q", name, o.Content, want)
			}
		}
	}
}

// A program of another user has that user's rights, with nothing of the agent's and nothing of root's.
func TestExecUser(t *testing.T) {
	t.Parallel()
	u := other(t)
	dir := testhelp.PublicDir(t)
	e, _ := start(t, executor.Config{User: u, WorkingDir: dir, AllowRoot: true, Env: []string{"KEPT=no", "LD_PRELOAD=" + dir + "/x.so"}})
	const server = `[ $(cat /proc/self/oom_score_adj) -gt $(cat /proc/%d/oom_score_adj) ]; echo $?`
	for _, tt := range []struct {
		name string
		a    api.ExecAction
		want string
	}{
		{"a name", api.ExecAction{Command: "id -un; id -gn; id -Gn; pwd; echo $HOME $USER $LOGNAME $KEPT$LD_PRELOAD", User: "daemon"}, "daemon\ndaemon\ndaemon\n/\n/usr/sbin daemon daemon\n"},
		{"its number", api.ExecAction{Command: "echo $HOME $USER $LOGNAME", User: "1"}, "/usr/sbin daemon daemon\n"},
		{"a number without an account", api.ExecAction{Command: "id -u; id -g; id -G; echo $HOME $USER", User: "65521"}, "65521\n0\n0\n/ 65521\n"},
		{"a user without a home", api.ExecAction{Argv: []string{"sh", "-c", "echo $HOME"}, User: "_apt"}, "/\n"},
		{"a directory", api.ExecAction{Argv: []string{"pwd"}, User: "daemon", Cwd: api.Directory(dir)}, dir + "\n"},
		{"a relative directory", api.ExecAction{Argv: []string{"pwd"}, User: "daemon", Cwd: "."}, dir + "\n"},
		{"a directory that is root's alone", api.ExecAction{Argv: []string{"pwd"}, User: "daemon", Cwd: "/root"}, "pwd: cannot begin in /root: permission denied"},
		{"a directory for root", api.ExecAction{Argv: []string{"pwd"}, User: "root", Cwd: "/root"}, "/root\n"},
		{"variables", api.ExecAction{Command: "echo $A $HOME", User: "daemon", Env: api.Variables{"A": "1", "HOME": "/a"}}, "1 /a\n"},
		{"no variables", api.ExecAction{Command: "env | sed s/=.*// | sort", User: "daemon", ClearEnv: true, Env: api.Variables{"A": "1"}}, "A\nACTIOND_TREE\nPATH\nPWD\n"},
		{"capabilities", api.ExecAction{Command: "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | grep -v '0000000000000000$'; true", User: "daemon"}, ""},
		{"the server's environment", api.ExecAction{Command: fmt.Sprintf("cat /proc/%d/environ 2>/dev/null | wc -c", os.Getpid()), User: "daemon"}, "0\n"},
		{"before the server", api.ExecAction{Command: fmt.Sprintf(server, os.Getpid()), User: "daemon"}, "0\n"},
		{"a terminal", api.ExecAction{Command: "stat -c %U $(readlink /proc/$$/fd/1); test -t 0; echo $?", User: "daemon", TTY: &api.TTY{Rows: 2, Cols: 2}}, "daemon\r\n0\r\n"},
		{"input", api.ExecAction{Argv: []string{"cat"}, User: "daemon", Input: "in"}, "in"},
		{"no such program", api.ExecAction{Argv: []string{"no-such-program"}, User: "daemon"}, "no-such-program: not found"},
		{"a program of root's alone", api.ExecAction{Argv: []string{"/etc/shadow"}, User: "daemon"}, "/etc/shadow: permission denied"},
	} {
		if o := operate(t, e, tt.a); o.Content != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, o.Content, tt.want)
		}
	}
}

// Nothing that the agent chose reaches a program of root's.
func TestExecRootInheritsNothing(t *testing.T) {
	t.Parallel()
	u := other(t)
	u.Home = testhelp.PublicDir(t)
	dir := testhelp.PublicDir(t)
	e, _ := start(t, executor.Config{User: u, WorkingDir: dir, AllowRoot: true, Env: []string{"SESSION_API_KEY=x", "PATH=" + dir, "LD_PRELOAD=" + dir + "/x.so", "BASH_ENV=" + dir + "/x"}})
	if err := e.Export(t.Context(), map[string]string{"ENV": dir + "/x", "PYTHONPATH": dir, "PATH": dir}, nil); err != nil {
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

// A directory is in the environment of a user's programs if root and that user alone may write to it and
// to all above it.
func TestOwnedBy(t *testing.T) {
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
		if got := executor.OwnedBy(0, at(name)); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"bin": "bin", "agents": "agents", "above/bin": "above/bin", "to-agents": "agents", "all": "", "group": ""} {
		if want != "" {
			want = at(want)
		}
		if got := executor.OwnedBy(u.UID, at(name)); got != want {
			t.Errorf("%s of the user: got %q, want %q", name, got, want)
		}
	}
	for _, home := range []string{"", ".", "bin", "bin/\x00", "/\x00", "/proc/self/fd/0", strings.Repeat("/.", 1<<20), strings.Repeat("/usr/..", 1<<20)} {
		if got := executor.OwnedBy(u.UID, home); got != "" {
			t.Errorf("%.20q: got %q", home, got)
		}
	}
}

// The end of a program of another user is the end of all that it started, also of an orphan that
// left its session, and where it is root's became another user.
func TestExecUserEnds(t *testing.T) {
	t.Parallel()
	u := other(t)
	e, _ := start(t, executor.Config{User: u, WorkingDir: testhelp.PublicDir(t), AllowRoot: true})
	gone := func(t *testing.T, o api.ExecObservation, by string) {
		t.Helper()
		if o.EndedBy == nil || *o.EndedBy != by {
			t.Errorf("got %+v, want an end by %s", o, by)
		}
		var hidden int
		if _, err := fmt.Sscan(o.Stdout, &hidden); err != nil {
			t.Fatalf("%s: got %q", by, o.Content)
		}
		testhelp.Eventually(t, func() bool { // it is a zombie until init reaps it
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", hidden))
			return err != nil || strings.Contains(string(stat), ") Z ")
		}, "%s: process %d ends", by, hidden)
	}
	for user, line := range map[string]string{
		"root":   `(setsid setpriv --reuid 65533 --regid 65533 --clear-groups sh -c 'echo $$; exec sleep 1000' &); sleep 1000`,
		"daemon": `(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000`,
		"65522":  `(setsid sh -c 'trap "" TERM; echo $$; while :; do sleep .1; done' &); sleep 1000`,
	} {
		t.Run(user+" by kill_after", func(t *testing.T) {
			t.Parallel()
			gone(t, operate(t, e, api.ExecAction{Command: line, User: user, KillAfter: 1}), "kill_after")
		})
		t.Run(user+" by cancel", func(t *testing.T) {
			t.Parallel()
			cancelled := make(chan struct{})
			cancel := sync.OnceFunc(func() { close(cancelled) })
			o, err := e.Watch(context.Background(), api.Request{Action: api.ExecAction{Command: "trap '' INT; " + line, User: user}}, api.Watch{
				Operator: true, Cancelled: cancelled, Output: func(o api.Output) {
					if len(o.Data) > 0 {
						cancel()
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			gone(t, o.(api.ExecObservation), "cancel")
		})
	}
}
