package screen

// parser is where the screen is in an escape sequence.
type parser struct {
	state   parseState
	length  int  // bytes of the sequence so far
	private byte // '<' to '?' at the start of a CSI sequence
	middle  byte // an intermediate byte, ' ' to '/'
	params  [16]int
	count   int  // parameters begun
	home    bool // the last sequence with an effect put the cursor at the top left
}

type parseState uint8

const (
	ground        parseState = iota
	escape                   // after ESC
	designate                // after ESC and an intermediate byte: one more follows
	csi                      // after ESC [
	controlString            // in an OSC, DCS, APC, PM or SOS string
)

// maxParam is where parameters end to grow: no screen is as large.
const maxParam = 1 << 15

// begin starts a sequence after its ESC.
func (ps *parser) begin() {
	*ps = parser{state: escape, home: ps.home}
}

// param returns the i-th parameter, or standard where it is absent or zero.
func (ps *parser) param(i, standard int) int {
	if i < ps.count && ps.params[i] > 0 {
		return ps.params[i]
	}
	return standard
}

// sequence takes in the bytes of an escape sequence and returns the rest.
func (s *Screen) sequence(p []byte) []byte {
	switch s.parser.state {
	case escape:
		return s.escape(p)
	case designate: // ESC ( B and the like choose character sets
		if p[0] >= 0x20 && p[0] < 0x30 && s.parser.length == 0 {
			s.parser.length++
			return p[1:]
		}
		s.parser.state = ground
		if p[0] < 0x20 || p[0] >= 0x7f {
			return p
		}
		return p[1:]
	case csi:
		return s.csi(p)
	default:
		return s.controlString(p)
	}
}

// escape takes in the bytes behind an ESC. Bytes that no sequence has there end it
// and are taken as they are.
func (s *Screen) escape(p []byte) []byte {
	c := p[0]
	s.parser.state = ground
	switch {
	case c == '[':
		s.parser.state = csi
	case c == ']' || c == 'P' || c == '_' || c == '^' || c == 'X' || c == 'k': // k: the title in screen and tmux
		s.parser.state = controlString
	case c >= 0x20 && c < 0x30:
		s.parser.state = designate
	case c == 0x1b:
		s.parser.begin()
	case c < 0x20 || c >= 0x7f:
		return p
	default:
		s.escapeFinal(c)
	}
	return p[1:]
}

// csi takes in the bytes of a CSI sequence. A line end, a byte from 0x80 or too
// much length break it off, so that a sequence cut short hides no output.
func (s *Screen) csi(p []byte) []byte {
	ps := &s.parser
	for i, c := range p {
		ps.length++
		switch {
		case c >= '0' && c <= '9':
			ps.digit(int(c - '0'))
		case c == ';' || c == ':':
			ps.count = max(ps.count, 1) + 1
		case c >= '<' && c <= '?':
			ps.private = c
		case c >= 0x20 && c < 0x30:
			ps.middle = c
		case c >= 0x40 && c < 0x7f:
			ps.state = ground
			s.csiFinal(c)
			return p[i+1:]
		case c == 0x1b:
			ps.begin()
			return p[i+1:]
		case c == 0x18 || c == 0x1a: // CAN and SUB
			ps.state = ground
			return p[i+1:]
		case c == '\n' || c == '\r' || c >= 0x80:
			ps.state = ground
			return p[i:]
		}
		if ps.length >= maxSequence {
			ps.state = ground
			return p[i+1:]
		}
	}
	return nil
}

// digit adds a digit to the last parameter.
func (ps *parser) digit(d int) {
	ps.count = max(ps.count, 1)
	if i := ps.count - 1; i < len(ps.params) {
		ps.params[i] = min(ps.params[i]*10+d, maxParam)
	}
}

// controlString swallows the string of an OSC and its kind up to BEL or ST
// (ESC \). A line end or too much length break it off.
func (s *Screen) controlString(p []byte) []byte {
	n := printLen(p[:min(len(p), maxString-s.parser.length)])
	s.parser.length += n
	p = p[n:]
	if s.parser.length >= maxString {
		s.parser.state = ground
		return p
	}
	if len(p) == 0 {
		return nil
	}
	switch p[0] {
	case 0x07, 0x18, 0x1a: // BEL, CAN, SUB
		s.parser.state = ground
	case 0x1b: // of ST, or of another sequence
		s.parser.begin()
	case '\n', '\r':
		s.parser.state = ground
		return p
	default:
		s.parser.length++
	}
	return p[1:]
}

// escapeFinal carries out ESC c.
func (s *Screen) escapeFinal(c byte) {
	switch c {
	case '7':
		s.save()
	case '8':
		s.restore()
	case 'D':
		s.pull(0)
		s.index()
	case 'E':
		s.newline()
	case 'M':
		s.reverseIndex()
	case 'c':
		s.reset()
	}
}

// csiFinal carries out a CSI sequence that ends in c. Colours and whatever has
// nothing to do with text do nothing.
func (s *Screen) csiFinal(c byte) {
	ps := &s.parser
	if ps.middle != 0 {
		if ps.middle == '!' && c == 'p' {
			s.softReset()
		}
		return
	}
	if ps.private != 0 {
		if ps.private == '?' && (c == 'h' || c == 'l') {
			s.privateModes(c == 'h')
		}
		if ps.private != '?' || c != 'J' && c != 'K' {
			return
		}
	}
	home := ps.home
	n := ps.param(0, 1)
	switch c {
	case 'A', 'F', 'B', 'E', 'e', 'C', 'a', 'D', 'G', '`', 'd', 'H', 'f', 'I', 'Z':
		s.move(c, n)
		home = c == 'H' || c == 'f'
	case 'J':
		s.eraseDisplay(ps.param(0, 0))
		home = false
	case 'K':
		s.eraseLine(ps.param(0, 0))
	case 'L', 'M', 'S', 'T':
		s.shiftLines(c, n)
	case '@', 'P', 'X':
		s.shiftColumns(c, n)
	case 'b':
		s.repeat(n)
	case 'r':
		s.setRegion(n, ps.param(1, s.rows))
	case 's':
		if ps.count == 0 {
			s.save()
		}
	case 'u':
		s.restore()
	case 'h', 'l':
		if ps.param(0, 0) == 4 {
			s.insert = c == 'h'
		}
	}
	ps.home = home
}

// privateModes switches the DEC private modes that matter here.
func (s *Screen) privateModes(on bool) {
	for i := range min(s.parser.count, len(s.parser.params)) {
		switch s.parser.params[i] {
		case 1:
			s.appKeys = on
		case 7:
			s.nowrap = !on
		case 47, 1047, 1049:
			s.setAlt(on)
		case 1048:
			if on {
				s.save()
			} else {
				s.restore()
			}
		}
	}
}

// softReset undoes modes, as CSI ! p does.
func (s *Screen) softReset() {
	s.insert, s.nowrap, s.appKeys = false, false, false
	s.page().top, s.page().bottom = 0, 0
}

// reset makes the terminal as new, as ESC c does: visible lines and those
// that scrolled off are gone, and counted.
func (s *Screen) reset() {
	s.alt = nil
	s.softReset()
	s.clear()
	s.dropScrolledOff()
}
