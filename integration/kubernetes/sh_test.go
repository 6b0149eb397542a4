//go:build kubernetes

package kubernetes_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"

	actiond "github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/testhelp"
)

// screen collects the output of a terminal.
type screen struct{ testhelp.Buffer }

// follow reads until the terminal ends; ended is closed then.
func (s *screen) follow(from io.Reader) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(s, from)
	}()
	return ended
}

// shows waits for a text.
func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	testhelp.Eventually(t, func() bool { return strings.Contains(s.String(), text) }, "the screen has %s", text)
}

// prompts waits for a prompt at the end.
func (s *screen) prompts(t *testing.T) {
	t.Helper()
	testhelp.Eventually(t, func() bool { return strings.HasSuffix(s.String(), "/workspace$ ") }, "a prompt comes")
}

// at starts a command of runtimectl at a terminal.
func (w *words) at(args ...string) (cmd *exec.Cmd, keyboard *os.File, shown *screen, ended chan struct{}) {
	w.t.Helper()
	cmd = exec.Command(w.program, args...)
	cmd.Env, cmd.Dir = w.env, w.t.TempDir()
	keyboard, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 111})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = keyboard.Close() })
	shown = &screen{}
	return cmd, keyboard, shown, shown.follow(keyboard)
}

func (w *words) typed(keyboard io.Writer, text string) {
	w.t.Helper()
	if _, err := io.WriteString(keyboard, text); err != nil {
		w.t.Fatal(err)
	}
}

// A person at a terminal, from outside of the cluster. What runs survives the end of the
// connection, and is there when the person comes back.
func TestShell(t *testing.T) {
	t.Parallel()
	w := newWords(t)
	w.want("", "", "create", "--name", "shell", "--memory", "256m", "--pull", "never", busyboxImage)
	first, keyboard, shown, ended := w.at("sh", "shell")
	shown.prompts(t)
	w.typed(keyboard, "stty size; X=$((6 * 7)); echo X is $X\r")
	shown.shows(t, "X is 42\r\n")
	shown.shows(t, "33 111\r\n")
	shown.prompts(t)
	w.typed(keyboard, "until [ -e go ]; do sleep 0.1; done; echo X was $X\r")
	testhelp.Eventually(t, func() bool {
		_, _, code := w.try("", "exec", "--session", "other", "shell", "pidof", "sleep")
		return code == 0
	}, "the command runs")
	if err := first.Process.Kill(); err != nil { // and the port forwarding with it
		t.Fatal(err)
	}
	_ = first.Wait() // killed
	<-ended

	second, keyboard, shown, ended := w.at("sh", "shell")
	shown.shows(t, "X is 42\r\n")
	w.want("", "", "exec", "--session", "other", "shell", "touch", "go")
	shown.shows(t, "X was 42\r\n")
	shown.prompts(t)
	w.typed(keyboard, "\x10\x11") // leaves
	if err := second.Wait(); err != nil {
		t.Errorf("detached, it ends with %v: %s", err, shown)
	}
	keyboard.Close()
	<-ended

	run, keyboard, shown, ended := w.at("exec", "-it", "shell", "--", "sh", "-c", "stty size; read -r line; echo got $line; exit 3")
	shown.shows(t, "33 111\r\n")
	w.typed(keyboard, "a line\r")
	shown.shows(t, "got a line\r\n")
	_ = run.Wait() // the status says it
	if code := run.ProcessState.ExitCode(); code != 3 {
		t.Errorf("exec -it ended with %d: %s", code, shown)
	}
	keyboard.Close()
	<-ended
	w.want("", "", "rm", "shell")
}

// A terminal through a gateway that ends is the same one through another.
func TestShellThroughGateways(t *testing.T) {
	t.Parallel()
	const key = "the key of two gateways of a test"
	_, kubeconfig := installed(t)
	first, second := startReplica(t, kubeconfig, key), startReplica(t, kubeconfig, key)
	s, c, to := sandboxBehind(t, first)
	attach := func() (*actiond.Terminal, *screen, chan struct{}) {
		t.Helper()
		terminal, err := c.NamedTerminal(t.Context(), "", s.Name, false)
		if err != nil {
			t.Fatal(err)
		}
		shown := &screen{}
		return terminal, shown, shown.follow(terminal)
	}
	terminal, shown, ended := attach()
	shown.prompts(t)
	if _, err := terminal.Write([]byte("X=$((6 * 7)); echo X is $X\r")); err != nil {
		t.Fatal(err)
	}
	shown.shows(t, "X is 42\r\n")
	to.Store(second.addr)
	first.stop()
	<-ended
	_ = terminal.Close() // it ended

	terminal, shown, ended = attach()
	shown.shows(t, "X is 42\r\n")
	shown.prompts(t)
	if _, err := terminal.Write([]byte("echo X was $X\r")); err != nil {
		t.Fatal(err)
	}
	shown.shows(t, "X was 42\r\n")
	_ = terminal.Close()
	<-ended
	if err := second.driver.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
}
