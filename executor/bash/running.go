package bash

import (
	"slices"
	"syscall"
	"time"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/shorten"
)

// running is a command that was given to the shell.
type running struct {
	seq      int64
	text     string
	sent     chan struct{} // closed once the shell was given it
	given    time.Time     // when that was
	keyed    bool          // a key was pressed for it, or for the command before it
	begun    bool          // the shell said that it begins it
	watch    watchState
	answered bool          // an answer about it has been given
	key      string        // the last key pressed
	cancel   string        // the last signal that was sent to cancel it
	by       *Attachment   // whose line it is, nil for an action's
	done     chan struct{} // closed when it ended; the fields below hold then
	status   int
	pid      int
	unrun    bool // the shell never began it
}

// unknownStatus is the status of a command that the shell could not report.
const unknownStatus = -1

// note is the beginning of a command, for attachments: its place in the output,
// its directory and its text.
type note struct {
	seq       int64
	at        int64
	dir, text string
	by        *Attachment // that shows the text already, because it was typed there
}

// maxNotes bounds the beginnings of commands that are remembered for scroll-back, and
// maxNote the text of each.
const (
	maxNotes = 64
	maxNote  = 1 << 10
)

// begin makes a command the current one, of sh if that is a new shell. by is
// nil unless a person typed it.
func (s *Session) begin(text string, sh *shell, by *Attachment) *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	if sh != nil {
		s.shell, s.alive, s.retired = sh, true, ""
	}
	s.current = &running{seq: s.seq, text: text, by: by, keyed: s.keyed, sent: make(chan struct{}), done: make(chan struct{})}
	s.keyed = false
	s.lastByte = time.Now()
	if sh == nil {
		s.remember(s.current)
	}
	s.changed()
	return s.current
}

// busy reports whether a command runs. The caller holds mu.
func (s *Session) busy() bool { return s.current != nil && !s.current.ended() }

// remember notes the beginning of a command. The caller holds mu.
func (s *Session) remember(cur *running) {
	n := note{seq: cur.seq, at: s.start, dir: s.dir, text: shorten.Text(cur.text, maxNote)}
	if cur.by != nil && cur.by.echoed {
		n.by = cur.by
	}
	s.notes = append(s.notes, n)
	if len(s.notes) > maxNotes {
		s.notes = slices.Delete(s.notes, 0, len(s.notes)-maxNotes)
	}
}

// forget removes the note of a hidden command.
func (s *Session) forget(cur *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = slices.DeleteFunc(s.notes, func(n note) bool { return n.seq == cur.seq })
}

// began notes that the shell begins a command.
func (s *Session) began(sh *shell, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell == sh && s.current != nil && s.current.seq == seq {
		s.current.begun = true
	}
}

// reported ends the current command, if the report is about it.
func (s *Session) reported(sh *shell, r report) {
	s.mu.Lock()
	c := s.current
	stale := s.shell != sh || c == nil || c.seq != r.asked || c.ended()
	unrun := !stale && r.progress.begun >= 0 && r.progress.begun < c.seq
	save := !stale && !unrun && (mayChangeState(c.text) || r.path != s.path)
	if unrun && c.keyed { // a key came first
		unrun, r.progress.status = false, 128+int(syscall.SIGINT)
	}
	if unrun {
		c.begun = false
	}
	s.mu.Unlock()
	if stale {
		return // the answer to a question that was no longer needed
	}
	if unrun {
		s.retire(sh, whyNoBegin)
		return
	}
	sh.drain()
	if save { // before the next command can be given
		_ = sh.send(sh.save(sh.token))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended() {
		return // with its shell
	}
	if r.dir != "" {
		s.dir = r.dir
	}
	s.reportedAt = proc.Uptime()
	s.flags, s.status, s.path, s.jobPID = r.flags, max(r.progress.status, 0), r.path, r.background
	c.end(r.progress.status, r.background)
	s.changed()
}

// end ends a command. The caller holds mu of the session.
func (c *running) end(status, pid int) {
	c.status, c.pid = status, pid
	if c.watch.timer != nil {
		c.watch.timer.Stop()
	}
	close(c.done)
}

func (c *running) ended() bool { return channel.Closed(c.done) }
