package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// fed is run with something on standard input.
func (m localMachine) fed(input string, args ...string) (code int, stdout, stderr string) {
	m.t.Helper()
	line := append([]string{args[0], "--on=local", "--state-dir", m.dir}, args[1:]...)
	if args[0] == "run" {
		line = append([]string{"run", "--on=local", "--state-dir", m.dir, "--server", filepath.Join(programs(m.t), "server")}, args[1:]...)
	}
	var out, errs bytes.Buffer
	p := newProgram(output.Streams{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	code = p.run(context.WithoutCancel(m.t.Context()), line)
	return code, out.String(), errs.String()
}

// Standard input reaches a command byte by byte, and is not left
// in the sandbox.
func TestExecInput(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	input := strings.Repeat(string(all), 1<<10)
	for _, tt := range []struct {
		name   string
		input  string
		args   []string
		code   int
		stdout string
	}{
		{"bytes", input, []string{"exec", "-i", "box", "wc", "-c"}, 0, "262144\n"},
		{"nothing", "", []string{"exec", "-i", "box", "wc", "-c"}, 0, "0\n"},
		{"not given", "x", []string{"exec", "box", "wc", "-c"}, 0, "0\n"},
		{"its exit code", "x", []string{"exec", "-i", "box", "sh", "-c", "cat >/dev/null; exit 3"}, 3, ""},
		{"a shell's", "echo one\necho two\n", []string{"exec", "--interactive", "box", "sh"}, 0, "one\ntwo\n"},
		{"elsewhere", "x\n", []string{"exec", "-i", "-w", "/", "-e", "A=b", "box", "sh", "-c", "cat; pwd; echo $A"}, 0, "x\n/\nb\n"},
		{"in a session", "x\n", []string{"exec", "-i", "--session", "s", "box", "cd", "/"}, 0, ""},
		{"that stays where it is", "x\n", []string{"exec", "-i", "--session", "s", "box", "sh", "-c", "cat; pwd"}, 0, "x\n/\n"},
		{"is seen by nobody else", "x\n", []string{"exec", "-i", "--session", "t", "box", "sh", "-c", "readlink /proc/self/fd/0 | sed s/.*deleted.*/gone/"}, 0, "gone\n"},
		{"a pipe", "x\n", []string{"exec", "-i", "box", "sh", "-c", "readlink /proc/self/fd/0 | tr -d '[0-9]'"}, 0, "pipe:\n"},
		{"more than the command reads", strings.Repeat("x", 10<<20), []string{"exec", "-i", "box", "head", "-c", "3"}, 0, "xxx"},
		{"of a run", "x\n", []string{"run", "-i", "--", "cat"}, 0, "x\n"},
	} {
		if code, stdout, stderr := m.fed(tt.input, tt.args...); code != tt.code || stdout != tt.stdout {
			t.Errorf("%s: got %d %q %s, want %d %q", tt.name, code, stdout, stderr, tt.code, tt.stdout)
		}
	}
	// Others use this /tmp too, so that the content shows whose a file is.
	input = "left behind by " + m.dir
	if code, stdout, _ := m.fed(input, "exec", "-i", "--session", "u", "-w", "/nowhere", "box", "cat"); code == 0 {
		t.Errorf("in no directory: got %d %q", code, stdout)
	}
	if code, stdout, _ := m.fed(input, "exec", "-i", "-w", "/nowhere", "box", "cat"); code != 126 {
		t.Errorf("in no directory: got %d %q, want 126", code, stdout)
	}
	m.ok("exec", "--session", "busy", "box", "true") // the limit of a command covers the start of its shell
	m.run("exec", "--session", "busy", "--timeout", "4s", "box", "sh", "-c", "trap '' INT; while :; do sleep 1; done")
	if code, _, stderr := m.fed(input, "exec", "-i", "--session", "busy", "box", "cat"); code != 125 || !strings.Contains(stderr, "NOT executed") {
		t.Errorf("in a busy session: got %d %s", code, stderr)
	}
	left, err := filepath.Glob("/tmp/.actiond-*/" + inputName)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range left {
		if data, _ := os.ReadFile(file); string(data) == input {
			t.Errorf("%s is left in the sandbox", file)
		}
	}
}

// A command reads standard input as it comes, and can answer it.
func TestExecInputStreams(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	in, typed := io.Pipe()
	shown, out := io.Pipe()
	p := newProgram(output.Streams{Stdin: in, Stdout: out, Stderr: io.Discard, Getenv: func(string) string { return "" }})
	code := make(chan int, 1)
	go func() {
		code <- p.run(context.WithoutCancel(t.Context()), []string{"exec", "--on=local", "--state-dir", m.dir, "-i", "box", "cat"})
	}()
	answers := bufio.NewReader(shown)
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(typed, line); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); got != line || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if err := typed.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != 0 {
		t.Errorf("got exit code %d", got)
	}
}

// Behind "| head" a command ends without a word, as the shell is used to.
func TestReaderLeaves(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	m.ok("exec", "box", "sh", "-c", "yes | head -c 10000000 >long")
	for _, words := range [][]string{
		{"exec", "box", "yes"},
		{"exec", "--session", "s", "box", "yes"},
		{"exec", "--session", "s", "box", "yes"}, // the session is free again
		{"cat", "box", "long"},
		{"cp", "box:long", "-"},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs(t), "runtimectl"),
			append([]string{words[0], "--on=local", "--state-dir", m.dir}, words[1:]...)...)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = w, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if _, err := bufio.NewReader(r).ReadByte(); err != nil {
			t.Errorf("%q: %v", words, err)
		}
		r.Close()
		_ = cmd.Wait() // the code tells
		if code := cmd.ProcessState.ExitCode(); code != 141 || errs.Len() > 0 {
			t.Errorf("%q: got %d %s, want 141 and no word", words, code, errs.String())
		}
	}
}
