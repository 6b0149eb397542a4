package output

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress is a line on the terminal of standard error that says what is going
// on. Where that is no terminal, nothing is written. It may be used
// concurrently.
type Progress struct {
	out   io.Writer // nil: not a terminal
	width int

	mu    sync.Mutex
	shown string
	last  time.Time
}

// Progress begins a line.
func (s *Streams) Progress() *Progress {
	file, ok := s.Stderr.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || s.Getenv("TERM") == "dumb" {
		return &Progress{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 80
	}
	return &Progress{out: file, width: width}
}

// Say replaces the line.
func (g *Progress) Say(format string, args ...any) {
	if g.out == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A column stays free: some terminals wrap when the last one is written.
	line := Cut(Clean(fmt.Sprintf(format, args...)), g.width-1)
	if line == g.shown {
		return
	}
	g.shown, g.last = line, time.Now()
	_, _ = io.WriteString(g.out, "\r\x1b[K"+line)
}

// Count is say for figures that change all the time: most are left out.
func (g *Progress) Count(format string, args ...any) {
	g.mu.Lock()
	recent := time.Since(g.last) < 100*time.Millisecond
	g.mu.Unlock()
	if !recent {
		g.Say(format, args...)
	}
}

// End removes the line.
func (g *Progress) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown != "" {
		_, _ = io.WriteString(g.out, "\r\x1b[K")
	}
	g.shown = ""
}
