package api

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds nesting. Nothing on the wire comes near it.
const maxDepth = 1000

// halfPair is a text that held half of a surrogate pair, which JSON can write
// and UTF-8 cannot; U+FFFD stands in its place.
type halfPair string

// parser reads one JSON text strictly (RFC 8259): UTF-8 only, one value, no
// NaN. It exists because encoding/json needs 5 to 8 ms for a megabyte of text
// where this needs about one, matches names whatever their case, and cannot
// tell a replaced character from a sent one. Of equal names the last one wins,
// as in Python. Values are nil, bool, json.Number, string, halfPair, []any and
// map[string]any.
type parser struct {
	data  []byte
	pos   int
	depth int
	// budget is how many values may be built: a body of brackets and commas
	// would otherwise take thirty times its size.
	budget int
	// halves makes a text with half of a surrogate pair a halfPair instead of
	// a string.
	halves bool
}

func newParser(data []byte) (*parser, error) {
	if utf8.Valid(data) {
		return &parser{data: data, budget: math.MaxInt}, nil
	}
	i := 0
	for i < len(data) {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		i += size
	}
	return nil, fmt.Errorf("not valid UTF-8 at byte %d", i)
}

// fail describes what stands where something else is wanted.
func (p *parser) fail(want string) error {
	if p.pos >= len(p.data) {
		return fmt.Errorf("not valid JSON: ends where %s should stand, after %d bytes", want, p.pos)
	}
	r, _ := utf8.DecodeRune(p.data[p.pos:])
	return fmt.Errorf("not valid JSON: %q at byte %d, where %s should stand", r, p.pos, want)
}

// noObject describes what stands where an object is wanted: another value, or
// something that is no JSON.
func (p *parser) noObject(want string) error {
	start := p.pos
	p.budget = min(p.budget, maxArgs)
	v, err := p.value()
	if err == nil {
		err = p.end()
	}
	if err == nil {
		return fmt.Errorf("must be %s, got %s", want, describe(v))
	}
	p.pos = start
	return p.fail(want)
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *parser) peek() byte {
	for ; p.pos < len(p.data); p.pos++ {
		switch c := p.data[p.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// end refuses what follows the value.
func (p *parser) end() error {
	if p.peek(); p.pos < len(p.data) {
		return p.fail("the end")
	}
	return nil
}

// enter opens an object or array.
func (p *parser) enter() error {
	p.pos++
	p.depth++
	if p.depth > maxDepth {
		return fmt.Errorf("nested deeper than %d levels at byte %d", maxDepth, p.pos)
	}
	return nil
}

// leave reports whether the closing bracket came.
func (p *parser) leave(bracket byte) bool {
	if p.peek() != bracket {
		return false
	}
	p.pos++
	p.depth--
	return true
}

// object reads an object and calls member for each name; member must read the
// value.
func (p *parser) object(member func(name string) error) error {
	if err := p.enter(); err != nil {
		return err
	}
	if p.leave('}') {
		return nil
	}
	for {
		if p.peek() != '"' {
			return p.fail("a name in quotes")
		}
		name, _, err := p.text()
		if err != nil {
			return err
		}
		if p.peek() != ':' {
			return p.fail("a colon")
		}
		p.pos++
		if err := member(name); err != nil {
			return err
		}
		if p.leave('}') {
			return nil
		}
		if p.peek() != ',' {
			return p.fail("a comma or }")
		}
		p.pos++
	}
}

// array reads an array; element must read each value.
func (p *parser) array(element func() error) error {
	if err := p.enter(); err != nil {
		return err
	}
	if p.leave(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if p.leave(']') {
			return nil
		}
		if p.peek() != ',' {
			return p.fail("a comma or ]")
		}
		p.pos++
	}
}

// value reads the next value, whatever it is.
func (p *parser) value() (any, error) {
	if p.budget--; p.budget < 0 {
		return nil, fmt.Errorf("too many values at byte %d", p.pos)
	}
	switch p.peek() {
	case '{':
		members := map[string]any{}
		err := p.object(func(name string) (err error) {
			members[name], err = p.value()
			return err
		})
		return members, err
	case '[':
		elements := []any{}
		err := p.array(func() error {
			v, err := p.value()
			elements = append(elements, v)
			return err
		})
		return elements, err
	case '"':
		s, half, err := p.text()
		if half && p.halves {
			return halfPair(s), err
		}
		return s, err
	}
	return p.scalar()
}

// scalar reads a value that is no container and no string.
func (p *parser) scalar() (any, error) {
	switch p.peek() {
	case 't':
		return true, p.word("true")
	case 'f':
		return false, p.word("false")
	case 'n':
		return nil, p.word("null")
	}
	n, err := p.number()
	return json.Number(n), err
}

// skip reads the next value and keeps nothing of it.
func (p *parser) skip() error {
	var err error
	switch p.peek() {
	case '{':
		err = p.object(func(string) error { return p.skip() })
	case '[':
		err = p.array(p.skip)
	case '"':
		_, _, err = p.quoted()
	default:
		_, err = p.scalar()
	}
	return err
}

func (p *parser) word(w string) error {
	for i := range len(w) {
		if p.pos >= len(p.data) || p.data[p.pos] != w[i] {
			return p.fail(w)
		}
		p.pos++
	}
	return nil
}

// number reads a number and returns it as it was written.
func (p *parser) number() ([]byte, error) {
	start := p.pos
	p.oneOf("-")
	switch {
	case p.oneOf("0"):
	case p.digits():
	case p.pos > start:
		return nil, p.fail("a digit")
	default:
		return nil, p.fail("a value")
	}
	if p.oneOf(".") && !p.digits() {
		return nil, p.fail("a digit")
	}
	if p.oneOf("eE") {
		p.oneOf("+-")
		if !p.digits() {
			return nil, p.fail("a digit")
		}
	}
	return p.data[start:p.pos], nil
}

// oneOf passes one byte if it is in set.
func (p *parser) oneOf(set string) bool {
	if p.pos >= len(p.data) {
		return false
	}
	for i := range len(set) {
		if p.data[p.pos] == set[i] {
			p.pos++
			return true
		}
	}
	return false
}

// digits passes digits and reports whether there were any.
func (p *parser) digits() bool {
	start := p.pos
	for p.oneOf("0123456789") {
	}
	return p.pos > start
}

// text reads a string. half reports that it held half of a surrogate pair.
func (p *parser) text() (s string, half bool, err error) {
	raw, escaped, err := p.quoted()
	if err != nil || !escaped {
		return string(raw), false, err
	}
	s, half = unescape(raw)
	return s, half, nil
}

// quoted reads a string with its escapes checked but not replaced.
func (p *parser) quoted() (raw []byte, escaped bool, err error) {
	p.pos++
	start := p.pos
	for {
		p.pos += plainLen(p.data[p.pos:])
		if p.pos == len(p.data) {
			return nil, false, p.fail("a closing quote")
		}
		switch p.data[p.pos] {
		case '"':
			p.pos++
			return p.data[start : p.pos-1], escaped, nil
		case '\\':
			escaped = true
			if err := p.escape(); err != nil {
				return nil, false, err
			}
		default:
			return nil, false, p.fail("an escape instead of a control character")
		}
	}
}

// plainLen is how many bytes of data stand for themselves in a string: up to
// the first quote, backslash or control character. It looks at eight at once:
// subtracting from each its bound borrows into the high bit of those below, and
// the first that is found truly is one, as borrows go upwards.
func plainLen(data []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(data); i += 8 {
		x := binary.LittleEndian.Uint64(data[i:])
		quotes, backslashes := x^ones*'"', x^ones*'\\'
		special := ((x-ones*' ')&^x | (quotes-ones)&^quotes | (backslashes-ones)&^backslashes) & highs
		if special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	for i < len(data) && data[i] >= ' ' && data[i] != '"' && data[i] != '\\' {
		i++
	}
	return i
}

// escape passes a backslash and what belongs to it.
func (p *parser) escape() error {
	p.pos++
	if p.oneOf(`"\/bfnrt`) {
		return nil
	}
	if !p.oneOf("u") {
		return p.fail("an escape that JSON knows")
	}
	for range 4 {
		if !p.oneOf("0123456789abcdefABCDEF") {
			return p.fail("a hexadecimal digit")
		}
	}
	return nil
}

// unescape replaces the checked escapes of raw. Half of a surrogate pair
// becomes U+FFFD and is reported.
func unescape(raw []byte) (s string, half bool) {
	var text strings.Builder
	text.Grow(len(raw))
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			text.Write(raw)
			break
		}
		text.Write(raw[:i])
		raw = raw[i:]
		c := raw[1]
		if c != 'u' {
			text.WriteByte(unescaped[c])
			raw = raw[2:]
			continue
		}
		r := codeUnit(raw)
		raw = raw[6:]
		if utf16.IsSurrogate(r) {
			full := utf16.DecodeRune(r, codeUnit(raw))
			if full == utf8.RuneError {
				half = true
			} else {
				raw = raw[6:]
			}
			r = full
		}
		text.WriteRune(r)
	}
	return text.String(), half
}

var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// codeUnit reads a \uXXXX at the start of raw, -1 where there is none.
func codeUnit(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
