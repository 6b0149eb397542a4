package executor_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// cell runs a cell and returns what its observation says.
func cell(t *testing.T, e *executor.Executor, session string, a api.IPythonAction) api.Observation {
	t.Helper()
	timeout := 60.0
	o, err := e.Do(t.Context(), api.Request{Session: session, Timeout: &timeout, Action: a})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const debianPython = "/usr/bin/python3"

// startNotebook starts an executor that finds Debian's Python first.
func startNotebook(t *testing.T, cfg executor.Config) (*executor.Executor, string) {
	t.Helper()
	if exec.CommandContext(t.Context(), debianPython, "-c", "import ipykernel").Run() != nil {
		t.Skip("ipykernel is not installed: apt-get install python3-ipykernel")
	}
	t.Setenv("PATH", "/usr/bin:/bin")
	return start(t, cfg)
}

func TestIPython(t *testing.T) {
	e, dir := startNotebook(t, executor.Config{Env: []string{"SESSION_API_KEY=secret"}})
	if c := e.Capabilities()["run_ipython"]; !c.Available || !strings.Contains(c.Detail, debianPython) {
		t.Errorf("the capability is %+v", c)
	}
	suffix := func(dir string) string {
		return "\n[Jupyter current working directory: " + dir + "]\n[Jupyter Python interpreter: " + debianPython + "]"
	}
	check := func(code, want string) {
		t.Helper()
		got, ok := cell(t, e, "", api.IPythonAction{Code: code, IncludeExtra: true}).(api.IPythonObservation)
		if !ok || got.Content != want || got.Code != code || got.ImageURLs != nil {
			t.Errorf("%s: got %+v, want the content %q", code, got, want)
		}
	}
	check("1 + 1", "2"+suffix(dir))
	check("print('a  \\n\\n')", "a"+suffix(dir))
	check("x = 1", "[Code executed successfully with no output]"+suffix(dir))
	check("import os; os.environ.get('SESSION_API_KEY')", "[Code executed successfully with no output]"+suffix(dir))
	run(t, e, "", "mkdir deep && cd deep")
	check("os.getcwd()", "'"+dir+"/deep'"+suffix(dir+"/deep"))
	got := cell(t, e, "", api.IPythonAction{Code: "print('a  \\n')"})
	if o, ok := got.(api.IPythonObservation); !ok || o.Content != "a" {
		t.Errorf("without extras: got %+v", got)
	}
	none := 0.0
	if o, err := e.Do(t.Context(), api.Request{Timeout: &none, Action: api.IPythonAction{Code: "import time; time.sleep(0.1); print(1)"}}); err != nil || o.(api.IPythonObservation).Content != "1" {
		t.Errorf("with a limit of 0, which is none: got %+v, %v", o, err)
	}
	check("os._exit(3)", "[The kernel ended with status 3. The next cell runs in a new one, without the variables and imports of this one.]"+suffix(dir+"/deep"))

	for code, want := range map[string]string{"1 / 0": "command_failed", "1 / 1": "", "os._exit(3)": "command_failed"} {
		if o, ok := cell(t, e, "", api.IPythonAction{Code: "import os; " + code}).(api.IPythonObservation); !ok || o.Failure != want {
			t.Errorf("%s: got %+v, want the failure %q", code, o, want)
		}
	}

	cell(t, e, "", api.IPythonAction{Code: "import time"}) // the start is part of the time
	short := 1.0
	o, err := e.Do(t.Context(), api.Request{Timeout: &short, Action: api.IPythonAction{Code: "import time; print('s', flush=True); time.sleep(300)"}})
	if c, ok := o.(api.IPythonObservation); err != nil || !ok || c.Content != "s\n[Execution timed out (1.0 seconds).]" || c.Failure != "timed_out" {
		t.Errorf("got %+v, %v", o, err)
	}
	// The kernel of another session ends with it.
	cell(t, e, "other", api.IPythonAction{Code: "1"})
	if err := e.CloseSession(t.Context(), "other"); err != nil {
		t.Error(err)
	}
}

// sessionsOf describes the sessions, without what differs from run to run.
func sessionsOf(e *executor.Executor) string {
	var all []string
	for _, s := range e.Sessions() {
		text := fmt.Sprintf("%s %s shell %t", s.Name, s.State, s.Shell != "" && s.PID > 0)
		if k := s.Kernel; k != nil {
			text += fmt.Sprintf(" kernel %s %s %t", k.State, k.Python, k.PID > 0)
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

// A cell's text is told while it comes, before the observation.
func TestIPythonStreams(t *testing.T) { //nolint:paralleltest // it sets PATH
	e, _ := startNotebook(t, executor.Config{})
	timeout := 60.0
	var told strings.Builder
	req := api.Request{Timeout: &timeout, Action: api.IPythonAction{Code: "print('one')\nprint('two')"}}
	o, err := e.Watch(t.Context(), req, api.Watch{Output: func(p api.Output) {
		if p.Offset != int64(told.Len()) || p.Missed != 0 {
			t.Errorf("got %+v after %q", p, told.String())
		}
		told.Write(p.Data)
	}})
	if err != nil || o.(api.IPythonObservation).Content != "one\ntwo" || told.String() != "one\ntwo\n" {
		t.Errorf("got %+v, %v, told %q", o, err, told.String())
	}
}

// A session shows its kernel, beside its shell or alone, and can be closed
// whatever it does.
func TestKernelsAreSessions(t *testing.T) {
	e, dir := startNotebook(t, executor.Config{})
	check := func(want ...string) {
		t.Helper()
		if got := sessionsOf(e); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
	const fresh = "default idle shell true"
	check(fresh)
	cell(t, e, "", api.IPythonAction{Code: "1"})
	cell(t, e, "nb", api.IPythonAction{Code: "1"})
	const both = fresh + " kernel idle " + debianPython + " true"
	check(both, "nb idle shell false kernel idle "+debianPython+" true")
	alone := e.Sessions()[1]
	if alone.WorkingDir != dir || !alone.Started.Equal(alone.Kernel.Since) {
		t.Errorf("got %+v", alone)
	}

	if err := syscall.Kill(alone.Kernel.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool { return e.Sessions()[1].Kernel.State != "idle" }, "the kernel ends")
	check(both, "nb idle shell false kernel ended  false")
	if o, ok := cell(t, e, "nb", api.IPythonAction{Code: "2"}).(api.IPythonObservation); !ok || !strings.Contains(o.Content, "was killed by signal 9") {
		t.Errorf("got %+v, want to be told of the old kernel", o)
	}

	answer := make(chan api.Observation, 1)
	began := filepath.Join(dir, "began")
	go func() {
		o, _ := e.Do(t.Context(), api.Request{Session: "nb", Action: api.IPythonAction{Code: "open('" + began + "', 'w').close(); import time; time.sleep(300)"}})
		answer <- o
	}()
	testhelp.Eventually(t, func() bool { _, err := os.Stat(began); return err == nil }, "the cell begins")
	check(both, "nb busy shell false kernel busy "+debianPython+" true")
	waiting := make(chan api.Observation, 1)
	go func() {
		o, _ := e.Do(t.Context(), api.Request{Session: "nb", Action: api.IPythonAction{Code: "3"}})
		waiting <- o
	}()
	if err := e.CloseSession(t.Context(), "nb"); err != nil {
		t.Error(err)
	}
	if o, ok := (<-answer).(api.IPythonObservation); !ok || o.Failure != "command_failed" || !strings.Contains(o.Content, "was killed by signal 9") {
		t.Errorf("got %+v, want the end of the kernel", o)
	}
	switch o := (<-waiting).(type) { // whether it came before the end or after
	case api.IPythonObservation:
		if o.Content != "3" {
			t.Errorf("got %+v", o)
		}
	case api.ErrorObservation:
		if !strings.Contains(o.Content, "was closed before the cell began") {
			t.Errorf("got %+v", o)
		}
	default:
		t.Errorf("got %+v", o)
	}
	_ = e.CloseSession(t.Context(), "nb")
	check(both)
	refused, ok := errors.AsType[*api.Error](e.CloseSession(t.Context(), "nb"))
	if !ok || refused.Status != 404 {
		t.Errorf("closing what is not there: got %v, want a refusal with status 404", refused)
	}
	if err := e.CloseSession(t.Context(), ""); err != nil {
		t.Error(err)
	}
	check()
}

// A kernel has the rights of the sandbox's user and no others, and what it
// has to listen on is that user's alone.
func TestIPythonUser(t *testing.T) {
	u := other(t)
	e, _ := startNotebook(t, executor.Config{User: u, WorkingDir: testhelp.PublicDir(t)})
	code := "import os, sys; d = os.path.dirname(sys.argv[1])\n" +
		"print(os.getresuid(), os.getresgid(), 0 in os.getgroups(), os.stat(d).st_uid == os.getuid(), oct(os.stat(d).st_mode & 0o777), oct(os.stat(sys.argv[1]).st_mode & 0o777))\n" +
		"open('/etc/shadow')"
	got := cell(t, e, "", api.IPythonAction{Code: code}).(api.IPythonObservation).Content
	ids := fmt.Sprintf("(%d, %[1]d, %[1]d) (%d, %[2]d, %[2]d)", u.UID, u.GID)
	if !strings.HasPrefix(got, ids+" False True 0o700 0o600\n") || !strings.Contains(got, "PermissionError") {
		t.Errorf("got %q", got)
	}
}

func TestIPythonOff(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{Plugins: []string{"vscode"}})
	_, err := e.Do(t.Context(), api.Request{Action: api.IPythonAction{Code: "1"}})
	if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Status != 400 {
		t.Errorf("got %v, want a refusal", err)
	}
	if c := e.Capabilities()["run_ipython"]; c.Available || !strings.Contains(c.Detail, "--plugins") {
		t.Errorf("the capability is %+v", c)
	}
}

// A cell is where the shell is, however that is called and whatever became of
// it, and does not wait for the shell.
func TestIPythonFollowsShell(t *testing.T) {
	e, dir := startNotebook(t, executor.Config{Shell: "/bin/bash"})
	where := func(want string) {
		t.Helper()
		o, ok := cell(t, e, "", api.IPythonAction{Code: "import os; print(os.getcwdb())"}).(api.IPythonObservation)
		if !ok || o.Content != want {
			t.Errorf("got %+v, want %s", o, want)
		}
	}
	bytesOf := func(path string) string { return "b'" + path + "'" }
	run(t, e, "", `mkdir $'a\'b"c\nd\xff' && cd a*`)
	where(`b'` + dir + `/a\'b"c\nd\xff'`)
	run(t, e, "", "cd .. && mkdir one two && cd one")
	where(bytesOf(dir + "/one"))
	run(t, e, "", "mv ../one ../three")
	where(bytesOf(dir + "/three"))
	run(t, e, "", "cd ../two && rmdir ../two")
	if o, ok := cell(t, e, "", api.IPythonAction{Code: "1 + 1"}).(api.IPythonObservation); !ok || o.Content != "2" {
		t.Errorf("in a directory that is gone: got %+v", o)
	}
	run(t, e, "", "cd "+dir)
	where(bytesOf(dir))

	short := 0.1
	o, err := e.Do(t.Context(), api.Request{Timeout: &short, Action: api.RunAction{Command: "sleep 300"}})
	if r, ok := o.(api.RunObservation); err != nil || !ok || r.Metadata.ExitCode != -1 {
		t.Fatalf("got %+v, %v, want a command that runs", o, err)
	}
	where(bytesOf(dir))
}
