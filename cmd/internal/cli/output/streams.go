package output

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/actiond/actiond/cmd/internal/cli/command"
)

// Streams are the inputs and outputs of a command, and its environment. Data goes to
// Stdout and nothing else does; notes, progress and errors go to Stderr.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Terminal returns the file of a stream that is a terminal.
func Terminal(stream any) (*os.File, bool) {
	f, ok := stream.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// Complain writes an error message. The text may quote output of a sandbox.
func (s *Streams) Complain(text string) {
	_, _ = fmt.Fprintf(s.Stderr, "runtimectl: %s\n", cleanLines(text))
}

// cleanLines is Clean for each of several lines.
func cleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Harmless is standard output, whose control characters are written out where it
// is a terminal.
func (s *Streams) Harmless() io.Writer {
	if _, ok := Terminal(s.Stdout); ok {
		return cleaner{s.Stdout}
	}
	return s.Stdout
}

// cleaner makes lines harmless to a terminal.
type cleaner struct{ out io.Writer }

// Write writes whole lines or parts of them.
func (c cleaner) Write(text []byte) (int, error) {
	if _, err := fmt.Fprint(c.out, cleanLines(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// maxAction is the most a server takes, and some.
const maxAction = 128 << 20

// Input is the argument, or the content of the file or of standard input.
func (s *Streams) Input(file string, args []string) ([]byte, error) {
	if len(args) > 0 && args[0] != "-" {
		return []byte(args[0]), nil
	}
	in := s.Stdin
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, command.Absent(err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxAction+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the request: %w", err)
	case len(data) > maxAction:
		return nil, fmt.Errorf("the request has more than %d MiB", maxAction>>20)
	}
	return data, nil
}
