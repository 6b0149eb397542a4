package bash

import (
	"os"
	"syscall"
	"testing"
	"time"
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
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		cur, sh = s.current, s.shell
		begun = cur.begun
		s.mu.Unlock()
	}
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

// The timer of looks is the session's, and may fire when a new shell has a command and not yet its line. A question before the
// line is answered with the number of an older command, for which the shell would be replaced, and its saved variables given up.
func TestNoLookBeforeTheLine(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"/bin/sh", "/bin/bash"} {
		s, err := Start(t.Context(), Config{Program: program, Dir: t.TempDir(), Env: os.Environ()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, text := range []string{"true", "true"} { // then the shell has read all of its script
			if r, err := s.Run(t.Context(), Command{Text: text, Hard: -1}); err != nil || r.Outcome != Completed {
				t.Fatalf("%s: got %+v, %v", program, r, err)
			}
		}
		s.mu.Lock()
		cur := s.begin("", nil)
		s.mu.Unlock()
		s.look(cur)
		if n := cur.watch.questions; n > 0 {
			t.Errorf("%s: a look asked %d questions before the line", program, n)
		}
		close(cur.sent)
		s.look(cur)
		if n := cur.watch.questions; n != 1 {
			t.Errorf("%s: a look asked %d questions after the line, want 1", program, n)
		}
	}
}
