package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// complain says what went wrong. The text may quote what a sandbox wrote.
func (p *program) complain(text string) {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	_, _ = fmt.Fprintf(p.stderr, "runtimectl: %s\n", strings.Join(lines, "\n"))
}

// harmless is standard output, whose control characters are written out where it
// is a terminal.
func (p *program) harmless() io.Writer {
	if file, ok := p.stdout.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return cleaner{p.stdout}
	}
	return p.stdout
}

// cleaner makes lines harmless to a terminal.
type cleaner struct{ out io.Writer }

// Write writes whole lines or parts of them.
func (c cleaner) Write(text []byte) (int, error) {
	lines := strings.Split(string(text), "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	if _, err := fmt.Fprint(c.out, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// maxAction is the most a server takes, and some.
const maxAction = 128 << 20

// input is the argument, or what is in the file, or on standard input.
func (p *program) input(file string, args []string) ([]byte, error) {
	if len(args) > 0 && args[0] != "-" {
		return []byte(args[0]), nil
	}
	in := p.stdin
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, absent(err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxAction+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading what to send: %w", err)
	case len(data) > maxAction:
		return nil, fmt.Errorf("what is to be sent has more than %d MiB", maxAction>>20)
	}
	return data, nil
}
