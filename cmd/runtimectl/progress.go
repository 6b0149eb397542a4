package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/actiond/actiond/sandbox"
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

// show is a change for open: the line says what a creation waits for, and how
// far a pull is.
func (g *progress) show(o *options) {
	o.progress = func(_ string, _ sandbox.State, waiting string) {
		if waiting != "" {
			g.say("waiting for %s", strings.TrimPrefix(waiting, "waiting for "))
		}
	}
	o.pulling = func(status string, done, total int64) {
		if total == 0 {
			g.count("pulling: %s", strings.ToLower(status))
		} else {
			g.count("pulling: %s of %s", size(done), size(total))
		}
	}
}
