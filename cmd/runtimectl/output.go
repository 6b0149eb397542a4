package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/actiond/actiond/api"
)

// format is the value of an --output flag: one of a few words.
type format struct {
	value   string
	allowed []string
}

// addFormat gives c a flag -o that takes one of the allowed words; the first
// is the default.
func addFormat(c *cobra.Command, allowed ...string) *format {
	f := &format{value: allowed[0], allowed: allowed}
	c.Flags().VarP(f, "output", "o", "print "+strings.Join(allowed, " or "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return f
}

// Set takes one of the allowed words.
func (f *format) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("must be %s", strings.Join(f.allowed, " or "))
	}
	f.value = s
	return nil
}

// String returns the word.
func (f *format) String() string { return f.value }

// Type names what help shows for the value.
func (f *format) Type() string { return strings.Join(f.allowed, "|") }

// style is how text for a person is written. The zero value is plain.
type style struct {
	color bool
	width int // of the terminal in columns; 0 without a terminal
}

// style finds out what standard output can show. Where it is no colours, plain
// says why.
func (p *program) style() (s style, plain string) {
	file, ok := p.stdout.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return s, "standard output is not a terminal"
	}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil {
		s.width = width
	}
	plain = p.plain()
	s.color = plain == ""
	return s, plain
}

// plain says why there should be no colours on a terminal, "" where there may.
func (p *program) plain() string {
	switch name := p.getenv("TERM"); {
	case p.getenv("NO_COLOR") != "": // no-color.org
		return "NO_COLOR is set"
	case name == "":
		return "TERM is not set"
	case name == "dumb":
		return "TERM is dumb"
	}
	return ""
}

// The colours are the eight that every terminal has, in the person's own theme.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// paint wraps text in a colour, where there are any.
func (s style) paint(color, text string) string {
	if !s.color || color == "" || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

const tabWidth = 8

// clean makes a line harmless to a terminal: tabs become blanks, and whatever
// is not to be seen is written out, because the text comes from a sandbox that
// may want to move the cursor, ring, or rename the window.
func clean(line string) string {
	var b strings.Builder
	column := 0
	for len(line) > 0 {
		r, size := utf8.DecodeRuneInString(line)
		switch {
		case r == utf8.RuneError && size == 1:
			n, _ := fmt.Fprintf(&b, `\x%02x`, line[0])
			column += n
		case r == '\t':
			blanks := tabWidth - column%tabWidth
			b.WriteString(strings.Repeat(" ", blanks))
			column += blanks
		case unicode.IsGraphic(r):
			b.WriteRune(r)
			column += columns(r)
		case r < utf8.RuneSelf:
			n, _ := fmt.Fprintf(&b, `\x%02x`, r)
			column += n
		default:
			n, _ := fmt.Fprintf(&b, `\u%04x`, r)
			column += n
		}
		line = line[size:]
	}
	return b.String()
}

const cutMark = "..."

// cut shortens a clean line to width columns; 0 means any width.
func cut(line string, width int) string {
	if width <= 0 || len(line) <= width {
		return line
	}
	column, fits := 0, 0 // fits is where the mark would go
	for i, r := range line {
		if column <= width-len(cutMark) {
			fits = i
		}
		if column += columns(r); column > width {
			return line[:fits] + cutMark[:min(len(cutMark), width)]
		}
	}
	return line
}

// wide holds what takes two columns of a terminal, in large strokes: a wrong
// guess costs a bent line.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, // Hangul that begins a syllable
		{Lo: 0x2e80, Hi: 0xa4cf, Stride: 1}, // CJK, kana, Yi
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, // Hangul syllables
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1}, // CJK compatibility
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff01, Hi: 0xff60, Stride: 1}, // full-width forms
	},
	R32: []unicode.Range32{
		{Lo: 0x1f300, Hi: 0x1faff, Stride: 1}, // pictures
		{Lo: 0x20000, Hi: 0x3fffd, Stride: 1}, // rare CJK
	},
}

// columns is how many columns of a terminal a character takes.
func columns(r rune) int {
	switch {
	case r < utf8.RuneSelf:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// shorten keeps the first and the last of more than most lines and says
// between them how many are left out.
func shorten(lines []string, most int) (head []string, left int, tail []string) {
	if len(lines) <= most {
		return lines, 0, nil
	}
	ends := most / 3
	starts := most - ends - 1 // one line says what is missing
	return lines[:starts], len(lines) - starts - ends, lines[len(lines)-ends:]
}

// content is what an observation says.
func content(o api.Observation) string {
	switch o := o.(type) {
	case api.RunObservation:
		return o.Content
	case api.ReadObservation:
		return o.Content
	case api.EditObservation:
		return o.Content
	case api.ErrorObservation:
		return o.Content
	default:
		return ""
	}
}
