//go:build integration

package integration

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/actiond/actiond/internal/testhelp"
)

// TestCLIShell is a person at a terminal, in the session that an agent uses.
func TestCLIShell(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.ok("create", "--name", "shell", image(t, busyboxImage))
	c.ok("exec", "--session", "default", "shell", "export", "FROM=agent")

	cmd := exec.Command(c.program, "sh", "--state-dir", c.stateDir, "shell")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 111})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var shown testhelp.Buffer
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		_, _ = io.Copy(&shown, terminal)
	}()
	has := func(text string) bool { return strings.Contains(shown.String(), text) }
	// Text typed before the prompt may go to the command that is just ending.
	asks := func() bool { return strings.HasSuffix(shown.String(), "/workspace$ ") }
	typed := func(text string) {
		if _, err := terminal.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	prompted := func() {
		t.Helper()
		testhelp.Eventually(t, asks, "a prompt comes")
	}
	prompted()
	if !has("note: ctrl-p ctrl-q leaves, and ends nothing\r\n") {
		t.Error("it does not say how to leave")
	}
	typed("echo to $FROM; stty size\r")
	testhelp.Eventually(t, func() bool { return has("to agent\r\n") && has("33 111\r\n") }, "the output comes")
	prompted()
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 22, Cols: 99}); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool {
		prompted()
		before := len(shown.String())
		typed("stty size\r")
		testhelp.Eventually(t, func() bool { return len(shown.String()) > before && asks() }, "the next prompt comes")
		return has("22 99\r\n")
	}, "the terminal has the new size")
	sleeps := func() bool {
		code, _, _ := c.run("exec", "shell", "pidof", "sleep")
		return code == 0
	}
	prompted()
	typed("sleep 1000\r")
	testhelp.Eventually(t, sleeps, "the command runs")
	typed("\x03")
	testhelp.Eventually(t, func() bool { return !sleeps() }, "Ctrl-C ends the command")
	prompted()
	typed("sleep 1000\r")
	testhelp.Eventually(t, sleeps, "the command runs")
	typed("\x10\x11") // leaves and ends nothing
	if err := cmd.Wait(); err != nil {
		t.Errorf("detached, it ends with %v", err)
	}
	terminal.Close()
	<-reading
	if !sleeps() {
		t.Error("the command ended with the attachment")
	}
	if code, _, stderr := c.run("sh", "shell"); code != 2 || !strings.Contains(stderr, "without one, use exec") {
		t.Errorf("without a terminal: exit code %d, %s", code, stderr)
	}
}
