package executor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// program writes a script of a shell.
func program(t *testing.T, path, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	testhelp.WriteProgram(t, path, "#!/bin/sh\n"+script+"\n")
}

// The limit of an action covers the start of what it needs: the answer comes when
// the limit is over, and not when the start gives up, and nothing ran.
func TestLimitCoversStart(t *testing.T) {
	dir := t.TempDir()
	slow := filepath.Join(dir, "slow")
	testhelp.WriteFile(t, slow, "", 0o600)
	wait := "while [ -e " + slow + " ]; do /bin/sleep 0.01; done"
	for _, name := range []string{"python3", "chromium"} {
		program(t, filepath.Join(dir, "bin", name), wait+"\necho absent it is a script >&3; exit 1")
	}
	home := filepath.Join(dir, "home")
	shell := bashPath(t)
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	e, _ := start(t, executor.Config{Browser: true, Shell: shell}, "HOME="+home)
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	testhelp.WriteFile(t, filepath.Join(home, ".bashrc"), wait+"\n", 0o600)
	if _, err := e.UpdateMCP([]api.MCPServer{{Name: "s", Command: "/bin/sh", Args: []string{"-c", wait}}}); err != nil {
		t.Fatal(err)
	}
	short := 0.5
	ask := func(session string, a api.Action) string {
		o, err := e.Do(t.Context(), api.Request{Session: session, Timeout: &short, Action: a})
		switch o := o.(type) {
		case api.RunObservation:
			return o.Content
		case api.IPythonObservation:
			return o.Failure + ": " + o.Content
		case api.ErrorObservation:
			return o.Content
		default:
			t.Errorf("%+v: got %+v, %v", a, o, err)
			return ""
		}
	}
	ran := filepath.Join(dir, "ran")
	touch := api.RunAction{Command: "/bin/touch " + ran}
	for _, test := range []struct {
		name    string
		session string
		action  api.Action
		want    string
	}{
		{"shell", "new", touch, "ERROR: the shell did not start within 0.5 seconds, and the command did not run; the start goes on"},
		{"shell that still starts", "new", touch, "ERROR: the shell did not start within 0.5 seconds, and the command did not run; the start goes on"},
		{"shell of one command", "", api.RunAction{Command: touch.Command, IsStatic: true}, "ERROR: the shell did not start within 0.5 seconds, and the command did not run; the start goes on"},
		{"kernel", "", api.IPythonAction{Code: "open('" + ran + "', 'w')"}, "timed_out: [Execution timed out (0.5 seconds).]\n[The cell did not run: the kernel is still starting, and the next cell will find it.]"},
		{"browser", "", api.BrowseInteractiveAction{BrowserActions: "noop(1)"}, "The browser is still starting: nothing was done, and the next step will find it."},
		{"MCP server", "", api.MCPAction{Name: "x"}, `MCP server "s" was not ready within 500ms; it may be later`},
	} {
		if got := ask(test.session, test.action); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a command ran after its limit")
	}

	// The next action finds the start of the one before.
	if err := os.Remove(slow); err != nil {
		t.Fatal(err)
	}
	if got := run(t, e, "new", "echo $((1+1))").Content; got != "2" {
		t.Errorf("the next command: got %q", got)
	}
	long := 60.0
	o, err := e.Do(t.Context(), api.Request{Timeout: &long, Action: api.IPythonAction{Code: "1"}})
	if failed, ok := o.(api.ErrorObservation); err != nil || ok && !strings.Contains(failed.Content, "it is a script") {
		t.Errorf("the next cell: got %+v, %v", o, err) // where there is another Python, it is used
	}
}

// A program that its owner has a lease on starts after 45 seconds; the limit of a
// call is its caller's all the same.
func TestLimitCoversLeasedProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server")
	program(t, path, "cat")
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this file system has no leases: %v", err)
	}
	e, _ := start(t, executor.Config{})
	if _, err := e.UpdateMCP([]api.MCPServer{{Name: "s", Command: path}}); err != nil {
		t.Fatal(err)
	}
	short := 0.5
	o, err := e.Do(t.Context(), api.Request{Timeout: &short, Action: api.MCPAction{Name: "x"}})
	if failed, ok := o.(api.ErrorObservation); err != nil || !ok || !strings.Contains(failed.Content, "was not ready within 500ms") {
		t.Errorf("got %+v, %v", o, err)
	}
}

func bashPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	return path
}

// agent_skills are in a kernel's first cell, however long their import takes, and
// one that fails is told of.
func TestAgentSkills(t *testing.T) {
	for name, test := range map[string]struct{ skills, absent, want string }{
		"there":       {skills: "def skill(): return 7", want: "7"},
		"broken":      {skills: "1/0", want: "[agent_skills could not be imported, and this kernel does not have them: ZeroDivisionError: division by zero]"},
		"incomplete":  {skills: "import openhands.missing", want: "[agent_skills could not be imported, and this kernel does not have them: ModuleNotFoundError: No module named 'openhands.missing']"},
		"ends":        {skills: "import os; os._exit(3)", want: "[agent_skills could not be imported, and this kernel does not have them: the kernel ended with status 3]"},
		"not present": {absent: "yes", want: "[Code executed successfully with no output]"},
	} {
		t.Run(name, func(t *testing.T) {
			lib := t.TempDir()
			if test.absent == "" {
				at := lib
				for _, part := range []string{"openhands", "runtime", "plugins", "agent_skills"} {
					at = filepath.Join(at, part)
					if err := os.Mkdir(at, 0o755); err != nil {
						t.Fatal(err)
					}
					testhelp.WriteFile(t, filepath.Join(at, "__init__.py"), "", 0o600)
				}
				testhelp.WriteFile(t, filepath.Join(at, "agentskills.py"), test.skills+"\n", 0o600)
			}
			e, _ := startNotebook(t, executor.Config{Plugins: []string{"agent_skills", "jupyter"}, Env: []string{"PYTHONPATH=" + lib}})
			code := "try: print(skill())\nexcept NameError: pass"
			for i := range 2 { // of two kernels
				got, ok := cell(t, e, "", api.IPythonAction{Code: code}).(api.IPythonObservation)
				if !ok || got.Content != test.want {
					t.Errorf("first cell of kernel %d: got %+v, want %q", i, got, test.want)
				}
				if got, ok := cell(t, e, "", api.IPythonAction{Code: "'again'"}).(api.IPythonObservation); !ok || got.Content != "'again'" {
					t.Errorf("second cell of kernel %d: got %+v", i, got)
				}
				cell(t, e, "", api.IPythonAction{Code: "exit()"})
			}
		})
	}
}
