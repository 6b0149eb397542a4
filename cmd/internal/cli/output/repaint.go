package output

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/term"
)

// Screen prints one table over the one before, on a terminal that can do so. It may
// not be used concurrently.
type Screen struct {
	out  *os.File
	rows int // on the screen
}

// Repaint returns nil where standard output cannot be painted over.
func (s *Streams) Repaint() *Screen {
	file, ok := Terminal(s.Stdout)
	if !ok || s.Getenv("TERM") == "" || s.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Screen{out: file}
}

// Paint prints as many rows as the window has lines for.
func (r *Screen) Paint(rows [][]string) error {
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
	if err := WriteTable(&b, rows, width); err != nil {
		return err
	}
	if _, err := r.out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
