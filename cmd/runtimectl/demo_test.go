package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// machine is where a demo runs in a test: its directories are its own.
type machine struct {
	bin, temp string
	env       []string
}

func newMachine(t *testing.T, path string) machine {
	t.Helper()
	temp := t.TempDir()
	env := []string{"PATH=" + path, "HOME=" + t.TempDir(), "TMPDIR=" + temp}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	return machine{programs(t), temp, env}
}

// demo plays on this machine: integration tests play in containers.
func (m machine) demo(ctx context.Context, args ...string) *exec.Cmd {
	if !slices.Contains(args, "--url") {
		args = append(args, "--local")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(m.bin, "runtimectl"), append([]string{"demo"}, args...)...)
	cmd.Env = m.env
	return cmd
}

// run returns what a demo printed and its exit code.
func (m machine) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := m.demo(t.Context(), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if ok {
		code = exit.ExitCode()
	}
	return code, out.String(), errs.String()
}

// checkClean fails where a file or a process of the demo is left. The kernel
// hangs up what ran in the shell when the shell is gone; a program with much
// memory is still going for a moment after that, so processes are given time.
func (m machine) checkClean(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(m.temp)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 {
		t.Errorf("left in the temporary directory: %v", entries)
	}
	deadline := time.Now().Add(20 * time.Second)
	for left := m.processes(t); len(left) > 0; left = m.processes(t) {
		if time.Now().After(deadline) {
			t.Fatalf("left running: %q", left)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// processes are the command lines of processes that name the machine's directory
// or stand in it.
func (m machine) processes(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		if bytes.Contains(line, []byte(m.temp)) || strings.HasPrefix(cwd, m.temp) {
			found = append(found, filepath.Base(dir)+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// works tells whether a program works in the machine's environment.
func (m machine) works(t *testing.T, name string, args ...string) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = m.env
	return cmd.Run() == nil
}

func decodeSteps(t *testing.T, stdout string) []stepJSON {
	t.Helper()
	var steps []stepJSON
	for line := range strings.Lines(stdout) {
		var s stepJSON
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		steps = append(steps, s)
	}
	return steps
}

func statuses(steps []stepJSON) []status {
	var all []status
	for _, s := range steps {
		all = append(all, s.Status)
	}
	return all
}

// storySteps is how many steps the story has.
const storySteps = 15

func TestDemo(t *testing.T) {
	t.Parallel()
	m := newMachine(t, os.Getenv("PATH"))
	want := slices.Repeat([]status{passed}, storySteps)
	if !m.works(t, "python3", "--version") {
		want[3] = skipped
	}
	code, stdout, stderr := m.run(t, "--output", "json")
	steps := decodeSteps(t, stdout)
	if got := statuses(steps); code != 0 || !slices.Equal(got, want) {
		t.Fatalf("exit code %d, statuses %v\nwant 0, %v\n%s\n%s", code, got, want, stdout, stderr)
	}
	for i, s := range steps {
		if s.Step != i+1 || s.Status == passed && s.Milliseconds <= 0 {
			t.Errorf("step %d of the list is %d and took %v ms", i+1, s.Step, s.Milliseconds)
		}
	}
	m.checkClean(t)

	observe := func(step int) api.Observation {
		o, err := api.DecodeObservation(steps[step-1].Observation)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		return o
	}
	if want[3] == passed {
		if got := observe(4).(api.RunObservation).Content; got != "Enter your name: Hello, TestUser!" {
			t.Errorf("the greeter says %q", got)
		}
	}
	broken := observe(9).(api.RunObservation)
	mended := observe(11).(api.RunObservation)
	if broken.Metadata.ExitCode != 1 || mended.Metadata.ExitCode != 0 {
		t.Errorf("the tests end with %d when broken and %d when mended", broken.Metadata.ExitCode, mended.Metadata.ExitCode)
	}
	if got, want := changedLines(steps[7].Diff), []string{"-\t*b = boolValue(v)", "+\t*b = boolValue(!v)"}; !slices.Equal(got, want) {
		t.Errorf("the break changes %q, want %q", got, want)
	}
	if !strings.Contains(stderr, "15 steps: ") || !strings.Contains(stderr, "curl -s http://127.0.0.1:8000/execute_action") {
		t.Errorf("the summary is not among the notes: %s", stderr)
	}
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

func TestDemoWithoutTools(t *testing.T) {
	t.Parallel()
	m := newMachine(t, toolbox(t, "bash", "chmod", "sleep"))
	code, stdout, stderr := m.run(t)
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{
		"skipped the sandbox has no working python3\n",
		"skipped there is no Go on this machine, whose module cache has the source\n",
		"15 steps: 7 ok, 0 failed, 8 skipped;",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in %s", want, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") || stderr != "note: no colours, because standard output is not a terminal\n" {
		t.Errorf("plain output is not plain, or nobody says why: %q", stderr)
	}
	m.checkClean(t)
}

func TestDemoFailsWithAStep(t *testing.T) {
	t.Parallel()
	tools := toolbox(t, "bash", "chmod", "sleep", "rm")
	if err := os.WriteFile(filepath.Join(tools, "python3"), []byte("#!/bin/sh\necho Bonjour\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, tools)
	code, stdout, stderr := m.run(t, "-o", "json")
	steps := decodeSteps(t, stdout)
	want := slices.Repeat([]status{passed}, storySteps)
	want[3] = failed
	for i := 4; i < 11; i++ {
		want[i] = skipped
	}
	if got := statuses(steps); code != 1 || !slices.Equal(got, want) {
		t.Fatalf("exit code %d, statuses %v\nwant 1, %v\n%s", code, got, want, stderr)
	}
	if got, want := steps[3].Reason, `the output is "Bonjour" instead of "Enter your name: Hello, TestUser!"`; got != want {
		t.Errorf("the reason is %q, want %q", got, want)
	}
	if want := "runtimectl: the demo failed: 1 of 15 steps did not do what they must\n"; !strings.HasSuffix(stderr, want) {
		t.Errorf("stderr %q does not end in %q", stderr, want)
	}
	m.checkClean(t)
}

// Whatever is going on when a person presses Ctrl-C, nothing may be left of it.
// The steps are those before which the shell, the compiler and a command that
// does not end are at work.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]int{"at the start": 1, "in the tests": 8, "in a long command": 14} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, os.Getenv("PATH"))
			code := 0
			for try := 0; code == 0 && try < 20; try++ {
				code = m.interrupt(t, step) // 0: it was over before the signal came
			}
			if code != 1 {
				t.Errorf("it ends with exit code %d, want 1", code)
			}
			m.checkClean(t)
		})
	}
}

// interrupt starts the demo, sends it a Ctrl-C when it has told of so many
// steps, and gives its exit code.
func (m machine) interrupt(t *testing.T, steps int) int {
	t.Helper()
	cmd := m.demo(t.Context(), "-o", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for range steps {
		if !lines.Scan() {
			t.Fatalf("the demo ended early: %v, %v", lines.Err(), cmd.Wait())
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // what was on its way
	}
	_ = cmd.Wait() // the code says it
	return cmd.ProcessState.ExitCode()
}

func TestDemoIntoAClosedPipe(t *testing.T) {
	t.Parallel()
	m := newMachine(t, toolbox(t, "bash", "chmod", "sleep", "rm"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd := m.demo(t.Context())
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &errs
	err = cmd.Run()
	w.Close()
	if cmd.ProcessState.ExitCode() != 141 || strings.Contains(errs.String(), "runtimectl:") {
		t.Errorf("it ends with %v: %s", err, errs.String())
	}
	m.checkClean(t)
}

func TestDemoServerThatDies(t *testing.T) {
	t.Parallel()
	m := newMachine(t, os.Getenv("PATH"))
	script := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho one >&2\necho two >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := m.run(t, "--server", script)
	want := "runtimectl: the server " + script + " ended by itself (exit status 3); its last words:\n  one\n  two\n"
	if code != 1 || stdout != "" || stderr != want {
		t.Errorf("exit code %d, stdout %q, stderr %q\nwant 1, nothing, %q", code, stdout, stderr, want)
	}
	m.checkClean(t)
}

// A server that is killed in the middle is named as the reason.
func TestDemoServerIsKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t, toolbox(t, "bash", "chmod", "sleep", "rm"))
	script := filepath.Join(t.TempDir(), "server")
	text := "#!/bin/sh\necho $$ >" + quote(script+".pid") + "\nexec " + quote(filepath.Join(m.bin, "server")) + " \"$@\"\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := m.demo(t.Context(), "-o", "json", "--server", script)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	pid, err := os.ReadFile(script + ".pid")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "kill", "-9", strings.TrimSpace(string(pid))).Run(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	err = cmd.Wait()
	if want := "the server " + script + " ended by itself (signal: killed)"; cmd.ProcessState.ExitCode() != 6 || !strings.Contains(errs.String(), want) {
		t.Errorf("it ends with %v: %s\nwant exit code 6 and %q", err, errs.String(), want)
	}
	if entries, err := os.ReadDir(m.temp); err != nil || len(entries) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", entries, err)
	}
}

// remote starts a server that outlives demos.
func (m machine) remote(t *testing.T, key string) (url string, c *client.Client) {
	t.Helper()
	socket := filepath.Join(m.temp, "s")
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(m.bin, "server"),
		"--addr", "unix:"+socket, "--working-dir", t.TempDir(), "--session-key-file", keyFile)
	cmd.Env = m.env
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after t.Context is over
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	url = "unix://" + socket
	c, err := client.New(client.Config{BaseURL: url, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	for c.Ready(t.Context()) != nil {
		if t.Context().Err() != nil {
			t.Fatal("the server does not become ready")
		}
		time.Sleep(readyPause)
	}
	return url, c
}

func TestDemoRemote(t *testing.T) {
	t.Parallel()
	m := newMachine(t, toolbox(t, "bash", "chmod", "sleep", "mktemp", "rm"))
	url, c := m.remote(t, "secret")
	names := func() []string {
		entries, err := os.ReadDir(m.temp)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	before := names()

	m.env = append(m.env, keyVariable+"=wrong")
	code, stdout, stderr := m.run(t, "--url", url)
	want := "runtimectl: making a directory in the sandbox: 403 Forbidden: Invalid API Key: put the server's key into SESSION_API_KEY\n"
	if code != exitAuth || stdout != "" || stderr != want {
		t.Errorf("with a wrong key: exit code %d, stdout %q, stderr %q\nwant 4, nothing, %q", code, stdout, stderr, want)
	}

	m.env = append(m.env, keyVariable+"=secret")
	code, stdout, stderr = m.run(t, "--url", url)
	if code != 0 || !strings.Contains(stdout, "15 steps: 7 ok, 0 failed, 8 skipped;") ||
		!strings.Contains(stdout, "curl -s --unix-socket "+strings.TrimPrefix(url, "unix://")+" http://sandbox/execute_action -H \"X-Session-API-Key: $SESSION_API_KEY\"") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if after := names(); !slices.Equal(after, before) {
		t.Errorf("the sandbox has %v afterwards, it had %v", after, before)
	}
	sessions, err := c.Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(sessions) != 1 || sessions[0].Name != "default" || sessions[0].Commands != 0 {
		t.Errorf("sessions are left, or the default one was used: %+v", sessions)
	}
}

func TestDemoKeep(t *testing.T) {
	t.Parallel()
	m := newMachine(t, toolbox(t, "bash", "chmod", "sleep", "rm"))
	code, _, stderr := m.run(t, "--keep", "--output=json")
	kept, err := filepath.Glob(filepath.Join(m.temp, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 || len(kept) != 1 || !strings.HasSuffix(stderr, "note: "+kept[0]+" is kept\n") {
		t.Fatalf("exit code %d, kept %v: %s", code, kept, stderr)
	}
	got, err := os.ReadFile(filepath.Join(kept[0], "greeter.py"))
	if want := "name = input(\"Enter your name: \")\nprint(f\"Hello, {name}!\")\n"; err != nil || string(got) != want {
		t.Errorf("greeter.py is %q, %v\nwant %q", got, err, want)
	}
}
