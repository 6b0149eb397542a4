package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress is a line on the terminal of standard error that says what is going
// on. Where that is no terminal, nothing is written. It may be used
// concurrently.
type progress struct {
	out   io.Writer // nil: not a terminal
	width int

	mu    sync.Mutex
	shown string
	last  time.Time
}

// progress begins a line.
func (p *program) progress() *progress {
	file, ok := p.stderr.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || p.getenv("TERM") == "dumb" {
		return &progress{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 80
	}
	return &progress{out: file, width: width}
}

// say replaces the line.
func (g *progress) say(format string, args ...any) {
	if g.out == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A column stays free: some terminals wrap when the last one is written.
	line := cut(clean(fmt.Sprintf(format, args...)), g.width-1)
	if line == g.shown {
		return
	}
	g.shown, g.last = line, time.Now()
	_, _ = io.WriteString(g.out, "\r\x1b[K"+line)
}

// count is say for figures that change all the time: most are left out.
func (g *progress) count(format string, args ...any) {
	g.mu.Lock()
	recent := time.Since(g.last) < 100*time.Millisecond
	g.mu.Unlock()
	if !recent {
		g.say(format, args...)
	}
}

// end removes the line.
func (g *progress) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown != "" {
		_, _ = io.WriteString(g.out, "\r\x1b[K")
	}
	g.shown = ""
}
