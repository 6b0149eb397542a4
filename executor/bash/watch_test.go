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
