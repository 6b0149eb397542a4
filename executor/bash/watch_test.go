package bash

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/bash/screen"
	"github.com/actiond/actiond/internal/testhelp"
)

// Input for a command that ends meanwhile is not typed: the next command would read it.
func TestInputForEndedCommand(t *testing.T) {
	t.Parallel()
	screen, keyboard, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = screen.Close(), keyboard.Close() }()
	s, sh, cur := &Session{}, &shell{term: &pty{master: keyboard}}, &running{done: make(chan struct{})}
	s.pressing.Lock()
	typed := make(chan error)
	go func() { typed <- s.pressText(cur, sh, []byte("yes\r")) }()
	close(cur.done)
	s.pressing.Unlock()
	if err := <-typed; err != nil {
		t.Error(err)
	}
	if unreadBytes(screen) > 0 {
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

// started starts a session of a shell in a fresh directory.
func started(t *testing.T, program string) (*Session, *shell) {
	t.Helper()
	dir := t.TempDir()
	s, err := Start(t.Context(), Config{Program: program, Dir: dir, Env: append(os.Environ(), "HOME="+dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, s.shell
}

// retires looks at the current command as the session's timer does, with its shell in one state for since if that is not 0,
// and reports whether the shell is retired.
func (s *Session) retires(t *testing.T, since time.Duration) bool {
	t.Helper()
	s.mu.Lock()
	cur := s.current
	s.mu.Unlock()
	if since > 0 {
		s.looking.Lock()
		if cur.watch.since.IsZero() {
			t.Error("the shell is not watched")
		}
		cur.watch.since = time.Now().Add(-since)
		cur.watch.first = cur.watch.since
		s.looking.Unlock()
	}
	s.look(cur)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired != ""
}

// A server that is late to read a report does not take the shell for one that does not report, and one that never
// comes to an end with the reports, because a process forges them without a pause, gives the shell up.
func TestLateReport(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"/bin/bash", "/bin/sh"} {
		for _, forever := range []bool{false, true} {
			s, sh := started(t, program)
			sh.reporting.Lock()
			if r, err := s.Run(t.Context(), Command{Text: "kept=1; (exit 6)", Hard: 0}); err != nil || r.Outcome != TimedOut {
				t.Fatalf("got outcome %d, %v, want it to run on", r.Outcome, err)
			}
			cur := s.current
			retired := false
			testhelp.Eventually(t, func() bool {
				retired = s.retires(t, 0)
				s.looking.Lock()
				defer s.looking.Unlock()
				return retired || cur.watch.questions >= maxQuestions && sh.unread() == 0
			}, "the shell reads the questions")
			for range 3 {
				retired = retired || s.retires(t, 0)
			}
			retired = retired || s.retires(t, 2*patience)
			if retired {
				t.Errorf("%s: a shell whose report was not read was retired", program)
			}
			if forever && !s.retires(t, 2*maxPatience) {
				t.Errorf("%s: a shell whose reports do not end was not retired", program)
			}
			sh.reporting.Unlock()
			if r, err := s.Run(t.Context(), Command{Hard: -1}); err != nil || r.Status != 6 || r.Restarted != "" && !forever {
				t.Errorf("%s: got status %d, restarted %q, %v, want 6", program, r.Status, r.Restarted, err)
			}
		}
	}
}

// A command that waits for the end of a look is not given to the shell that the look killed, and that has not ended yet:
// it would end with that shell, and not be known to have run.
func TestNoCommandForRetiredShell(t *testing.T) {
	t.Parallel()
	s, sh := started(t, "/bin/bash")
	s.mu.Lock()
	s.retired = whyNoReport // and the kill has no effect yet
	s.mu.Unlock()
	s.pressing.Lock()
	defer s.pressing.Unlock()
	if cur, _, err := s.giveTo(sh, "true", nil); cur != nil || err == nil {
		t.Error("the shell was given a command")
	}
}

// A shell that gets no processor is not taken for one that hangs: it is given up once it has run, and had not to, or after
// a time that no shell needs.
func TestStarvingShell(t *testing.T) {
	t.Parallel()
	s, sh := started(t, "/bin/bash")
	var one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !one.IsSet(cpu) {
		cpu++
	}
	one.Zero()
	one.Set(cpu)
	busy := exec.CommandContext(t.Context(), "/bin/sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = busy.Process.Kill(); _ = busy.Wait() })
	for _, pid := range []int{sh.process.Pid, busy.Process.Pid} {
		if err := unix.SchedSetaffinity(pid, &one); err != nil {
			t.Fatal(err)
		}
	}
	// It runs, and so is as good as one that waits to run, until it has run for a time.
	if r, err := s.Run(t.Context(), Command{Text: "trap ': >hangs; while :; do :; done' DEBUG", Hard: 0}); err != nil || r.Outcome != TimedOut {
		t.Fatalf("got outcome %d, %v, want it to run on", r.Outcome, err)
	}
	cur := s.current
	testhelp.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.cfg.Dir, "hangs"))
		return err == nil
	}, "the shell hangs before its report")
	testhelp.Eventually(t, func() bool {
		s.look(cur)
		s.looking.Lock()
		defer s.looking.Unlock()
		return !cur.watch.since.IsZero()
	}, "the session notices it")
	if err := unix.SchedSetAttr(sh.process.Pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: schedIdle}, 0); err != nil {
		t.Fatal(err)
	}
	s.looking.Lock()
	cur.watch.ran = sh.status().Ran
	s.looking.Unlock()
	if s.retires(t, 2*patience) {
		t.Error("a shell that gets no processor was retired")
	}
	if !s.retires(t, 2*maxPatience) {
		t.Error("a shell that never gets a processor was not retired")
	}
}

// A shell that reads its script a byte at a time, each with patience, is given up all the same.
func TestNibblingShell(t *testing.T) {
	t.Parallel()
	s, _ := started(t, "/bin/bash")
	if r, err := s.Run(t.Context(), Command{Text: "mkfifo f; exec 9<>f; trap 'while :; do read -rN1 x; read -rt 1 -u 9 y; done' DEBUG", Hard: 0}); err != nil || r.Outcome != TimedOut {
		t.Fatalf("got outcome %d, %v, want it to run on", r.Outcome, err)
	}
	cur := s.current
	testhelp.Eventually(t, func() bool {
		s.look(cur)
		s.looking.Lock()
		defer s.looking.Unlock()
		if cur.watch.since.IsZero() {
			return false
		}
		cur.watch.first = time.Now().Add(-2 * maxPatience)
		return cur.watch.since.After(cur.watch.first)
	}, "the shell reads")
	testhelp.Eventually(t, func() bool {
		s.look(cur)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.retired != ""
	}, "it is retired")
}

// Input that is typed for a command whose shell ends before it begins the command does not have it run twice: the call that
// gave it gives it to a new shell.
func TestInputRunsOnce(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"y", "C-c"} {
		s, _ := started(t, "/bin/bash")
		hang, log := filepath.Join(s.cfg.Dir, "hang"), filepath.Join(s.cfg.Dir, "log")
		trap := "mkfifo f; exec 9<>f; trap '[ ! -e hang ] || { read -rt 1 -u 9; exit 7; }' DEBUG"
		if r, err := s.Run(t.Context(), Command{Text: trap, Hard: -1}); err != nil || r.Status != 0 {
			t.Fatalf("got status %d, %v", r.Status, err)
		}
		testhelp.WriteFile(t, hang, "", 0o600)
		given := make(chan Result)
		go func() {
			r, _ := s.Run(t.Context(), Command{Text: "echo ran >>log", Hard: -1})
			given <- r
		}()
		testhelp.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.current != nil
		}, "the command is given")
		typed := make(chan error)
		go func() {
			_, err := s.Run(t.Context(), Command{Text: input, Input: true, Hard: -1})
			typed <- err
		}()
		if r := <-given; r.Outcome != Completed {
			t.Errorf("%s: the command: got outcome %d", input, r.Outcome)
		}
		if err := <-typed; err != nil {
			t.Errorf("%s: the input: %v", input, err)
		}
		if got := string(testhelp.ReadFile(t, log)); got != "ran\n" {
			t.Errorf("%s: got %q, want that the command ran once", input, got)
		}
	}
}

// A command that waits for the end of a look while its shell ends is not left without an end, also where no new shell can be
// started.
func TestShellEndsBeforeTheLine(t *testing.T) {
	t.Parallel()
	s, sh := started(t, "/bin/bash")
	s.looking.Lock()
	failed := make(chan error)
	go func() {
		_, err := s.Run(t.Context(), Command{Text: "true", Hard: -1})
		failed <- err
	}()
	testhelp.Eventually(t, func() bool {
		waits := !s.pressing.TryLock()
		if !waits {
			s.pressing.Unlock()
		}
		return waits
	}, "the command waits for the look")
	program := s.cfg.Program
	s.cfg.Program = "/nonexistent/bash"
	_ = sh.process.Kill()
	<-sh.finished
	s.looking.Unlock()
	if err := <-failed; err == nil {
		t.Error("a command without a shell has a result")
	}
	s.cfg.Program = program
	if r, err := s.Run(t.Context(), Command{Text: "echo back", Hard: -1}); err != nil || r.Outcome != Completed || r.Output != "back" {
		t.Errorf("the next command: got outcome %d, %q, %v", r.Outcome, r.Output, err)
	}
}

// schedIdle is SCHED_IDLE of sched(7).
const schedIdle = 5

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
