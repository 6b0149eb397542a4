package bash

import (
	"errors"
	"syscall"
	"time"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/channel"
)

// watchState is the state machine of a command, from the time that the shell was given
// its line until it has ended. Most commands end before the first look. Otherwise
// [Session.look] finds out the state from the kernel, and acts:
//
//	state     how it is known                          what is done
//	reading   the shell's input is the script, and     wait: it reads, or a prompt or a trap runs
//	          some of the script is unread             first, which is killed after promptTime
//	running   its input is another file, most often    nothing; output that was stopped is let
//	          the terminal                             through again
//	stopped   the kernel reports it as stopped         SIGCONT
//	replaced  its process has another command line     nothing: its end is the shell's end
//	read      it has read all of its script            ask for a report, which the shell does when
//	                                                   it can: a signal, or an error of the shell,
//	                                                   may have ended the line before the report
//	silent    it has read the question too, and its    ask again, and remove functions with names
//	          input is the script                      of builtins
//	mute      it has read maxQuestions questions, or   kill it once no report of it lies unread in
//	          can send no report                       the server
//	cut off   its input is another file, and it can    wait: it may still run a builtin
//	          never read its script again, or never
//	          report
//	ended     the report came, or the process ended    stop looking
//
// A shell that is mute, or stays reading or cut off for longer than patience, is killed, and a
// new one takes its place. If it did not say that it begins the command, the new shell gets the
// command; otherwise the command's status is unknown, and the answer says why.
//
// A shell is not replaced because it or the server is slow: while it waits for a
// processor or a disk, or a report may be unread, it has maxPatience.
//
// The first look comes after firstLook and each further one after twice the time,
// at most maxLook. Input and further requests start again with firstLook. No look is at a
// command whose line was not sent: a question before it would be answered with the number of
// the command before.
type watchState struct {
	due  time.Time     // when the next look is; guarded by Session.mu
	next time.Duration // how long until the look after the next one; guarded by Session.mu

	// Session.looking guards the rest.
	questions int
	unread    int           // bytes of the script at the last look
	first     time.Time     // when the shell was first seen reading, cut off or mute
	since     time.Time     // the same, or when it was last seen to have read more; zero if it is none of these
	ran       time.Duration // how long it had run on a processor at since
	program   int           // foreground process group while it is reading
	programAt time.Time     // when that was first seen
}

const (
	firstLook = 20 * time.Millisecond
	maxLook   = time.Minute
	// promptTime is how long prompts and traps may run before the shell reads its
	// next line.
	promptTime = 500 * time.Millisecond
	// patience is many times as long as a shell takes to read a line, or to end after a kill, also on
	// an overloaded machine.
	patience = 3 * time.Second
	// maxPatience bounds how long a shell is believed to be slow, because a command can make it so: with
	// many processes, or with reports that it forges.
	maxPatience = 10 * patience
	// maxRun is how long a shell may run on a processor before it reads its next line: many times as long
	// as it takes to read a megabyte. One that runs for longer loops.
	maxRun = time.Second
	// lateReport is how long a report may lie unread on an overloaded machine, while the
	// shell goes on to its prompt. Its earlier children are killed only where the
	// shell would be.
	lateReport = time.Second
	// maxQuestions is how many questions a shell may leave unanswered.
	// The shell reads a question only after it answered the one before.
	maxQuestions = 4
)

// Why a shell is replaced, as [Result.Restarted] says it.
const (
	whyNoReport = "was replaced, because it no longer reported the end of a command"
	whyNoBegin  = "was replaced, because it could not begin a command"
	whyTerminal = "was replaced, because its terminal could no longer be used"
	whyNoExec   = "was replaced, because it was told not to run commands (set -n)"
)

// The words for how a shell ended, as [Result.RestartReason] has them.
const (
	reasonExited = "exited"
	reasonKilled = "killed"
)

// reasons are the words for the reasons why a shell is replaced.
var reasons = map[string]string{
	whyNoReport: "no_report", whyNoBegin: "no_begin", whyTerminal: "terminal_lost", whyNoExec: "no_exec", whyCancelled: "cancelled",
}

// lookSoon has the first look at a command come soon.
func (s *Session) lookSoon(cur *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur.watch.next = 2 * firstLook
	s.lookIn(cur, firstLook)
}

// lookIn has the next look at a command come after d. The timer is the session's, and goes on
// where it fires earlier: each new timer that is the earliest of all wakes a thread, which
// takes longer than many commands. The caller holds mu.
func (s *Session) lookIn(cur *running, d time.Duration) {
	if cur.ended() || cur != s.current {
		return
	}
	cur.watch.due = time.Now().Add(d)
	if !s.lookAt.IsZero() && s.lookAt.Before(cur.watch.due) {
		return
	}
	s.lookAt = cur.watch.due
	if s.lookTimer == nil {
		s.lookTimer = time.AfterFunc(d, s.lookDue)
	} else {
		s.lookTimer.Reset(d)
	}
}

// lookDue looks at the current command if it is time.
func (s *Session) lookDue() {
	s.mu.Lock()
	s.lookAt = time.Time{}
	cur := s.current
	if cur != nil {
		if left := time.Until(cur.watch.due); left > 0 {
			s.lookIn(cur, left)
			cur = nil
		}
	}
	s.mu.Unlock()
	if cur != nil {
		s.look(cur)
	}
}

// look takes the next step for the state of a command. See [watchState].
func (s *Session) look(cur *running) {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.Lock()
	sh, over := s.shell, cur.ended() || cur != s.current || !s.alive || !channel.Closed(cur.sent)
	keyed, reportedAt, soon, starting := cur.keyed, s.reportedAt, false, s.starting != nil
	if !over {
		begun, full := sh.readBegins(cur.seq)
		cur.begun, soon = cur.begun || begun, full
	}
	s.mu.Unlock()
	if over {
		return
	}
	sh.wake()
	_ = sh.term.unblock() // an error is for the next command's shell

	w, now := &cur.watch, time.Now()
	unread, place := sh.unread(), sh.place()
	reading := place == atScript && unread > 0 && !starting // a POSIX shell reads $ENV first
	mute := place == atScript && unread == 0 && (w.questions >= maxQuestions || w.questions > 0 && channel.Closed(sh.silent))
	stuck, longest := reading || mute || place == cutOff, maxLook
	switch {
	case !stuck:
		w.since = time.Time{}
	case w.since.IsZero():
		w.first, w.since, w.ran = now, now, sh.status().Ran
	case unread < w.unread: // it goes on reading
		w.since, w.ran = now, sh.status().Ran
	}
	w.unread = unread
	slow := stuck && sh.isSlow(w.ran)
	if stuck {
		longest = patience
		late := mute || now.Sub(w.since) > patience
		// The reports are looked at last: what the shell has read, it has answered before.
		if now.Sub(w.first) > maxPatience || late && !slow && !sh.mayHaveReported() {
			if !cur.ended() {
				s.retire(sh, whyNoReport)
			}
			return
		}
	}

	if unread == 0 && place != isReplaced && !mute {
		question := sh.ask(sh.token, cur.seq)
		if w.questions > 0 && place == atScript {
			question = sh.askAnew(sh.token, cur.seq)
		}
		if place == atScript || w.questions == 0 { // otherwise another process may have read the question
			w.questions++
		}
		if err := sh.send(question); err != nil && !errors.Is(err, errNotSent) {
			s.retire(sh, whyNoReport) // a part of the question would be read as something else
			return
		}
	}

	switch program := sh.foreground(); {
	case !reading:
		w.program = 0
	case program != w.program:
		w.program, w.programAt = program, now
	case program == sh.process.Pid && now.Sub(w.programAt) > promptTime && !slow:
		if now.Sub(w.since) > patience/2 {
			reportedAt -= lateReport
		}
		proc.KillYounger(program, reportedAt) // a substitution in a prompt
		w.program, soon = 0, true
	case program > 1 && program != sh.process.Pid && (now.Sub(w.programAt) > promptTime && !slow || keyed):
		// bash 5.2 may keep the rest of a command's text in its parser when a key
		// interrupts it, and run that next.
		_ = syscall.Kill(-program, syscall.SIGKILL)
		w.program, soon = 0, true
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if soon {
		w.next = firstLook
	}
	w.next = min(w.next, longest)
	s.lookIn(cur, w.next)
	w.next = min(2*w.next, longest)
}

// retire ends a shell that can take no further command. Its end ends its command.
func (s *Session) retire(sh *shell, why string) {
	s.mu.Lock()
	if s.shell == sh && s.alive && s.retired == "" {
		s.retired = why
	}
	s.mu.Unlock()
	sh.kill()
}
