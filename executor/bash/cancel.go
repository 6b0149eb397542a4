package bash

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
)

const (
	// cancelGrace is how long a cancelled command has after each signal.
	cancelGrace = 2 * time.Second
	// killedGrace is how long the shell has to go on once SIGKILL has reached the
	// process that it waits for: many times its need, also on an overloaded machine, because its end
	// costs the session's state.
	killedGrace = 5 * time.Second
)

// whyCancelled is why a shell is replaced that does not end itself.
const whyCancelled = "was replaced, because its command was cancelled and did not end"

// cancel ends a command: with Ctrl-C, then with SIGTERM and SIGKILL to the processes that it
// started, and at last with its shell. The shell survives where one of the signals
// is enough. It returns when the command has ended.
func (s *Session) cancel(ctx context.Context, cur *running) error {
	s.mu.Lock()
	sh, since := s.shell, s.reportedAt
	s.mu.Unlock()
	// Bash takes the terminal back where a part of a pipe dies of a key before it became its
	// program; the other parts keep the group.
	group := sh.foreground()
	signal := func(what unix.Signal) bool {
		return proc.SignalYounger(sh.process.Pid, []int{group, sh.foreground()}, since, what)
	}
	grace := cancelGrace
	for _, step := range []struct {
		name string
		send func()
	}{
		{"Ctrl-C", func() { _ = s.pressKey(cur, sh, []byte{interruptKey}) }},
		{"SIGTERM", func() { _ = signal(unix.SIGTERM) }},
		{"SIGKILL", func() {
			if signal(unix.SIGKILL) {
				grace = killedGrace
			}
		}},
		{"the end of its shell", func() { s.retire(sh, whyCancelled) }},
	} {
		s.mu.Lock()
		ended := cur.ended()
		if !ended {
			cur.cancel = step.name
		}
		s.mu.Unlock()
		if ended {
			return nil
		}
		step.send() // a program that reads no key gets the next signal
		s.lookSoon(cur)
		select {
		case <-cur.done:
			return nil
		case <-time.After(grace):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select { // the end of the shell is its end
	case <-cur.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
