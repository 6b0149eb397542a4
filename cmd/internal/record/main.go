// Record types the commands of the first console block with runtimectl of a page into a
// shell with a terminal, and writes the screen as an SVG: 'make record' calls it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/actiond/actiond/executor/bash/screen"
)

const columns = 104

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	page := flag.String("page", "README.md", "the `FILE` with the commands")
	flag.Parse()
	if err := run(ctx, os.Stdout, *page); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "record: %v\n", err)
		os.Exit(1)
	}
}

// step is one command, its output as a person saw it, and how long it took.
type step struct {
	command, output string
	took            time.Duration
}

// run records the commands of a page in an empty directory.
func run(ctx context.Context, to io.Writer, page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("reading the commands: %w", err)
	}
	list := commands(string(text))
	if len(list) == 0 {
		return fmt.Errorf("%s has no console block with runtimectl", page)
	}
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var steps []step
	for _, command := range list {
		s, err := record(ctx, dir, command)
		if err != nil {
			return err
		}
		steps = append(steps, s)
	}
	if _, err := to.Write(draw(steps)); err != nil {
		return fmt.Errorf("writing the recording: %w", err)
	}
	return nil
}

var console = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// commands returns the lines behind a prompt in the first console block that has runtimectl.
func commands(page string) []string {
	for _, block := range console.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(block[1], "$ runtimectl ") {
			continue
		}
		var list []string
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ "); ok {
				list = append(list, command)
			}
		}
		return list
	}
	return nil
}

// record runs a command on a terminal of its own.
func record(ctx context.Context, dir, command string) (step, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1", "ACTIOND_STATE_DIR="+filepath.Join(dir, "state"))
	start := time.Now()
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: columns})
	if err != nil {
		return step{}, fmt.Errorf("starting %q: %w", command, err)
	}
	defer func() { _ = terminal.Close() }()
	seen := screen.New(columns, 40)
	if _, err := io.Copy(seen, terminal); err != nil && !errors.Is(err, syscall.EIO) { // Linux's end of a terminal
		return step{}, fmt.Errorf("reading the output of %q: %w", command, err)
	}
	err = cmd.Wait()
	took := time.Since(start)
	output, _ := seen.Text()
	if err != nil {
		return step{}, fmt.Errorf("%q: %w\n%s", command, err, output)
	}
	return step{command: command, output: output, took: took}, nil
}

const (
	lineHeight = 18.0
	charWidth  = 7.83 // of 13 pixels of a monospaced font
	margin     = 14.0
	reading    = 1500 * time.Millisecond // between an output and the next command
)

// draw returns the steps as an SVG that plays them: each output appears when it did.
func draw(steps []step) []byte {
	var body bytes.Buffer
	y, at := margin, time.Duration(0)
	lines := func(class, text string) {
		for _, line := range wrapped(text) {
			y += lineHeight
			_, _ = fmt.Fprintf(&body, "<text class=\"%s\" x=\"%g\" y=\"%g\" style=\"animation-delay:%.2fs\">%s</text>\n", class,
				margin, y, at.Seconds(), escape(line))
		}
	}
	for _, s := range steps {
		lines("c", "$ "+s.command)
		at += s.took
		if s.output != "" {
			lines("o", s.output)
		}
		_, _ = fmt.Fprintf(&body, "<text class=\"t\" x=\"%g\" y=\"%g\" style=\"animation-delay:%.2fs\">%.2f s</text>\n",
			margin+columns*charWidth, y, at.Seconds(), s.took.Seconds())
		at += reading
	}
	width, height := 2*margin+(columns+8)*charWidth, y+margin
	var all bytes.Buffer
	_, _ = fmt.Fprintf(&all, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="A recorded terminal">
<style>
text{font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#d0d7de;animation:show .01s both}
.c{fill:#7ee787}.t{fill:#8b949e}
@keyframes show{from{opacity:0}}
@media(prefers-reduced-motion:reduce){text{animation:none}}
</style>
<rect width="100%%" height="100%%" rx="8" fill="#161b22"/>
`, width, height)
	_, _ = body.WriteTo(&all)
	all.WriteString("</svg>\n")
	return all.Bytes()
}

// wrapped returns the lines that a terminal of so many columns shows.
func wrapped(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		row := []rune(strings.TrimSuffix(line, "\n"))
		for len(row) > columns {
			all, row = append(all, string(row[:columns])), row[columns:]
		}
		all = append(all, string(row))
	}
	return all
}

func escape(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(cmp.Or(text, " ")))
	return out.String()
}
