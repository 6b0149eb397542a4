package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/keys"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// ownTerminal connects our terminal with that of a program or a session in the sandbox. Ours is raw meanwhile
// if that reads from it. A nil one does nothing.
type ownTerminal struct {
	in    *os.File // ours; nil where the program has no input
	out   *os.File // ours; nil where standard output is none
	size  *windowSize
	leave []byte // keys that end the connection

	mu     sync.Mutex
	before *term.State // of in while it is raw
	stop   func()      // ends the goroutine
}

// newTerminal prepares the terminal of a program, whose size resize changes. With input, standard input is a
// terminal.
func (p *program) newTerminal(input bool, resize func(rows, cols int) error) *ownTerminal {
	t := &ownTerminal{size: &windowSize{resize: resize}, leave: leaveKeys, stop: func() {}}
	in, isIn := output.Terminal(p.Stdin)
	out, isOut := output.Terminal(p.Stdout)
	if isIn && input {
		t.in = in
	}
	switch {
	case isOut:
		t.out, t.size.out = out, out
	case isIn:
		t.size.out = in
	}
	p.terminal.Store(t)
	return t
}

// tty is the size for a program that is about to start.
func (w *windowSize) tty() api.TTY {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows, w.cols = w.now()
	return api.TTY{Rows: cmp.Or(w.rows, 24), Cols: cmp.Or(w.cols, 80)}
}

// withTERM returns variables with a TERM that images know.
func withTERM(variables map[string]string) map[string]string {
	with := map[string]string{"TERM": "xterm"}
	maps.Copy(with, variables)
	return with
}

// connect makes our terminal raw, reports its size to the other side as that changes until
// ctx is over, and returns the typed text; all of that where there is one.
func (t *ownTerminal) connect(ctx context.Context) (typed io.Reader, err error) {
	t.stop = t.size.follow(ctx)
	if t.in == nil {
		return nil, nil //nolint:nilnil // nothing is typed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before, err = term.MakeRaw(int(t.in.Fd())); err != nil {
		return nil, fmt.Errorf("making the terminal raw: %w", err)
	}
	return &typing{in: t.in, size: t.size, detector: keys.Detector{Keys: t.leave}}, nil
}

// disconnect restores our terminal and waits for the goroutine. After cut, where the
// program may not have, it also resets the modes that the program set.
func (t *ownTerminal) disconnect(cut bool) error {
	if t == nil {
		return nil
	}
	t.stop()
	if raw := t.restore(); raw && cut && t.out != nil {
		_, err := io.WriteString(t.out, resetTerminal)
		return err
	}
	return nil
}

// restore restores the modes of our terminal, and returns whether it was raw. It can be called
// again.
func (t *ownTerminal) restore() (raw bool) {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before == nil {
		return false
	}
	_ = term.Restore(int(t.in.Fd()), t.before) // where it fails, the terminal is gone
	t.before = nil
	return true
}

// restoreInPanic restores our terminal in a panic of another goroutine, which ends the
// program without the deferred calls of the others.
func (t *ownTerminal) restoreInPanic() {
	if v := recover(); v != nil {
		t.restore()
		panic(v)
	}
}

// leaveKeys are docker's.
var leaveKeys = []byte{'p' & 0x1f, 'q' & 0x1f}

// typing reads keystrokes until the keys to leave come, and fails with errLeft then.
type typing struct {
	in       io.Reader
	size     *windowSize
	detector keys.Detector
	rest     []byte // that did not fit
	err      error  // that follows it
}

func (t *typing) Read(p []byte) (int, error) {
	for len(t.rest) == 0 && t.err == nil {
		n, err := t.in.Read(p)
		through, found := t.detector.Pass(p[:n])
		t.rest, t.err = through, err
		if found {
			t.err = errLeft
		}
	}
	t.size.send() // keys that follow a change must not overtake it
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	if len(t.rest) > 0 {
		return n, nil
	}
	return n, t.err
}

// errLeft ends an attachment whose keys were typed.
var errLeft = errors.New("left")

// resetTerminal resets the modes that a program in the sandbox may have set: colours, the
// other screen, a hidden cursor, reports of the mouse, bracketed paste,
// other codes for keys.
const resetTerminal = "\x1b[0m\x1b[?47l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?2004l\x1b[?1l\x1b>\r\n"

// windowSize reports the size of the terminal to the other side. Its methods
// may be called concurrently.
type windowSize struct {
	out    *os.File                   // a terminal; nil where there is none, and the size stays
	resize func(rows, cols int) error // reports it; a connection that broke is noticed elsewhere

	mu         sync.Mutex
	rows, cols int // as the other side knows them
}

// send reports the size if it changed.
func (w *windowSize) send() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rows, cols := w.now(); rows > 0 && (rows != w.rows || cols != w.cols) && w.resize(rows, cols) == nil {
		w.rows, w.cols = rows, cols
	}
}

// maxSize bounds the lines and the columns that a server takes.
const maxSize = 1000

// now is the size of the terminal, 0 where that is not known.
func (w *windowSize) now() (rows, cols int) {
	if w.out == nil {
		return 0, 0
	}
	cols, rows, err := term.GetSize(int(w.out.Fd()))
	if err != nil || rows <= 0 || cols <= 0 {
		return 0, 0
	}
	return min(rows, maxSize), min(cols, maxSize)
}

// follow sends the size now and whenever it changes, until stop.
func (w *windowSize) follow(ctx context.Context) (stop func()) {
	changed := make(chan os.Signal, 1)
	changed <- syscall.SIGWINCH // the size it has now
	signal.Notify(changed, syscall.SIGWINCH)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-changed:
				w.send()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		cancel()
		<-ended
	}
}
