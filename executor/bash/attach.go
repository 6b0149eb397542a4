package bash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// scrollBack is how much of what came before is shown to whoever attaches:
	// several screens, and little to send.
	scrollBack = 64 << 10
	// maxNotes bounds the beginnings of commands that are remembered for
	// scroll-back, and maxNote the text of each.
	maxNotes = 64
	maxNote  = 1 << 10
	// maxEcho bounds what is kept of a line editor's output for a reader that
	// does not read.
	maxEcho = 256 << 10
	// pieceSize is what is typed at once: a quarter of what a terminal buffers.
	pieceSize = 1 << 10
)

// errBusy says that a command runs already.
var errBusy = errors.New("a command is running")

// note is the beginning of a command, for those who look on: where it stands
// in the output, and what was asked for.
type note struct {
	seq       uint64
	at        int64
	dir, text string
	by        *Attachment // on whose terminal the text stands already
}

// Attachment is a person's view of a session: the terminal's output with a
// prompt and the text before that of each command. Whoever types into it types
// into the command that runs, or at a prompt of ours while none does: whole
// lines become commands of the session as the texts of Run do, because between
// commands the terminal has no reader, and what lies in it would be taken for
// the input of the next command.
//
// Its methods may be called concurrently, Read by one at a time. It owns one
// goroutine, which deals with what is typed; Close ends it.
type Attachment struct {
	s      *Session
	types  bool
	typed  chan []byte
	stop   context.CancelFunc
	typing sync.WaitGroup

	// The lock of the session guards the rest.
	next       int64  // offset of the next byte of output
	seen       uint64 // the last command whose beginning was shown
	out        []byte // what is to be read before any of it
	fresh      bool   // the cursor stands at the beginning of a line
	prompted   bool   // the prompt and the line stand there
	submitting bool
	echoed     bool // the line that is being submitted stands there already
	line       editor
	before     string // earlier lines of a command of several
	left       bool   // the person asked to leave
	rows, cols int    // 0 for no wish
}

// Attach lets a person look at the session, and type if types is set. ctx
// bounds the attachment's typing; the caller must call Close.
func (s *Session) Attach(ctx context.Context, types bool) *Attachment {
	ctx, stop := context.WithCancel(ctx)
	a := &Attachment{s: s, types: types, typed: make(chan []byte), stop: stop, fresh: true}
	s.mu.Lock()
	a.next = s.scrollFrom()
	for _, n := range s.notes {
		if n.at < a.next {
			a.seen = n.seq
		}
	}
	s.mu.Unlock()
	a.typing.Go(func() { a.takeTyped(ctx) })
	return a
}

// scrollFrom returns where scroll-back begins: at the beginning of a line
// unless everything is kept. The caller holds mu.
func (s *Session) scrollFrom() int64 {
	from := s.log.End() - scrollBack
	if from <= s.log.Start() {
		return s.log.Start()
	}
	kept := s.read(from, s.log.End(), make([]byte, scrollBack))
	return from + int64(bytes.IndexByte(kept.Data, '\n')+1)
}

// Close detaches. The command goes on, and the terminal's size goes back.
func (a *Attachment) Close() {
	a.stop()
	a.typing.Wait()
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.sized = slices.DeleteFunc(a.s.sized, func(b *Attachment) bool { return a == b })
	a.s.applySize()
}

// Read waits until there is something to show. It returns io.EOF once the
// person left or the session was closed, and the cause of ctx's end. One who
// reads slowly is told how much was missed.
func (a *Attachment) Read(ctx context.Context, p []byte) (int, error) {
	for {
		a.s.mu.Lock()
		if len(a.out) == 0 {
			a.show()
		}
		n := copy(p, a.out)
		a.out = a.out[n:]
		over := a.left || a.s.closed
		more := a.s.watch()
		a.s.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if over {
			return 0, io.EOF
		}
		select {
		case <-more:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// show puts what comes next into out: output up to the next command, the
// beginning of a command, or the prompt. The caller holds mu.
func (a *Attachment) show() {
	end := a.s.log.End()
	i := slices.IndexFunc(a.s.notes, func(n note) bool { return n.seq > a.seen })
	if i >= 0 {
		end = min(end, max(a.s.notes[i].at, a.next))
	}
	switch {
	case a.next < end:
		c := a.s.read(a.next, end, make([]byte, chunkSize))
		a.next = c.Offset + int64(len(c.Data))
		a.erase()
		if c.Missed > 0 {
			a.out = fmt.Appendf(a.out, "\r\n[%d bytes are not shown]\r\n", c.Missed)
		}
		a.out = append(a.out, c.Data...)
		a.fresh = bytes.HasSuffix(c.Data, []byte("\n"))
	case i >= 0:
		n := a.s.notes[i]
		a.seen = n.seq
		if n.by == a {
			a.show() // what comes behind it
			return
		}
		a.erase()
		a.freshLine()
		a.out = append(a.out, a.s.promptIn(n.dir)+printable(n.text)+"\r\n"...)
	case a.types && !a.prompted && !a.submitting && !a.left && !a.s.closed && !a.s.busy():
		a.freshLine()
		a.prompted, a.fresh = true, false
		a.draw()
		a.s.changed() // what was pasted may go on
	}
}

// erase takes the prompt away. The caller holds mu.
func (a *Attachment) erase() {
	if a.prompted {
		a.out = append(a.out, "\r\x1b[K"...)
		a.prompted, a.fresh = false, true
	}
}

// freshLine makes sure that a line begins. The caller holds mu.
func (a *Attachment) freshLine() {
	if !a.fresh {
		a.out = append(a.out, "\r\n"...)
		a.fresh = true
	}
}

// draw draws the prompt and the line anew. The caller holds mu.
func (a *Attachment) draw() {
	if len(a.out) > maxEcho {
		return
	}
	prompt := "> "
	if a.before == "" {
		prompt = a.s.promptIn(a.s.dir)
	}
	a.out = append(a.out, "\r\x1b[K"+prompt+string(a.line.text)...)
	if back := cells(a.line.text[a.line.pos:]); back > 0 {
		a.out = fmt.Appendf(a.out, "\x1b[%dD", back)
	}
}

// cells is how many cells a terminal shows text in.
func cells(text []rune) (n int) {
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// say shows a message of ours on a line of its own. The caller holds mu.
func (a *Attachment) say(text string) {
	a.erase()
	a.freshLine()
	a.out = append(a.out, "["+printable(text)+"]\r\n"...)
	a.s.changed()
}

// promptIn is what stands before a command.
func (s *Session) promptIn(dir string) string {
	sign := "$ "
	if s.cfg.User == nil && os.Geteuid() == 0 || s.cfg.User != nil && s.cfg.User.UID == 0 {
		sign = "# "
	}
	return printable(dir) + sign
}

// printable is text without what a terminal would obey, each line but the first
// behind the prompt of a continued one.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, text)
	return strings.ReplaceAll(text, "\n", "\r\n> ")
}

// busy tells whether a command runs. The caller holds mu.
func (s *Session) busy() bool { return s.current != nil && !s.current.ended() }

// remember notes the beginning of a command. The caller holds mu.
func (s *Session) remember(cur *running) {
	text := cur.text
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "") + "…"
	}
	n := note{seq: cur.seq, at: s.start, dir: s.dir, text: text}
	if cur.by != nil && cur.by.echoed {
		n.by = cur.by
	}
	s.notes = append(s.notes, n)
	if len(s.notes) > maxNotes {
		s.notes = slices.Delete(s.notes, 0, len(s.notes)-maxNotes)
	}
}

// Type takes what a person typed, as the keyboard sends it. ctx bounds the wait
// for what was typed before.
func (a *Attachment) Type(ctx context.Context, p []byte) error {
	if !a.types {
		return errors.New("this terminal is for looking at")
	}
	select {
	case a.typed <- bytes.Clone(p):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Resize gives the terminal a size while this attachment types: the last one
// who asked has it. It does nothing for one that only looks.
func (a *Attachment) Resize(rows, cols int) {
	if !a.types {
		return
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.rows, a.cols = max(1, min(rows, terminalRows)), max(1, min(cols, terminalCols))
	a.s.sized = append(slices.DeleteFunc(a.s.sized, func(b *Attachment) bool { return a == b }), a)
	a.s.applySize()
}

// applySize gives the terminal the size that was asked for last, or its own.
// The caller holds mu.
func (s *Session) applySize() {
	if s.shell == nil || !s.alive {
		return
	}
	size := unix.Winsize{Row: terminalRows, Col: terminalCols}
	if n := len(s.sized); n > 0 {
		a := s.sized[n-1]
		size.Row, size.Col = uint16(a.rows), uint16(a.cols) //nolint:gosec // bounded by Resize
	}
	_ = s.shell.term.control(func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size) })
}

// takeTyped deals with what is typed until ctx ends. What stands behind the end
// of a line in one piece was pasted with it: it is kept for the next prompt, as
// shells do, while what is typed later goes to the command.
func (a *Attachment) takeTyped(ctx context.Context) {
	var ahead []byte
	pasted := false
	for {
		a.s.mu.Lock()
		busy, prompted, more := a.s.busy(), a.prompted, a.s.watch()
		a.s.mu.Unlock()
		if !busy && len(ahead) > 0 && (prompted || !pasted) {
			n := a.edit(ctx, ahead)
			ahead = ahead[n:]
			if pasted = n > 0; pasted {
				continue
			}
		}
		select {
		case p := <-a.typed:
			if !a.s.Info().Busy { // it may have ended at this moment
				ahead = append(ahead, p...)
				pasted = pasted && len(ahead) > len(p)
				continue
			}
			if bytes.IndexByte(p, 'C'-'@') >= 0 {
				ahead = nil
			}
			a.s.typeRaw(ctx, a, p)
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// edit lets the line editor have keys up to the end of a line, and returns how
// many bytes it took.
func (a *Attachment) edit(ctx context.Context, p []byte) int {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	defer a.s.changed()
	at := 0
	for at < len(p) && !a.left {
		key, size := nextKey(p[at:])
		if size == 0 {
			break
		}
		at += size
		switch {
		case key == '\r' || key == '\n':
			a.enter(ctx)
			return at
		case key == 'C'-'@':
			a.endLine("^C")
			a.line, a.before = editor{history: a.line.history}, ""
		case key == 'D'-'@' && len(a.line.text) == 0 && a.before == "":
			a.leave()
		case key == 'L'-'@':
			a.out = append(a.out, "\x1b[H\x1b[2J"...)
			a.prompted, a.fresh = false, true
		case !a.line.press(key):
			a.out = append(a.out, '\a')
		case a.prompted:
			a.draw()
		}
	}
	return at
}

// endLine leaves the line as it is and goes to the next. The caller holds mu.
func (a *Attachment) endLine(mark string) {
	if a.prompted {
		a.out = append(a.out, mark+"\r\n"...)
		a.prompted, a.fresh = false, true
	}
}

// leave ends the attachment and not the shell. The caller holds mu.
func (a *Attachment) leave() {
	a.endLine("exit")
	a.left = true
}

// enter gives the line to the session. The caller holds mu, which is not held
// meanwhile.
func (a *Attachment) enter(ctx context.Context) {
	a.line.pos = len(a.line.text)
	typed := string(a.line.text)
	text := a.before + typed
	switch word := strings.TrimSpace(text); {
	case word == "":
		a.endLine("")
		a.line.take()
		return
	case word == "exit" || word == "logout":
		a.endLine("")
		a.left = true
		return
	case unfinished(text + "\n"):
		a.endLine("")
		a.line.take()
		a.before = text + "\n"
		return
	}
	a.submitting, a.echoed = true, a.prompted
	a.endLine("")
	a.s.mu.Unlock()
	err := a.s.submit(ctx, a, text)
	a.s.mu.Lock()
	a.submitting = false
	switch {
	case errors.Is(err, errBusy):
		a.say("another command was started at this moment; the line is kept")
		return
	case err != nil && ctx.Err() == nil:
		a.say(err.Error())
	}
	a.line.take()
	a.before = ""
}

// submit starts a person's command, which takes its turn like any other, and
// does not wait for its end.
func (s *Session) submit(ctx context.Context, a *Attachment, text string) error {
	for {
		s.mu.Lock()
		busy, more := s.busy(), s.watch()
		s.mu.Unlock()
		if busy {
			return errBusy
		}
		select {
		case <-s.turn:
			err := s.submitNow(ctx, a, text)
			s.turn <- struct{}{}
			return err
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// submitNow is submit for one who has the turn.
func (s *Session) submitNow(ctx context.Context, a *Attachment, text string) error {
	s.mu.Lock()
	busy := s.busy()
	s.mu.Unlock()
	if busy {
		return errBusy
	}
	_, err := s.give(ctx, text, a)
	return err
}

// typeRaw gives what a person types to the command that runs. A key that sends
// a signal goes the way of one that an action presses. What the command does
// not take in time is lost, with a bell.
func (s *Session) typeRaw(ctx context.Context, a *Attachment, p []byte) {
	s.mu.Lock()
	cur, sh := s.current, s.shell
	s.mu.Unlock()
	if cur == nil {
		return
	}
	select {
	case <-cur.sent:
	case <-cur.done:
		return
	case <-ctx.Done():
		return
	}
	var err error
	for len(p) > 0 && err == nil && !cur.ended() && ctx.Err() == nil {
		n := bytes.IndexAny(p, "\x03\x1a\x1c")
		if n == 0 {
			err = s.pressKey(cur, sh, p[:1], string(rune('@'+p[0])))
			if !ends(cur, askTime) {
				s.checkReport(cur)
			}
			p = p[1:]
			continue
		}
		if n < 0 {
			n = len(p)
		}
		n = min(n, pieceSize)
		err = s.pressText(cur, sh, p[:n])
		p = p[n:]
	}
	if err != nil {
		s.mu.Lock()
		a.out = append(a.out, '\a')
		s.changed()
		s.mu.Unlock()
	}
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
