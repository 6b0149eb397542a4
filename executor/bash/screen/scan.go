package screen

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The scanners below look at eight bytes at a time: each byte of a word answers
// a question with its highest bit.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
	lows  = 0x7f * ones
)

var newline = []byte{'\n'}

// controls marks the bytes of w below 0x20 and DEL.
func controls(w uint64) uint64 {
	low := w & lows
	return (^(low + 0x60*ones) | (low + ones)) & ^w & highs
}

// equal marks the bytes of w that are c.
func equal(w uint64, c byte) uint64 {
	d := w ^ uint64(c)*ones
	return ^(d&lows + lows | d) & highs
}

// first returns the number of the first byte marked.
func first(marks uint64) int { return bits.TrailingZeros64(marks) / 8 }

// plainLen returns the length of the text at the start of p that only flows:
// printable bytes, bytes from 0x80, tabs, newlines, and carriage returns
// followed by a newline.
func plainLen(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		w := binary.LittleEndian.Uint64(p[i:])
		stop := controls(w)
		if stop == 0 {
			continue
		}
		lf := equal(w, '\n')
		behind := lf >> 8 // marks the byte before a newline
		if i+8 < len(p) && p[i+8] == '\n' {
			behind |= 0x80 << 56
		}
		stop &^= lf | behind&equal(w, '\r')
		if stop == 0 {
			continue
		}
		if stop &^= equal(w, '\t'); stop != 0 {
			return i + first(stop)
		}
	}
	for ; i < len(p); i++ {
		switch c := p[i]; {
		case c >= 0x20 && c != 0x7f, c == '\n', c == '\t':
		case c == '\r' && i+1 < len(p) && p[i+1] == '\n':
		default:
			return i
		}
	}
	return i
}

// printLen returns how many bytes at the start of p are printable or from 0x80.
func printLen(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		if c := controls(binary.LittleEndian.Uint64(p[i:])); c != 0 {
			return i + first(c)
		}
	}
	for i < len(p) && p[i] >= 0x20 && p[i] != 0x7f {
		i++
	}
	return i
}

// asciiLen returns how many bytes at the start of p, which holds no control
// characters but tabs, are ASCII.
func asciiLen(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		if c := binary.LittleEndian.Uint64(p[i:]) & highs; c != 0 {
			return i + first(c)
		}
	}
	for i < len(p) && p[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// plainASCII reports whether p, which holds no control characters but tabs, is
// ASCII without any.
func plainASCII(p []byte) bool {
	return asciiLen(p) == len(p) && bytes.IndexByte(p, '\t') < 0
}

// colourLen returns the length of a whole "select graphic rendition" sequence
// at the start of p, which begins with ESC, or 0. Colours are most of the
// sequences there are and change nothing here.
func colourLen(p []byte) int {
	if len(p) < 3 || p[1] != '[' {
		return 0
	}
	for i, c := range p[2:min(len(p), maxSequence/4)] {
		switch {
		case c >= '0' && c <= ';':
		case c == 'm':
			return i + 3
		default:
			return 0
		}
	}
	return 0
}

// incomplete returns the beginning of a rune at the end of p of which the rest
// may still come.
func incomplete(p []byte) []byte {
	for i := len(p) - 1; i >= 0 && i >= len(p)-utf8.UTFMax+1; i-- {
		switch c := p[i]; {
		case c < utf8.RuneSelf:
			return nil
		case utf8.RuneStart(c):
			if utf8.FullRune(p[i:]) {
				return nil
			}
			return p[i:]
		}
	}
	return nil
}

// lastLines returns the offset in p at which its last n newline-ended lines,
// and the text behind the last newline, begin.
func lastLines(p []byte, n int) int {
	const block = 4096 // counting blocks is ten times as fast as going back newline by newline
	end := len(p)
	for end > 0 {
		start := max(0, end-block)
		count := bytes.Count(p[start:end], newline)
		if count <= n {
			n -= count
			end = start
			continue
		}
		for ; n >= 0; n-- {
			end = bytes.LastIndexByte(p[:end], '\n')
		}
		return end + 1
	}
	return 0
}

// lastBytes returns the offset in p of the first line that lies within its last
// n bytes, or of the last line.
func lastBytes(p []byte, n int) int {
	if len(p) <= n {
		return 0
	}
	from := len(p) - n
	if i := bytes.IndexByte(p[from-1:], '\n'); i >= 0 {
		return from + i
	}
	return bytes.LastIndexByte(p, '\n') + 1
}
