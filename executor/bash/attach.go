package bash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// scrollBack is how much earlier output a new attachment shows: several
	// screens, and little to send.
	scrollBack = 64 << 10
	// maxEcho bounds the line editor's output that is kept for a slow reader.
	maxEcho = 256 << 10
	// pieceSize is how much is typed at once: a quarter of a terminal's buffer.
	pieceSize = 1 << 10
	// maxAhead is how much typed text waits before the client must wait too.
	maxAhead = 1 << 20
)

// errBusy says that a command runs already.
var errBusy = errors.New("a command is running")

// Attachment is a person's view of a session: the terminal's output with a
// prompt and the text before that of each command. Typed text goes to the command
// that runs or, between commands, to a prompt of the server's: whole
// lines become commands of the session, as the texts of [Session.Run] do. Between
// commands the terminal has no reader, and typed text would become the input of the
// next command. Input that a command leaves unread goes to the next prompt.
//
// Its methods may be called concurrently, Read by one at a time. It owns one
// goroutine, which handles typed text; Close ends it.
type Attachment struct {
	s      *Session
	types  bool
	typed  chan []byte
	stop   context.CancelFunc
	typing sync.WaitGroup
	kept   bool // the line is kept until a command of another has ended; takeTyped's own

	// The lock of the session guards the rest.
	next       int64  // offset of the next byte of output
	seen       int64  // the last command whose beginning was shown
	out        []byte // what is to be read before any of it
	fresh      bool   // the cursor is at the beginning of a line
	prompted   bool   // the prompt and the line are shown
	row        int    // of the cursor, counted from the first row of the prompt
	below      bool   // the prompt and the line take more than one row
	full       bool   // they fill their last row, and the cursor is in the next one
	listed     bool   // the last key was a Tab that completed nothing
	submitting bool
	echoed     bool // the line that is being submitted is shown already
	line       editor
	before     string // earlier lines of a command of several
	unread     []byte // was typed into a command that did not read it
	left       bool   // the person asked to leave
	rows, cols int    // 0 for no wish
	name       string // of the sandbox, for the prompt
}

// Attach attaches a person to the session, who may type if types is set. ctx
// bounds the typing; the caller must call [Attachment.Close].
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

// SetName sets the name of the sandbox that prompts show from then on.
func (a *Attachment) SetName(name string) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.name = name
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
// person left or the session was closed, and the cause of ctx's end. A slow reader
// gets a note of how many bytes it missed.
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

// Type takes a person's keystrokes, as the keyboard sends them, and gives the terminal the size
// of their window. ctx bounds the wait for earlier ones.
func (a *Attachment) Type(ctx context.Context, p []byte) error {
	if !a.types {
		return errors.New("this terminal is for looking at")
	}
	a.s.mu.Lock()
	rows, cols, first := a.rows, a.cols, len(a.s.sized) > 0 && a.s.sized[len(a.s.sized)-1] == a
	a.s.mu.Unlock()
	if rows > 0 && !first { // another window was resized, or typed in, after this one
		a.Resize(rows, cols)
	}
	select {
	case a.typed <- bytes.Clone(p):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Resize sets the size of the terminal while this attachment is open; of all attachments
// the last counts that was resized or typed into. It does nothing where typing is not
// allowed.
func (a *Attachment) Resize(rows, cols int) {
	if !a.types {
		return
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.rows, a.cols = max(1, min(rows, terminalRows)), max(1, min(cols, terminalCols))
	a.s.sized = append(slices.DeleteFunc(a.s.sized, func(b *Attachment) bool { return a == b }), a)
	a.s.applySize()
	if a.prompted { // the terminal has broken the line anew
		text, pos := a.prompt()
		l := layOut(text, pos, a.cols)
		a.row, a.below = min(l.row, a.rows-1), l.endRow > 0
		a.draw()
		a.s.changed()
	}
}

// takeTyped handles typed text until ctx ends. It waits in order for its reader, the
// line editor or the running command; text that a command did not read comes back.
func (a *Attachment) takeTyped(ctx context.Context) {
	var ahead []byte
	pasted := false
	pause := firstOffer
	for {
		a.s.mu.Lock()
		if len(a.unread) > 0 {
			ahead, a.unread, pasted = slices.Concat(a.unread, ahead), nil, true
		}
		busy, prompted, more := a.s.busy(), a.prompted, a.s.watch()
		a.s.mu.Unlock()
		var again <-chan time.Time
		switch {
		case len(ahead) == 0:
		case busy && !a.kept:
			if n := a.s.typeAhead(ctx, a, ahead, pasted); n > 0 {
				ahead, pause = ahead[n:], firstOffer
				continue
			}
			again = time.After(pause)
		case !busy && (prompted || !pasted):
			n := a.edit(ctx, ahead)
			ahead = ahead[n:]
			if pasted = n > 0; pasted {
				continue
			}
		}
		typed := a.typed
		if len(ahead) > maxAhead {
			typed = nil
		}
		select {
		case p := <-typed:
			pasted = pasted && len(ahead) > 0
			ahead = append(ahead, p...)
			pause = firstOffer
			if i := bytes.LastIndexAny(ahead, signalKeys); i > 0 && a.s.obeysSignalKeys() {
				ahead, a.kept = ahead[i:], false
			}
		case <-again:
			pause = min(2*pause, maxOffer)
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// edit gives keys to the line editor up to the end of a line, and returns how many
// bytes it took.
func (a *Attachment) edit(ctx context.Context, p []byte) int {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	defer a.s.changed()
	at, redraw := 0, false
	defer func() {
		if redraw && a.prompted {
			a.draw()
		}
	}()
	for at < len(p) && !a.left {
		key, size := nextKey(p[at:])
		if size == 0 {
			break
		}
		at += size
		switch {
		case key == '\r' || key == '\n':
			redraw = false
			if a.kept = !a.enter(ctx); a.kept {
				return at - size
			}
			return at
		case key == 'C'-'@':
			a.toEnd()
			a.endLine("^C")
			a.line, a.before, redraw = editor{history: a.line.history}, "", false
		case key == 'D'-'@' && len(a.line.text) == 0 && a.before == "":
			a.endLine("exit")
			a.left = true // and the shell goes on
		case key == 'L'-'@':
			a.out = append(a.out, "\x1b[H\x1b[2J"...)
			a.prompted, a.fresh, a.row, a.below = false, true, 0, false
		case key == '\t' && !a.line.searching:
			redraw = a.complete(ctx) || redraw
			a.listed = true
			continue
		case !a.line.press(key):
			a.out = append(a.out, '\a')
			redraw = redraw || a.line.searching
		default:
			redraw = true
		}
		a.listed = false
	}
	return at
}

// toEnd draws the line with the cursor behind it, so that later output does not
// overwrite it. The caller holds mu.
func (a *Attachment) toEnd() {
	a.line.searching = false
	a.line.pos = len(a.line.text)
	if a.prompted {
		a.draw()
	}
}

// endLine leaves the line as it is and goes to the next. The caller holds mu.
func (a *Attachment) endLine(mark string) {
	if a.prompted {
		if mark != "" || !a.full {
			mark += "\r\n"
		}
		a.out = append(a.out, mark...)
		a.prompted, a.fresh, a.row, a.below, a.full = false, true, 0, false, false
	}
}

// enter gives the line to the session, and reports whether that did not have to wait for a
// command of another. The caller holds mu; enter releases it while the session starts the
// command.
func (a *Attachment) enter(ctx context.Context) bool {
	a.toEnd()
	typed := string(a.line.text)
	text := a.before + typed
	switch word := strings.TrimSpace(text); {
	case a.line.over: // a part of it may do something else than the whole
		a.endLine("")
		a.line, a.before = editor{history: a.line.history}, ""
		a.say(fmt.Sprintf("the line was not run: it is longer than %d characters", maxTyped))
		return true
	case word == "":
		a.endLine("")
		a.line.take()
		return true
	case word == "exit" || word == "logout":
		a.endLine("")
		a.left = true
		return true
	case unfinished(text + "\n"):
		a.endLine("")
		a.line.take()
		a.before = text + "\n"
		return true
	}
	a.submitting, a.echoed = true, a.prompted
	a.endLine("")
	a.s.mu.Unlock()
	err := a.s.submit(ctx, a, text)
	a.s.mu.Lock()
	a.submitting = false
	switch {
	case errors.Is(err, errBusy):
		a.say("another command was started at this moment; the line waits for its end")
		return false
	case err != nil && ctx.Err() == nil:
		a.say(err.Error())
	}
	a.line.take()
	a.before = ""
	return true
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

// submitNow is submit for a caller that has the turn.
func (s *Session) submitNow(ctx context.Context, a *Attachment, text string) error {
	s.mu.Lock()
	busy := s.busy()
	s.mu.Unlock()
	if busy {
		return errBusy
	}
	_, err := s.give(ctx, nil, text, a)
	return err
}

// signalKeys are the keys that send a signal where the terminal obeys them, and discard
// the text typed before them.
const signalKeys = "\x03\x1a\x1c"

// obeysSignalKeys reports whether a command runs that did not turn signal keys off.
func (s *Session) obeysSignalKeys() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy() && s.alive && s.shell.term.has(unix.ISIG)
}

// typeAhead types the first of a person's keys into the command that runs, and returns how
// many: 0 while the command reads nothing. Keys that send a signal are pressed as those of
// an action.
//
// A command gets nothing before it has run for quickTime, and a pasted text one line at a
// time: the terminal shows each line that it takes, and would show the whole text again
// for each command that does not read it.
func (s *Session) typeAhead(ctx context.Context, a *Attachment, keys []byte, pasted bool) (n int) {
	s.mu.Lock()
	cur, sh, starting := s.current, s.shell, s.starting
	s.mu.Unlock()
	if cur == nil || starting != nil {
		return 0
	}
	select {
	case <-cur.sent:
	case <-cur.done:
		return 0
	case <-ctx.Done():
		return 0
	}
	end := bytes.IndexAny(keys, signalKeys)
	if end == 0 {
		if s.pressKey(cur, sh, keys[:1]) != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			a.out = append(a.out, '\a')
			s.changed()
		}
		return 1
	}
	if end < 0 {
		end = len(keys)
	}
	s.pressing.Lock()
	defer s.pressing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if cur.ended() || time.Since(cur.given) < quickTime {
		return 0
	}
	cur.shared = cur.shared || cur.typist != nil && cur.typist != a
	cur.typist = a
	return sh.term.offer(keys[:end], pasted)
}

// quickTime is longer than most pasted lines run.
const quickTime = 50 * time.Millisecond

// Keys that a command did not take are offered again after a pause, which doubles.
const (
	firstOffer = time.Millisecond
	maxOffer   = time.Second
)
