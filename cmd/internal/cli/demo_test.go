package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/testhelp"
)

// demoMachine runs demos as processes, with a state directory of its own.
type demoMachine struct {
	bin, state string
	env        []string
}

func newDemoMachine(t *testing.T, path string) demoMachine {
	t.Helper()
	return demoMachine{programs(t), shortDir(t), []string{"PATH=" + path, "HOME=" + t.TempDir()}}
}

func (m demoMachine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(m.bin, "runtimectl"), append([]string{"demo", "--on=local", "--state-dir", m.state}, args...)...)
	cmd.Env = m.env
	return cmd
}

// run returns what a demo printed and its exit code.
func (m demoMachine) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := m.command(t.Context(), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// checkClean fails if a demo left a sandbox or a process that works in one. A
// process that was hung up may need a moment to end.
func (m demoMachine) checkClean(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(m.state, "local", "[0-9a-f]*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	testhelp.Eventually(t, func() bool { return len(m.processes(t)) == 0 }, "the processes of the demo end")
}

// processes are the command lines of processes that name the state directory or
// work below it.
func (m demoMachine) processes(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		if bytes.Contains(line, []byte(m.state)) || strings.HasPrefix(cwd, m.state) {
			found = append(found, filepath.Base(dir)+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// toolbox makes a directory with links to a few programs only.
func toolbox(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The whole story, on a machine with few programs.
func TestDemo(t *testing.T) {
	t.Parallel()
	m := newDemoMachine(t, toolbox(t, "bash", "chmod", "rm", "sh", "sleep"))
	code, stdout, stderr := m.run(t)
	if code != 0 || !strings.Contains(stdout, "\n18 steps: 18 ok, 0 failed, 0 skipped;") {
		t.Errorf("exit code %d: %s\n%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"| +     echo $(( ($1 + 32) * 5 / 9 ))\n", "| not ok - 32 F", "| ok - 212 F", "| created  project/temperature.sh\n", "\n    ok, ",
		"\nNow try:\n  runtimectl create --on local --name mine\n  runtimectl sh --on local mine\n  runtimectl undo --on local mine\n",
		"\nLeft out, requests over the network that a policy allows and denies: not supported: the driver of local processes cannot keep network policies\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in %s", want, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") || !strings.HasSuffix(stderr, "note: no colours, because standard output is not a terminal\n") {
		t.Errorf("colours without a terminal, or no reason why not: %q", stderr)
	}
	m.checkClean(t)
}

func TestDemoFailsWithAStep(t *testing.T) {
	t.Parallel()
	tools := toolbox(t, "bash", "rm", "sh", "sleep")
	testhelp.WriteProgram(t, filepath.Join(tools, "chmod"), "#!/bin/sh\necho '#!/bin/sh\necho Bonjour' >greeter.sh\nexec /bin/chmod \"$@\"\n")
	m := newDemoMachine(t, tools)
	code, stdout, stderr := m.run(t)
	const want = "the output has no \"Enter your name: Hello, TestUser!\"\n"
	if code != 1 || !strings.Contains(stdout, "\n18 steps: 3 ok, 1 failed, 14 skipped;") || !strings.HasSuffix(stderr, "runtimectl: the demo failed: step 4: "+want) {
		t.Errorf("exit code %d: %s\n%s", code, stdout, stderr)
	}
	if !strings.Contains(stdout, "\n    FAILED, ") || !strings.Contains(stdout, want) || !strings.Contains(stdout, "skipped: an earlier step failed\n") {
		t.Errorf("the reasons are missing: %s", stdout)
	}
	m.checkClean(t)
}

// Nothing is left of a demo that is interrupted before a step, whether the shell
// or a command that does not end is at work.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]string{"at the start": " 1  ", "in the tests": " 9  ", "in a long command": "17  "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newDemoMachine(t, os.Getenv("PATH"))
			code := 0
			for try := 0; code == 0 && try < 20; try++ {
				code = m.interrupt(t, step) // 0: it was over before the signal came
			}
			if code != command.ExitInterrupted {
				t.Errorf("it ends with exit code %d, want %d", code, command.ExitInterrupted)
			}
			m.checkClean(t)
		})
	}
}

// interrupt starts the demo, sends it a Ctrl-C when it prints the line of a step,
// and returns its exit code.
func (m demoMachine) interrupt(t *testing.T, step string) int {
	t.Helper()
	cmd := m.command(t.Context())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), step) {
			_ = cmd.Process.Signal(os.Interrupt) // it may be over
		}
	}
	_ = cmd.Wait() // the code says it
	return cmd.ProcessState.ExitCode()
}

func TestDemoIntoAClosedPipe(t *testing.T) {
	t.Parallel()
	m := newDemoMachine(t, toolbox(t, "bash", "chmod", "rm", "sh", "sleep"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd := m.command(t.Context())
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &errs
	err = cmd.Run()
	w.Close()
	if cmd.ProcessState.ExitCode() != 141 || strings.Contains(errs.String(), "runtimectl:") {
		t.Errorf("it ends with %v: %s", err, errs.String())
	}
	m.checkClean(t)
}

func TestDemoKeep(t *testing.T) {
	t.Parallel()
	m := newDemoMachine(t, toolbox(t, "bash", "chmod", "rm", "sh", "sleep"))
	code, _, stderr := m.run(t, "--keep")
	kept, err := filepath.Glob(filepath.Join(m.state, "local", "[0-9a-f]*"))
	if err != nil || code != 0 || len(kept) != 1 || !strings.Contains(stderr, "note: sandbox "+filepath.Base(kept[0])+" is kept\n") {
		t.Fatalf("exit code %d, kept %v, %v: %s", code, kept, err, stderr)
	}
	got, err := os.ReadFile(filepath.Join(kept[0], "work", "greeter.sh"))
	if want := "#!/bin/sh\nprintf 'Enter your name: '; read -r name; echo \"Hello, $name!\"\n"; err != nil || string(got) != want {
		t.Errorf("greeter.sh is %q, %v\nwant %q", got, err, want)
	}
	if code, _, stderr := inProcess(t.Context(), nil, "rm", "--on=local", "--state-dir", m.state, filepath.Base(kept[0])); code != 0 {
		t.Errorf("removing it: exit code %d, %s", code, stderr)
	}
	m.checkClean(t)
}

func TestStepCheck(t *testing.T) {
	t.Parallel()
	ran := func(exit int, suffix string) api.Observation {
		return api.RunObservation{Metadata: api.RunMetadata{ExitCode: exit, Suffix: suffix}}
	}
	run := api.RunAction{Command: "x"}
	for name, tt := range map[string]struct {
		step   step
		answer api.Observation
		output string
		want   string // "" for success
	}{
		"success":      {step{action: run}, ran(0, ""), "", ""},
		"failure":      {step{action: run}, ran(2, ""), "", "the exit code is 2 instead of 0"},
		"unfinished":   {step{action: run, exit: unfinished}, ran(-1, "\n[The command timed out after 1 seconds]"), "", ""},
		"not started":  {step{action: run, exit: unfinished}, ran(-1, ""), "", "the command was not started"},
		"refused":      {step{action: run}, api.ErrorObservation{}, "", "the answer is an error"},
		"text":         {step{holds: []string{"b", "c"}}, api.ReadObservation{}, "abc", ""},
		"missing text": {step{holds: []string{"b", "d"}}, api.ReadObservation{}, "abc", `the output has no "d"`},
	} {
		got := ""
		if err := tt.step.check(tt.answer, tt.output); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
