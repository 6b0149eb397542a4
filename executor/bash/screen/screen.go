// Package screen is a terminal emulator for output that is read as text: the
// screen of a person, with the lines that left the top.
package screen

import (
	"bytes"
	"unicode/utf8"
)

// Bounds of the contents of a screen, so that no output makes the server grow.
const (
	// trimAbove and trimTo are the reference's scroll-back: tmux with 10,000
	// lines of history and 1,000 rows drops a tenth at a time and was measured
	// to show the last 10,013 lines of 50,000 as of 12,000, and 10,500 whole.
	trimAbove = 10_990
	trimTo    = 10_013

	// maxKept is how many bytes of text are shown at most, two hundred times
	// the size of an observation. Storage itself may reach a third more before
	// the oldest lines go, 8 MiB, and an unfinished line two maxLine more.
	maxKept = 6 << 20

	// maxLine is how many bytes one line shows, half of them from its
	// beginning and half from its end: minified files and base64 have lines
	// like that, and their middle is not worth showing.
	maxLine = 1 << 20

	// maxColumns is how far a line has columns that can be written over. A
	// longer one continues as plain text, of which only the last maxColumns/2
	// bytes can be written over, as in a terminal only the last rows can.
	maxColumns = 1 << 14

	// maxSequence and maxString bound escape sequences that never end: after
	// so many bytes a CSI sequence, or an OSC, DCS, APC, PM or SOS string,
	// counts as broken, and the rest is text again. Real CSI sequences
	// have under 40 bytes, real strings (titles, links, image chunks of 4,096)
	// under 5,000.
	maxSequence = 256
	maxString   = 8 << 10

	// keepBuffer is how large a buffer survives a Reset.
	keepBuffer = 32 << 10

	// minCompact is how much must have come since storage was last compacted.
	minCompact = 1 << 20

	// pullSlack is the work, in bytes moved, that a program may cause beyond
	// its credit, which its output earns; see Screen.debt.
	pullSlack  = 1 << 10
	lineWeight = 64 // what a line costs to move beside its bytes
)

// A Screen renders the bytes of a terminal to the text a person would see.
//
// It differs from a terminal where a person scrolls and drags: lines that left
// the top are part of the text, and a line wider than the screen is one line,
// not several. A full-screen program on the alternate screen is shown as the
// grid it draws, and disappears from the text when it leaves.
//
// Three optimizations make it fast and never change the result. Text that only flows is kept
// raw, tabs and bad UTF-8 included, and looked at by Text alone (hist). Only
// lines that a program writes over are taken out of it (pull) and given columns
// (main). And they go back (merge) once the output that came since has paid for
// the work (debt), so that no output costs more than in proportion to its
// length. All of this is decided byte by byte: how the output was cut into
// writes never changes the result.
//
// A Screen needs no closing and starts no goroutine; it is not safe for
// concurrent use. One that showed nothing yet holds under a kilobyte.
type Screen struct {
	cols, rows int

	// hist is the text that flows: lines as they came, each ended by "\n" or
	// "\r\n" but the last. It holds printable bytes, tabs and bytes from 0x80.
	hist      []byte
	lineStart int  // where the unfinished last line begins
	origin    int  // lines that begin before this offset are out of the cursor's reach
	compactAt int  // len(hist) at which the oldest lines are dropped
	cut       int  // bytes taken from the middle of the unfinished line
	dropped   int  // lines dropped since Reset
	cr        bool // hist ends in a carriage return and what follows overwrites, unless it is a newline

	main  page  // its lines continue hist; none while text only flows
	alt   *page // the alternate screen while it is on
	marks clusters
	debt  int // bytes moved to pull lines, less the bytes written since
	grown int // at most so many bytes were added to main's lines since they were counted

	parser parser
	bad    []byte // the beginning of a rune that is still to come, in lines with columns
	insert bool   // insert mode
	nowrap bool   // no autowrap on the alternate screen

	appKeys bool // the program wants other bytes for cursor keys
}

// AppKeys reports whether the program asked for the application's sequences of cursor keys.
func (s *Screen) AppKeys() bool { return s.appKeys }

// New returns a screen of that many columns and rows (at least one of
// each). The main screen does not wrap; the columns bound cursor movements.
func New(cols, rows int) *Screen {
	return &Screen{cols: max(cols, 1), rows: max(rows, 1), compactAt: minCompact}
}

// Write takes in output. It never fails, and any split of the output over
// calls has the same result.
func (s *Screen) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		switch {
		case s.parser.state != ground:
			p = s.sequence(p)
		case s.flowing():
			p = s.flow(p)
		default:
			p = s.edit(p)
		}
	}
	return n, nil
}

// Text returns the visible text since the last Reset, without empty lines
// at its end, and how many earlier lines are no longer kept (0: it is all
// there). Lines that were written from their start to their end keep their tabs
// and the blanks at their end, so that text copied from a file's output matches
// the file. In lines that were edited, and on the alternate screen, tabs are
// blanks and blanks at the end are left out. So are those at the end of a line
// that has not ended, as prompts have them. Bytes that are not UTF-8 become
// U+FFFD, one for each. Text changes nothing.
func (s *Screen) Text() (text string, omitted int) {
	if s.alt != nil {
		return s.altText(), 0
	}
	raw, omitted := s.contents()
	raw = bytes.TrimRight(raw, "\r\n")
	if len(raw) == 0 {
		return "", omitted
	}
	start := lastBytes(raw, maxKept)
	if bytes.Count(raw, newline)+1 > trimAbove {
		start = max(start, lastLines(raw, trimTo-1))
	}
	omitted += bytes.Count(raw[:start], newline)
	out, lost := render(raw[start:])
	return string(out), omitted + lost
}

// Reset begins a new observation in the middle of the output: the shown text is
// forgotten. The alternate screen, modes, and a sequence or rune of which the
// rest is still to come stay.
func (s *Screen) Reset() {
	rest := s.bad
	if s.flowing() {
		rest = incomplete(s.hist)
	}
	rest = bytes.Clone(rest)
	s.bad = nil
	s.forget()
	s.dropped = 0
	if s.flowing() {
		s.appendFlow(rest)
	} else {
		s.bad = rest
	}
}

// Restart makes the screen as new, for a command that has nothing to do with
// the output before: a sequence left open or an alternate screen left on by a
// killed program ends here. Buffers of a sensible size are kept.
func (s *Screen) Restart() {
	hist := s.hist
	*s = *New(s.cols, s.rows)
	if cap(hist) <= keepBuffer {
		s.hist = hist[:0]
	}
}

// flowing reports whether output is plain text at the end of hist: no line is
// pulled and no full-screen program runs.
func (s *Screen) flowing() bool { return s.alt == nil && s.main.lines == nil }

// flow takes in text that only flows and returns the rest.
func (s *Screen) flow(p []byte) []byte {
	if !s.cr {
		n := plainLen(p)
		s.appendFlow(p[:n])
		p = p[n:]
		if len(p) == 0 {
			return nil
		}
	}
	switch c := p[0]; {
	case c == '\n':
		s.appendFlow(p[:1])
		s.cr = false
	case c == '\r' && s.cr:
	case c == '\r':
		s.appendFlow(p[:1])
		s.cr = true
	case c == 0x1b:
		s.breakRune()
		if n := colourLen(p); n > 0 {
			return p[n:]
		}
		s.parser.begin()
	case c < 0x20 && c != '\t' || c == 0x7f:
		s.breakRune()
		s.control(c)
	default: // after a carriage return
		s.pull(0)
		return p
	}
	return p[1:]
}

// edit takes in output while lines have columns and returns the rest.
func (s *Screen) edit(p []byte) []byte {
	n := printLen(p)
	if n > 0 {
		return p[s.put(p[:n]):]
	}
	s.endRune()
	if p[0] == 0x1b {
		s.parser.begin()
	} else {
		s.control(p[0])
	}
	return p[1:]
}

// control carries out a control character, except for those that flow.
func (s *Screen) control(c byte) {
	switch c {
	case '\b':
		s.pull(0)
		s.page().left(1)
	case '\t':
		s.writeTab()
	case '\r':
		s.page().toColumn(0)
	case '\n':
		s.newline()
	case '\v', '\f':
		s.pull(0)
		s.index()
	}
}

// page returns the lines that the cursor is on.
func (s *Screen) page() *page {
	if s.alt != nil {
		return s.alt
	}
	return &s.main
}

// breakRune keeps a rune that a control sequence cuts in two from growing
// together in hist: its first bytes are bad UTF-8.
func (s *Screen) breakRune() {
	rest := incomplete(s.hist)
	if len(rest) == 0 {
		return
	}
	s.hist = s.hist[:len(s.hist)-len(rest)]
	for range rest {
		s.appendFlow([]byte(string(utf8.RuneError)))
	}
}

// endRune does the same for a rune that was begun in a line with columns.
func (s *Screen) endRune() {
	bad := s.bad
	s.bad = nil
	for range bad {
		s.print([]byte(string(utf8.RuneError)))
	}
}
