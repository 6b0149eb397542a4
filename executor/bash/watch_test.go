package bash

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/actiond/actiond/executor/bash/screen"
	"github.com/actiond/actiond/internal/testhelp"
)

// Input for a command that ends meanwhile is not typed: the next command would read it.
func TestInputForEndedCommand(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Config{Program: "/bin/sh", Dir: t.TempDir(), Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r, err := s.Run(t.Context(), Command{Text: "exec sleep 1000", Hard: 0}); err != nil || r.Outcome != TimedOut {
		t.Fatalf("got outcome %d, %v, want it to run on", r.Outcome, err)
	}
	var cur *running
	var sh *shell
	testhelp.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		cur, sh = s.current, s.shell
		return cur.begun
	}, "the shell begins the command")
	s.pressing.Lock()
	typed := make(chan error)
	go func() {
		_, err := s.Run(t.Context(), Command{Text: "yes", Input: true, Hard: -1})
		typed <- err
	}()
	if err := sh.process.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-cur.done
	s.pressing.Unlock()
	if err := <-typed; err != nil {
		t.Error(err)
	}
	if sh.pressed.Load() {
		t.Error("the input was typed after the command had ended")
	}
}

// The timer of looks is the session's, and may fire when a new shell has a command and not yet its line. A question
// before the line is answered with the number of an older command, for which the shell would be replaced, and its
// saved variables given up.
func TestNoLookBeforeTheLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A shell that never answers, so that what it was asked stays in the pipe of its script.
	program := filepath.Join(dir, "sh")
	testhelp.WriteProgram(t, program, "#!/bin/sh\nread -r first_line\nexec sleep 1000 >&-\n")
	cfg := Config{Program: program, Dir: dir, Env: os.Environ()}
	s := &Session{cfg: cfg, screen: screen.New(terminalCols, terminalRows)}
	sh, err := startShell(program, dir, &cfg, s)
	if err != nil {
		t.Fatal(err)
	}
	defer sh.close()
	<-sh.silent // it closed its reports, and has read the line before
	s.mu.Lock()
	s.shell, s.alive = sh, true
	cur := s.begin("", nil)
	s.mu.Unlock()
	s.look(cur)
	if n := sh.unread(); n > 0 {
		t.Errorf("a look before the line asked: %d bytes are in the script", n)
	}
	close(cur.sent)
	s.look(cur)
	if sh.unread() == 0 {
		t.Error("a look after the line did not ask")
	}
}

// A program that outlives its shell may write faster than its output is read.
func TestTerminalOfAnEndedShell(t *testing.T) {
	t.Parallel()
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zeros.Close() }()
	sh := &shell{term: &pty{master: zeros}, listener: &Session{}, gone: make(chan struct{})}
	close(sh.gone)
	sh.readTerminal()
}
