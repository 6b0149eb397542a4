//go:build integration

package integration

import (
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
)

// screen collects what comes out of a terminal.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

func (s *screen) length() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Len()
}

// asks reports whether a prompt was the last that came. What is typed before it may
// go to the command that is just ending.
func (s *screen) asks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.HasSuffix(s.text.String(), "/workspace$ ")
}

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
	var shown screen
	reading := make(chan struct{})
	go func() { // ends with the terminal
		defer close(reading)
		buffer := make([]byte, 4096)
		for {
			n, err := terminal.Read(buffer)
			_, _ = shown.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	typed := func(text string) {
		if _, err := terminal.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	prompted := func() {
		t.Helper()
		await(t, "a prompt", shown.asks)
	}
	prompted()
	if !shown.has("note: ctrl-p ctrl-q leaves, and ends nothing\r\n") {
		t.Error("it does not say how to leave")
	}
	typed("echo to $FROM; stty size\r")
	await(t, "the output", func() bool { return shown.has("to agent\r\n") && shown.has("33 111\r\n") })
	prompted()
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 22, Cols: 99}); err != nil {
		t.Fatal(err)
	}
	await(t, "the new size", func() bool {
		prompted()
		before := shown.length()
		typed("stty size\r")
		await(t, "the next prompt", func() bool { return shown.length() > before && shown.asks() })
		return shown.has("22 99\r\n")
	})
	sleeps := func() bool {
		code, _, _ := c.run("exec", "shell", "pidof", "sleep")
		return code == 0
	}
	prompted()
	typed("sleep 1000\r")
	await(t, "the command to run", sleeps)
	typed("\x03")
	await(t, "Ctrl-C to end it", func() bool { return !sleeps() })
	prompted()
	typed("sleep 1000\r")
	await(t, "the command to run", sleeps)
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
