package output

import (
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress is a line on the terminal of standard error that says which step is going
// on. Where that is no terminal, nothing is written. It may be used
// concurrently.
type Progress struct {
	out   io.Writer // nil: not a terminal
	width int

	mu    sync.Mutex
	ready time.Time // when the first line may be shown
	timer *time.Timer
	line  string // the latest
	shown string
	last  time.Time
}

// patience is the time before the line appears: a shorter step needs none.
const patience = 300 * time.Millisecond

// Progress begins a line.
func (s *Streams) Progress() *Progress {
	file, ok := Terminal(s.Stderr)
	if !ok || s.Getenv("TERM") == "dumb" {
		return &Progress{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 80
	}
	return newProgress(file, width)
}

func newProgress(out io.Writer, width int) *Progress {
	return &Progress{out: out, width: width, ready: time.Now().Add(patience)}
}

// Say replaces the line.
func (g *Progress) Say(format string, args ...any) {
	if g.out == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A column stays free: some terminals wrap when the last one is written.
	g.line = Cut(Clean(fmt.Sprintf(format, args...)), g.width-1)
	if left := time.Until(g.ready); left <= 0 {
		g.paint()
	} else if g.timer == nil {
		g.timer = time.AfterFunc(left, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.paint()
		})
	}
}

// paint shows the latest line. The caller holds mu.
func (g *Progress) paint() {
	if g.line == g.shown {
		return
	}
	g.shown, g.last = g.line, time.Now()
	_, _ = io.WriteString(g.out, "\r\x1b[K"+g.line)
}

// Count is say for figures that change all the time: most are left out.
func (g *Progress) Count(format string, args ...any) {
	g.mu.Lock()
	recent := g.shown != "" && time.Since(g.last) < 100*time.Millisecond
	g.mu.Unlock()
	if !recent {
		g.Say(format, args...)
	}
}

// End removes the line.
func (g *Progress) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
	}
	if g.shown != "" {
		_, _ = io.WriteString(g.out, "\r\x1b[K")
	}
	g.timer, g.line, g.shown = nil, "", "" // a timer that fires now has nothing to show
}
