package notebook

import "bytes"

// A string of a message is kept whole up to headLimit, the limit of an
// image. Of a longer one the head and at least the last tailLimit bytes stay.
const (
	headLimit = 4 << 20
	tailLimit = half
	// maxContent bounds the length of a clipped message.
	maxContent = 16 << 20
)

// shortened stands where text was left out; the same words as for a command.
const shortened = "\n[... Observation truncated due to length ...]\n"

// clipper shortens the strings of a JSON text while it is written to it, so
// that a message of any length takes little memory. The text stays valid JSON
// if it was. The zero value is ready.
type clipper struct {
	out      []byte
	tooLong  bool // more than maxContent is left; out holds no more than that
	inString bool
	escape   int  // bytes that the open escape still lacks; -1: its kind is not known
	head     int  // bytes of this string in out
	beyond   bool // the head is full
	// The rest of the string beyond the head, in two parts that both begin at the start of a
	// character or an escape; the older one is dropped when the newer is full.
	older, newer []byte
	dropped      bool
}

// Write takes the next part of the text. It never fails.
func (c *clipper) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if c.inString {
			p = c.text(p)
			continue
		}
		i := bytes.IndexByte(p, '"') + 1
		if i == 0 {
			i = len(p)
		} else {
			c.inString, c.head, c.beyond, c.dropped = true, 0, false, false
		}
		c.emit(p[:i])
		p = p[i:]
	}
	return n, nil
}

// text takes plain characters or a part of an escape from the start of p, inside a string, and
// returns the rest.
func (c *clipper) text(p []byte) []byte {
	switch {
	case c.escape < 0: // the letter after the backslash
		c.escape = 0
		if p[0] == 'u' {
			c.escape = 4
		}
		c.keep(p[:1])
		return p[1:]
	case c.escape > 0:
		n := min(c.escape, len(p))
		c.escape -= n
		c.keep(p[:n])
		return p[n:]
	case p[0] == '"':
		c.end()
		return p[1:]
	case p[0] == '\\':
		c.divide()
		c.escape = -1
		c.keep(p[:1])
		return p[1:]
	}
	n := bytes.IndexAny(p, `"\`)
	if n < 0 {
		n = len(p)
	}
	c.divide()
	c.keep(p[:n])
	return p[n:]
}

// divide is called where a character or an escape begins, which is the only
// place where a string may be cut.
func (c *clipper) divide() {
	switch {
	case !c.beyond:
		c.beyond = c.head >= headLimit
	case len(c.newer) >= tailLimit:
		c.dropped = c.dropped || len(c.older) > 0
		c.older, c.newer = c.newer, c.older[:0]
	}
}

// keep adds bytes to the head, or to the tail.
func (c *clipper) keep(p []byte) {
	if c.beyond {
		c.newer = append(c.newer, p...)
		return
	}
	c.head += len(p)
	c.emit(p)
}

// end closes the string.
func (c *clipper) end() {
	if c.dropped {
		c.emit([]byte(`\n[... Observation truncated due to length ...]\n`))
	}
	c.emit(c.older)
	c.emit(c.newer)
	c.emit([]byte{'"'})
	c.older, c.newer, c.inString = c.older[:0], c.newer[:0], false
}

func (c *clipper) emit(p []byte) {
	if c.tooLong = c.tooLong || len(c.out)+len(p) > maxContent; !c.tooLong {
		c.out = append(c.out, p...)
	}
}
