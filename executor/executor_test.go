package executor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// start starts an executor in a fresh directory, unless one is given, with an
// empty home.
func start(t *testing.T, cfg executor.Config, env ...string) (*executor.Executor, string) {
	t.Helper()
	if cfg.WorkingDir == "" {
		cfg.WorkingDir = t.TempDir()
	}
	dir, err := filepath.EvalSymlinks(cfg.WorkingDir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.WorkingDir = dir
	cfg.Env = append(append(cfg.Env, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir()), env...)
	e, err := executor.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, dir
}

func run(t *testing.T, e *executor.Executor, session, command string) api.RunObservation {
	t.Helper()
	timeout := 60.0
	o, err := e.Do(t.Context(), api.Request{Session: session, Timeout: &timeout, Action: api.RunAction{Command: command}})
	if err != nil {
		t.Fatal(err)
	}
	return o.(api.RunObservation)
}

func TestContract(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	contract.Suite(t, e.Do, dir)
}

// The environment of commands has no secret of the server, and nothing of the
// server's terminal.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{Env: []string{"SESSION_API_KEY=secret", "TERM=dumb", "PAGER=less", "KEPT=yes"}})
	got := run(t, e, "", "env").Content
	for _, want := range []string{"KEPT=yes", "TERM=xterm-256color", "PAGER=cat", "GIT_PAGER=cat"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %s in it", got, want)
		}
	}
	if strings.Contains(got, "secret") {
		t.Errorf("got %q, which holds the key", got)
	}
	if again := run(t, e, "", "env").Content; again != got {
		t.Errorf("the environment changed from %q to %q", got, again)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	var all sync.WaitGroup
	for range 4 { // the same name at once makes one session
		all.Go(func() { run(t, e, "build", "x=1") })
	}
	all.Wait()
	var names []string
	for _, s := range e.Sessions() {
		names = append(names, s.Name+" "+s.State)
	}
	if got := strings.Join(names, ", "); got != "build idle, default idle" {
		t.Errorf("got sessions %s", got)
	}
	if err := e.CloseSession(t.Context(), "build"); err != nil {
		t.Error(err)
	}
	var refused *api.Error
	if err := e.CloseSession(t.Context(), "build"); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("closing twice: got %v, want a refusal with status 404", err)
	}
	if got := run(t, e, "build", "echo x=$x").Content; got != "x=" {
		t.Errorf("got %q, want a new shell", got)
	}
	if err := e.CloseSession(t.Context(), "default"); err != nil {
		t.Error(err)
	}
	run(t, e, "", "true")
}

func TestActionsThatCannotRun(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	o, err := e.Do(t.Context(), api.Request{Action: api.InvalidAction{Of: api.RunAction{}, Reason: "because"}})
	if err != nil || o != (api.ErrorObservation{Content: "because"}) {
		t.Errorf("got %+v, %v", o, err)
	}
	o, err = e.Do(t.Context(), api.Request{Action: api.BrowseInteractiveAction{}})
	if err != nil || o != (api.ErrorObservation{Content: "Browser functionality is not supported or disabled.", Code: "unsupported"}) {
		t.Errorf("got %+v, %v", o, err)
	}
	var refused *api.Error
	if _, err = e.Do(t.Context(), api.Request{Action: api.MCPAction{}}); !errors.As(err, &refused) {
		t.Errorf("got %v, want a refusal", err)
	}
	for _, name := range []string{"run", "read", "write", "edit", "run_ipython", "browse", "browse_interactive", "call_tool_mcp"} {
		if c, ok := e.Capabilities()[name]; !ok || c.Detail == "" {
			t.Errorf("capability %s: got %+v", name, c)
		}
	}
}

// A caller that goes away learns that the outcome is unknown, and the command
// goes on.
func TestCallerGone(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := e.Do(ctx, api.Request{Action: api.RunAction{Command: "touch begun; read x; touch finished"}})
		done <- err
	}()
	for {
		if _, err := os.Stat(dir + "/begun"); err == nil {
			break
		}
		runtime.Gosched()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	timeout := 60.0
	o, err := e.Do(t.Context(), api.Request{Timeout: &timeout, Action: api.RunAction{Command: "go", IsInput: true}})
	if err != nil || o.(api.RunObservation).Metadata.ExitCode != 0 {
		t.Errorf("got %+v, %v", o, err)
	}
	if _, err := os.Stat(dir + "/finished"); err != nil {
		t.Error(err)
	}
}

// The undo history outlives the executor.
func TestUndoAfterRestart(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	cfg := executor.Config{StateDir: state, Workspace: executor.WorkspaceConfig{StateDir: filepath.Join(state, "changes")}}
	e, dir := start(t, cfg)
	text, path := "made\n", dir+"/f"
	do := func(e *executor.Executor, a api.EditAction) string {
		a.Path, a.ImplSource = path, "oh_aci"
		o, err := e.Do(t.Context(), api.Request{Action: a})
		if err != nil {
			t.Fatal(err)
		}
		return o.(api.EditObservation).Content
	}
	if got := do(e, api.EditAction{Command: "create", FileText: &text}); !strings.HasPrefix(got, "File created") {
		t.Fatal(got)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := start(t, cfg)
	if got := do(again, api.EditAction{Command: "undo_edit"}); !strings.HasPrefix(got, "Last edit") {
		t.Error(got)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want the file gone", err)
	}
}

// A limit of 0 sets no limit, as in the reference.
func TestNoLimit(t *testing.T) {
	t.Parallel()
	none := 0.0
	for _, tt := range []struct {
		command string
		soft    time.Duration
		want    string
	}{
		{"sleep 0.1; echo done", time.Hour, "\n[The command completed with exit code 0.]"}, // however slow the machine is
		{"sleep 1000", 300 * time.Millisecond, "\n[The command has no new output after 0.3 seconds. "},
	} {
		e, _ := start(t, executor.Config{SoftTimeout: tt.soft})
		o, err := e.Do(t.Context(), api.Request{Timeout: &none, Action: api.RunAction{Command: tt.command}})
		if err != nil || !strings.HasPrefix(o.(api.RunObservation).Metadata.Suffix, tt.want) {
			t.Errorf("%s: got %+v, %v", tt.command, o, err)
		}
	}
}

// Where a shell can no longer report, the answer says so and gives no number that
// could be a status.
func TestUnknownExitCode(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	o := run(t, e, "", "builtin() { :; }; readonly -f builtin")
	const want = "\n[The command ended, and its exit code is unknown.]\n[The shell was replaced, because "
	if o.Metadata.ExitCode != -1 || !strings.HasPrefix(o.Metadata.Suffix, want) {
		t.Errorf("got %+v, want -1 and %q", o.Metadata, want)
	}
	if o = run(t, e, "", "echo back"); o.Content != "back" || o.Metadata.ExitCode != 0 {
		t.Errorf("afterwards: got %+v", o)
	}
}

// How a shell ended is told in a word, too, once.
func TestShellReplaced(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	for _, tt := range []struct{ command, reason, signal string }{
		{"exit 3", "exited", ""},
		{"true", "", ""},
		{"kill -9 $$", "killed", "SIGKILL"},
		{"builtin() { :; }; readonly -f builtin", "no_report", ""},
	} {
		got := run(t, e, "", tt.command).Metadata.ShellReplaced
		reason, signal := "", ""
		if got != nil {
			if reason = got.Reason; got.Signal != nil {
				signal = *got.Signal
			}
		}
		if reason != tt.reason || signal != tt.signal {
			t.Errorf("%s: got %q, %q", tt.command, reason, signal)
		}
	}
}

// White space around a command is not part of it, in the answer either.
func TestCommandIsStripped(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	for command, want := range map[string]string{" \techo a  \r\n": "echo a", "\u00a0echo 'a  '\n\n": "echo 'a  '"} {
		if o := run(t, e, "", command); o.Command != want || o.Metadata.ExitCode != 0 {
			t.Errorf("%q: got %+v, want the command %q", command, o, want)
		}
	}
}

// A sequence that clears the screen is not counted as a line of output.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	const prefix = "[Previous command outputs are truncated. Showing the last %d lines of the output below.]\n"
	for command, lines := range map[string]int{`echo a; printf '\033[H\033[2J\033[3J'`: 0, `echo a; printf '\033[H\033[2J\033[3Jb\nc\n'`: 2} {
		if o := run(t, e, "", command); o.Metadata.Prefix != fmt.Sprintf(prefix, lines) {
			t.Errorf("%s: got %q, %q", command, o.Metadata.Prefix, o.Content)
		}
	}
}

// A command that is refused, or a key that ends none, tells as much as any.
func TestRefusedHidden(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	background := run(t, e, "", "sleep 1000 &").Metadata.PID
	if o := run(t, e, "", "C-c"); o.Metadata.PID != background || background <= 0 {
		t.Errorf("C-c on an idle shell: got process %d, want %d", o.Metadata.PID, background)
	}
	limit := 0.1
	if _, err := e.Do(t.Context(), api.Request{Timeout: &limit, Action: api.RunAction{Command: "sleep 1000"}}); err != nil {
		t.Fatal(err)
	}
	o, err := e.Do(t.Context(), api.Request{Action: api.RunAction{Command: "ls", Hidden: true}})
	if r, ok := o.(api.RunObservation); err != nil || !ok || !r.Hidden || !strings.Contains(r.Metadata.Suffix, "NOT executed") {
		t.Errorf("got %+v, %v", o, err)
	}
}

// A reset ends what runs, and the state of the shell with it.
// A static command has a shell of its own, and nothing takes that one's place.
func TestStatic(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	run(t, e, "", "mkdir sub; cd /; v=1")
	for _, c := range []struct{ command, cwd, content, dir string }{
		{"echo [$v]; pwd", "", "[]\n" + dir, dir},
		{"pwd", "/", "/", "/"},
		{"pwd", "sub", dir + "/sub", dir + "/sub"},
		{"pwd", "/no/such", dir, dir},
		{"exit 3", "", "exit", dir},
	} {
		limit := 60.0
		o, err := e.Do(t.Context(), api.Request{Action: api.RunAction{Command: c.command, IsStatic: true, Cwd: api.Directory(c.cwd)}, Timeout: &limit})
		if err != nil {
			t.Fatal(err)
		}
		got := o.(api.RunObservation)
		want := fmt.Sprintf("\n[The command completed with exit code %d.]", got.Metadata.ExitCode)
		if got.Content != c.content || *got.Metadata.WorkingDir != c.dir || got.Metadata.Suffix != want {
			t.Errorf("%s in %q: got %q in %s, %q", c.command, c.cwd, got.Content, *got.Metadata.WorkingDir, got.Metadata.Suffix)
		}
	}
}

// A reset that came before its session was closed does not touch the session that takes its place.
func TestResetOfClosedSession(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	reset, run := api.Request{Action: api.RunAction{Reset: true}}, api.Request{Action: api.RunAction{Command: "echo one"}}
	before := e.Turn(reset)
	defer before.Leave()
	if err := e.CloseSession(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	after := e.Turn(run)
	defer after.Leave()
	o, err := e.Watch(t.Context(), reset, api.Watch{Turn: before})
	if outcome, _ := api.OutcomeOf(o); err != nil || outcome != api.OutcomeNotStarted {
		t.Errorf("the reset: got %v, %v", o, err)
	}
	o, err = e.Watch(t.Context(), run, api.Watch{Turn: after})
	if outcome, _ := api.OutcomeOf(o); err != nil || outcome != api.OutcomeSucceeded {
		t.Errorf("the command in the new session: got %v, %v", o, err)
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	do := func(a api.RunAction, limit float64) api.RunObservation {
		t.Helper()
		o, err := e.Do(t.Context(), api.Request{Action: a, Timeout: &limit})
		if err != nil {
			t.Fatal(err)
		}
		return o.(api.RunObservation)
	}
	do(api.RunAction{Command: "cd / && x=1 && sleep 1000"}, 0.2)
	o := do(api.RunAction{Reset: true}, 60)
	if o.Content != "A new shell was started in "+dir+"." || o.Metadata.ExitCode != 0 || *o.Metadata.WorkingDir != dir {
		t.Errorf("got %+v", o)
	}
	limit := 60.0
	answer, err := e.Do(t.Context(), api.Request{Action: api.RunAction{Command: "echo [$x]; pwd", Reset: true}, Timeout: &limit})
	if err != nil || answer.(api.RunObservation).Content != "[]\n"+dir {
		t.Errorf("got %+v, %v", answer, err)
	}
}

// A hundred clients have a session each, none is refused, and what is beyond the limit is.
func TestManySessions(t *testing.T) {
	t.Parallel()
	const many = 100
	e, _ := start(t, executor.Config{Shell: "/bin/sh", MaxSessions: many + 1}) // and the default session
	var clients sync.WaitGroup
	for i := range many {
		clients.Go(func() {
			o, err := e.Do(t.Context(), api.Request{Session: fmt.Sprint("s", i), Timeout: new(300.0), Action: api.RunAction{Command: fmt.Sprint("sleep 0.1; echo ", i)}})
			if r, ok := o.(api.RunObservation); err != nil || !ok || r.Content != fmt.Sprint(i) {
				t.Errorf("session %d: %+v %v", i, o, err)
			}
		})
	}
	clients.Wait()
	_, err := e.Do(t.Context(), api.Request{Session: "more", Action: api.RunAction{Command: "true"}})
	if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != http.StatusTooManyRequests {
		t.Errorf("one more: %v", err)
	}
	if got := len(e.Sessions()); got != many+1 {
		t.Errorf("%d sessions, want %d", got, many+1)
	}
}

// The variables of an owner who comes while the first shell reads its start files are in it.
func TestExportDuringStart(t *testing.T) {
	t.Parallel()
	dir, home := t.TempDir(), t.TempDir()
	begun, gate := filepath.Join(home, "begun"), filepath.Join(home, "gate")
	text := fmt.Sprintf(": >>%s; until [ -e %s ]; do sleep 0.01; done\n", begun, gate)
	testhelp.WriteFile(t, filepath.Join(home, ".bashrc"), text, 0o600)
	e, err := executor.New(t.Context(), executor.Config{WorkingDir: dir, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	started, exported := make(chan error, 1), make(chan error, 1)
	go func() { started <- e.Start(t.Context()) }()
	testhelp.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, "the shell reads its start file")
	if e.Ready() == nil {
		t.Error("it is ready while its shell starts")
	}
	go func() { exported <- e.Export(t.Context(), map[string]string{"OWNER": "ada"}, nil) }()
	testhelp.Eventually(t, func() bool { return e.Exported() != nil }, "the variables are exported")
	testhelp.WriteFile(t, gate, "", 0o600)
	if err := errors.Join(<-exported, <-started, e.Ready()); err != nil {
		t.Fatal(err)
	}
	if o := run(t, e, "", "echo $OWNER"); o.Content != "ada" {
		t.Errorf("got %q", o.Content)
	}
}
