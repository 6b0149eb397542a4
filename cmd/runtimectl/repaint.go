package main

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/term"
)

// repainted prints one table over the one before, on a terminal that can do so. It may
// not be used concurrently.
type repainted struct {
	out  *os.File
	rows int // on the screen
}

// repaint returns nil where standard output cannot be painted over.
func (p *program) repaint() *repainted {
	file, ok := p.stdout.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || p.getenv("TERM") == "" || p.getenv("TERM") == "dumb" {
		return nil
	}
	return &repainted{out: file}
}

// paint prints as many rows as the window has lines for.
func (r *repainted) paint(rows [][]string) error {
	width, height, err := term.GetSize(int(r.out.Fd()))
	if err != nil {
		return fmt.Errorf("looking at the terminal: %w", err)
	}
	if height > 1 {
		rows = rows[:min(len(rows), height-1)]
	}
	var b bytes.Buffer
	if r.rows > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", r.rows) // up, and away with what is below
	}
	r.rows = len(rows)
	if err := writeTable(&b, rows, width); err != nil {
		return err
	}
	if _, err := r.out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
