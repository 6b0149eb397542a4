package bash

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/channel"
)

// typeInto types c, or presses key if that is not nil, for the command that
// runs, which it returns; nil if there is none.
func (s *Session) typeInto(ctx context.Context, c Command, key []byte) (*running, error) {
	s.mu.Lock()
	cur, sh := s.current, s.shell
	s.mu.Unlock()
	if cur == nil || cur.ended() {
		return nil, nil
	}
	select {
	case <-cur.sent:
	case <-cur.done:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if key != nil {
		return cur, s.pressKey(cur, sh, key)
	}
	s.lookSoon(cur)
	s.mu.Lock()
	cur.shared = true
	sent := c.sequence
	if len(sent) == len(cursor)+1 && s.screen.AppKeys() {
		sent[1] = 'O'
	}
	s.mu.Unlock()
	if sent == nil {
		// Enter is a carriage return, which the terminal turns into a newline for
		// programs that read lines.
		sent = []byte(strings.ReplaceAll(strings.TrimSuffix(c.Text, "\n"), "\n", "\r") + "\r")
	}
	return cur, s.pressText(cur, sh, sent)
}

// pressKey presses a key for the command, unless it has ended meanwhile: the
// signal of a key that comes late would hit the shell while it reads its script.
func (s *Session) pressKey(cur *running, sh *shell, key []byte) error {
	s.pressing.Lock()
	defer s.pressing.Unlock()
	defer s.lookSoon(cur) // the signal may cost the report
	sh.awaitBegin(cur.done)
	channel.ClosedWithin(cur.done, time.Until(cur.given.Add(parseTime(cur.text))))
	s.mu.Lock()
	ended := cur.ended()
	if !ended {
		cur.key, cur.keyed, s.keyed = string(key[0]^0x40), true, true // the name of C-c is "C"
	}
	s.mu.Unlock()
	if ended {
		return nil
	}
	sh.wake()
	_ = sh.term.unblock()
	alone, early := sh.inForeground(), !sh.hasProgram() && sh.term.has(unix.ISIG)
	if err := sh.press(key); err != nil {
		return err
	}
	if key[0] == interruptKey && early && tookOver(cur, sh) {
		// The key came before the program was there: the shell waits for it now,
		// and the copy of the shell that became it forgot the signal. Where the key sends
		// none, the program reads it.
		if err := sh.press(key); err != nil {
			return err
		}
	}
	if key[0] == quitKey && alone && !channel.ClosedWithin(cur.done, beginTime) {
		sh.kill() // a loop of the shell's own that traps every key
	}
	if cur.ended() {
		// The command ended at this moment. The signal may have cut a line of the server's
		// in two. A shell that takes no more has ended, or is useless.
		if sh.send(closeQuotes+sh.resetPrompts()+"\n") != nil {
			sh.kill()
		}
	}
	return nil
}

// pressText types into a command, unless it has ended.
func (s *Session) pressText(cur *running, sh *shell, p []byte) error {
	s.pressing.Lock()
	defer s.pressing.Unlock()
	if cur.ended() {
		return nil
	}
	return sh.press(p)
}

// tookOver reports whether a program takes the terminal from a shell that was about
// to start it: not if cur ends first, or the shell goes on by itself for a second.
func tookOver(cur *running, sh *shell) bool {
	for range startLooks {
		if channel.ClosedWithin(cur.done, firstLook) {
			return false
		}
		if sh.hasProgram() {
			return true
		}
	}
	return false
}

// startLooks times firstLook is a second: many times as long as a shell takes to start
// a program, also on a machine that is overloaded.
const startLooks = 50

// parseTime is the longest time in which bash parses a text (measured: 50 ms for a
// megabyte; ten times that). When a signal reaches it before, bash 5.2 leaves
// the rest of the text in its parser and runs that as its next command.
func parseTime(text string) time.Duration {
	return 5*time.Millisecond + time.Duration(len(text))*500*time.Nanosecond
}
