package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/actiond/actiond/docker"
)

// progress is a line on the terminal of standard error that says what is going
// on. Where that is no terminal, nothing is written. It may be used
// concurrently.
type progress struct {
	out   io.Writer // nil: nobody looks
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
func (g *progress) show(c *docker.Config) {
	c.Progress = func(_ string, _ docker.State, waiting string) {
		if waiting != "" {
			g.say("waiting for %s", strings.TrimPrefix(waiting, "waiting for "))
		}
	}
	c.PullOutput = &pullProgress{line: g, layers: map[string][2]int64{}}
}

// pullProgress reads the engine's report of a pull.
type pullProgress struct {
	line   *progress
	rest   []byte
	layers map[string][2]int64 // done and all bytes of each
}

// Write takes a part of the report: JSON, a value to a line.
func (r *pullProgress) Write(part []byte) (int, error) {
	r.rest = append(r.rest, part...)
	for {
		line, rest, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			return len(part), nil
		}
		r.rest = rest
		r.report(line)
	}
}

func (r *pullProgress) report(line []byte) {
	var report struct {
		Status string `json:"status"`
		ID     string `json:"id"`
		Detail struct {
			Current int64 `json:"current"`
			Total   int64 `json:"total"`
		} `json:"progressDetail"`
	}
	if json.Unmarshal(line, &report) != nil { // it is only for looking at
		return
	}
	if report.Status != "Downloading" || report.Detail.Total <= 0 {
		r.line.count("pulling: %s", strings.ToLower(report.Status))
		return
	}
	r.layers[report.ID] = [2]int64{report.Detail.Current, report.Detail.Total}
	var done, all int64
	for _, layer := range r.layers {
		done, all = done+layer[0], all+layer[1]
	}
	r.line.count("pulling: %s of %s", size(done), size(all))
}

// size is a number of bytes for a person.
func size(bytes int64) string {
	const units = "kMGTPE"
	if bytes < 1000 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes), -1
	for value >= 999.5 && unit < len(units)-1 {
		value /= 1000
		unit++
	}
	if value < 9.95 {
		return fmt.Sprintf("%.1f %cB", value, units[unit])
	}
	return fmt.Sprintf("%.0f %cB", value, units[unit])
}
