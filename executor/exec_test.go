package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// execute runs a program to its end.
func execute(t *testing.T, e *executor.Executor, a api.ExecAction) api.ExecObservation {
	t.Helper()
	o, err := e.Do(t.Context(), api.Request{Action: a, Timeout: new(60.0)})
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	return o.(api.ExecObservation)
}

// A program of a server of root's has the user's rights and nothing of the server.
func TestExecDropsToUser(t *testing.T) {
	t.Parallel()
	u := other(t)
	u.Home = testhelp.PublicDir(t)
	dir := testhelp.PublicDir(t)
	secret := filepath.Join(t.TempDir(), "secret")
	testhelp.WriteFile(t, secret, "s", 0o600)
	e, _ := start(t, executor.Config{User: u, WorkingDir: dir, Env: []string{"SESSION_API_KEY=the-key"}})
	server := fmt.Sprint(os.Getpid())
	for _, test := range []struct{ name, line, want string }{
		{"user", "id -u; id -g; pwd; echo $HOME $USER $TERM", fmt.Sprintf("%d\n%d\n%s\n%s nobody xterm-256color\n", u.UID, u.GID, dir, u.Home)},
		{"groups", "id -G | tr ' ' '\\n' | grep -vx -e 65534 -e nogroup; true", ""},
		{"rights", "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | grep -v '0000000000000000$'; true", ""},
		{"key", "env | grep -c the-key; true", "0\n"},
		{"environment of the server", "cat /proc/" + server + "/environ 2>/dev/null | wc -c", "0\n"},
		{"memory of the server", "cat /proc/" + server + "/maps 2>/dev/null | wc -c", "0\n"},
		{"signals to the server", "kill -0 " + server + " 2>/dev/null; echo $?", "1\n"},
		{"files of root's", "cat /etc/shadow " + secret + " 2>/dev/null; touch /etc/actiond-test 2>/dev/null; ls /root 2>/dev/null; echo none", "none\n"},
		{"goes before the server", "[ $(cat /proc/self/oom_score_adj) -gt $(cat /proc/" + server + "/oom_score_adj) ]; echo $?", "0\n"},
		{"terminal", "stat -c %u $(readlink /proc/$$/fd/1)", fmt.Sprintf("%d\r\n", u.UID)},
	} {
		a := api.ExecAction{Command: test.line}
		if test.name == "terminal" {
			a.TTY = &api.TTY{Rows: 2, Cols: 2}
		}
		if o := execute(t, e, a); o.Content != test.want {
			t.Errorf("%s: got %q, want %q", test.name, o.Content, test.want)
		}
	}
	// The program's variables are not obeyed with the rights of the server.
	probe := filepath.Join(dir, "probe")
	testhelp.WriteProgram(t, probe, "#!/bin/sh\nid -u >>"+dir+"/ran\n")
	o := execute(t, e, api.ExecAction{Argv: []string{"probe"}, Env: api.Variables{"PATH": dir + ":/usr/bin:/bin", "BASH_ENV": probe, "ENV": probe, "LD_PRELOAD": probe}})
	ran, err := os.ReadFile(dir + "/ran")
	if err != nil || strings.Trim(string(ran), fmt.Sprintf("%d\n", u.UID)) != "" {
		t.Errorf("got %q by %q, %v", o.Content, ran, err)
	}
}

// The part left out of a long output is counted to the byte, and no character is cut.
func TestExecLongOutput(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	for _, test := range []struct {
		name, line string
		each       string // what the output repeats
		total      int
	}{
		{"ASCII", "seq -f 'line %06g' 1 100000", "", 1200000},
		{"of two bytes", "yes ééé | head -c 1400000", "ééé\n", 1400000},
		{"of four bytes and one", "yes '🚀x' | head -c 1200000", "🚀x\n", 1200000},
		{"in content alone", "yes ééé | head -c 70000", "ééé\n", 70000},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := execute(t, e, api.ExecAction{Command: test.line})
			if !o.Truncated || o.StdoutTotal != int64(test.total) || o.StdoutBytes != nil {
				t.Errorf("got %t, %d bytes, and %d that are not UTF-8", o.Truncated, o.StdoutTotal, len(o.StdoutBytes))
			}
			for what, text := range map[string]string{"content": o.Content, "standard output": o.Stdout} {
				head, rest, cut := strings.Cut(text, "\n[... ")
				note, tail, _ := strings.Cut(rest, " bytes are left out ...]\n")
				missing := 0
				if cut {
					if _, err := fmt.Sscan(note, &missing); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
				}
				if len(head)+missing+len(tail) != test.total {
					t.Errorf("%s: %d bytes, %d left out, %d bytes: not %d", what, len(head), missing, len(tail), test.total)
				}
				if strings.Contains(text, "\ufffd") {
					t.Errorf("%s: a character was cut", what)
				}
				if what == "content" && (len([]rune(head)) != 15000 || len([]rune(tail)) != 15000) {
					t.Errorf("content: %d and %d characters", len([]rune(head)), len([]rune(tail)))
				}
				if test.each != "" && !strings.HasPrefix(head, test.each) {
					t.Errorf("%s: begins with %.20q", what, head)
				}
			}
		})
	}
}

// Streamed output is of its stream, at its offset, whole and exact.
func TestExecStream(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	var got [2]bytes.Buffer
	pid := 0
	o, err := e.Watch(t.Context(), api.Request{Action: api.ExecAction{Command: "head -c 3000000 /dev/urandom | tee /dev/stderr | cksum; exit 9"}}, api.Watch{Output: func(o api.Output) {
		if pid == 0 {
			pid = o.PID
			return
		}
		out := &got[0]
		if o.Stream == api.StreamStderr {
			out = &got[1]
		}
		if o.Offset != int64(out.Len()) || o.PID != 0 {
			t.Errorf("%s at %d behind %d", o.Stream, o.Offset, out.Len())
		}
		out.Write(o.Data)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ended := o.(api.ExecObservation)
	if got[0].Len()+got[1].Len() != int(ended.StdoutTotal+ended.StderrTotal) || got[1].Len() != 3000000 || pid == 0 || *ended.PID != pid || *ended.ExitCode != 9 {
		t.Errorf("got %d and %d bytes of process %d, and %+v", got[0].Len(), got[1].Len(), pid, ended.ExitCode)
	}
	sum := execute(t, e, api.ExecAction{Argv: []string{"cksum"}, Input: "x"})
	if len(ended.StderrBytes) == 0 || !strings.HasSuffix(got[0].String(), " 3000000\n") || sum.Stdout == "" {
		t.Errorf("got %q", got[0].String())
	}
}

// Who leaves ends nothing; a directory that is not there, and an end of the executor, do.
func TestExecGoesOn(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	told := 0
	_, err := e.Watch(ctx, api.Request{Action: api.ExecAction{Command: "echo x; until test -e go; do sleep .01; done; echo y; touch done"}}, api.Watch{Output: func(api.Output) {
		if told++; told == 2 {
			cancel(os.ErrClosed)
		}
	}})
	if err != os.ErrClosed { //nolint:errorlint // the cause itself
		t.Fatalf("got %v", err)
	}
	if o := execute(t, e, api.ExecAction{Command: "touch go; until test -e done; do sleep .01; done"}); *o.ExitCode != 0 || told != 2 {
		t.Errorf("got %+v, and %d calls", o, told)
	}
	o := execute(t, e, api.ExecAction{Command: "true", Cwd: "none"})
	if o.ExitCode == nil || *o.ExitCode != 126 || o.Content != "/bin/sh: cannot begin in "+dir+"/none: no such file or directory" {
		t.Errorf("got %+v", o)
	}
	if err := e.Export(t.Context(), map[string]string{"OWNER": "me"}, nil); err != nil {
		t.Fatal(err)
	}
	if o := execute(t, e, api.ExecAction{Command: "echo $OWNER"}); o.Content != "me\n" {
		t.Errorf("got %q", o.Content)
	}
}

// A program that inherits begins as its session's shell was left, and has marks, streams and an end of its own.
func TestExecInherits(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	sub := filepath.Join(dir, "it's here")
	testhelp.WriteFile(t, filepath.Join(sub, "f"), "", 0o644)
	act(t, e, api.RunAction{Command: "cd \"it's here\" && export A='a b' && f() { echo \"f $1\"; }; alias g='f alias'; export PATH=\"/nowhere:$PATH\" actiond_tree=x actiond_command='echo replaced' actiond_dir=/", Dialect: api.DialectGemini})
	mark := execute(t, e, api.ExecAction{Command: "echo $ACTIOND_TREE"}).Content
	for _, test := range []struct{ line, want string }{
		{"pwd; echo $PWD", sub + "\n" + sub + "\n"},
		{"echo \"$A\" ${PATH%%:*}", "a b /nowhere\n"},
		{"f x\ng", "f x\nf alias\n"},
		{"echo [$1] [$#]; read x; echo [$x]", "[] [0]\n[]\n"},
		{"# comment\ncat <<EOF\nhere\nEOF", "here\n"},
		{"-x 2>/dev/null; echo $?", "127\n"},
		{"exit 3", ""},
		{"echo [$ACTIOND_SESSIONS]", "[]\n"},
		{"echo ${#ACTIOND_TREE}", fmt.Sprintln(len(mark) - 1)},
	} {
		o := execute(t, e, api.ExecAction{Command: test.line, Inherit: true})
		if o.Content != test.want || (test.line == "exit 3") != (*o.ExitCode == 3) {
			t.Errorf("%s: got %q and %d, want %q", test.line, o.Content, *o.ExitCode, test.want)
		}
	}
	if o := execute(t, e, api.ExecAction{Command: "pwd", Inherit: true, Cwd: ".."}); o.Content != dir+"\n" {
		t.Errorf("relative: got %q, want %s", o.Content, dir)
	}
	if o := execute(t, e, api.ExecAction{Command: "pwd", Inherit: true, Cwd: "none"}); o.ExitCode == nil || *o.ExitCode == 0 {
		t.Errorf("no directory: got %+v", o)
	}
	o, err := e.Do(t.Context(), api.Request{Action: api.ExecAction{Command: "pwd; echo $A", Inherit: true}, Session: "other"})
	if got := api.Content(o); err != nil || got != dir+"\n\n" {
		t.Errorf("a session without a shell: got %q, %v", got, err)
	}
}

// The aliases of a shell that prints them as assignments become no variables.
func TestExecInheritsOfDash(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{Shell: "dash"})
	act(t, e, api.RunAction{Command: "export A=a; alias g='f alias'"})
	if o := execute(t, e, api.ExecAction{Command: "echo $A [$g]", Inherit: true}); o.Content != "a []\n" {
		t.Errorf("got %q", o.Content)
	}
}
