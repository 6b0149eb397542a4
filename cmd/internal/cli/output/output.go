// Package output writes the output of commands: tables, JSON and YAML, progress and
// notes. Text may come from a sandbox: nothing in it acts on a terminal.
package output

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Format is the value of an --output flag: one of a few words.
type Format struct {
	Value   string
	allowed []string
}

// AddFormat gives c a flag -o that takes one of the allowed words; the first
// is the default.
func AddFormat(c *cobra.Command, allowed ...string) *Format {
	f := &Format{Value: allowed[0], allowed: allowed}
	c.Flags().VarP(f, "output", "o", "print "+strings.Join(allowed, " or "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return f
}

// Set takes one of the allowed words.
func (f *Format) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("must be %s", strings.Join(f.allowed, " or "))
	}
	f.Value = s
	return nil
}

// String returns the word.
func (f *Format) String() string { return f.Value }

// Type is the name of the value in help.
func (f *Format) Type() string { return strings.Join(f.allowed, "|") }

// Style is how text for a person is written. The zero value is plain.
type Style struct {
	color bool
	Width int // of the terminal in columns; 0 without a terminal
}

// Style finds out whether standard output shows colours. Where it does not, plain
// says why.
func (s *Streams) Style() (style Style, plain string) {
	file, ok := Terminal(s.Stdout)
	if !ok {
		return style, "standard output is not a terminal"
	}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil {
		style.Width = width
	}
	plain = s.plain()
	style.color = plain == ""
	return style, plain
}

// plain says why there should be no colours on a terminal, "" where there may.
func (s *Streams) plain() string {
	switch name := s.Getenv("TERM"); {
	case s.Getenv("NO_COLOR") != "": // no-color.org
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
	Bold   = "1"
	Dim    = "2"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Cyan   = "36"
)

// Paint wraps text in a colour, where there are any.
func (s Style) Paint(color, text string) string {
	if !s.color || color == "" || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

const tabWidth = 8

// Clean makes a line harmless to a terminal: tabs become blanks, and whatever
// is not to be seen is written out, because the text comes from a sandbox that
// may want to move the cursor, ring, or rename the window.
func Clean(line string) string {
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

// Cut shortens a clean line to width columns; 0 means any width.
func Cut(line string, width int) string {
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

// wide holds the characters that take two columns of a terminal, roughly: a wrong
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

// Shorten keeps the first and the last of more than most lines and says
// between them how many are left out.
func Shorten(lines []string, most int) (head []string, left int, tail []string) {
	if len(lines) <= most {
		return lines, 0, nil
	}
	ends := most / 3
	starts := most - ends - 1 // one line says what is missing
	return lines[:starts], len(lines) - starts - ends, lines[len(lines)-ends:]
}
