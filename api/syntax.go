package api

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Syntax errors in words that a model can use: the wrong character, its offset, and the
// expected one. The library's errors name neither the end of a truncated text nor the
// form of a name.

const blanks = " \t\r\n"

// fault returns the syntax error after the last token that the decoder read.
func (s *scanner) fault() error {
	pos := s.skipBlanks(int(s.dec.InputOffset()))
	next := func(c byte) bool {
		if pos == len(s.data) || s.data[pos] != c {
			return false
		}
		pos = s.skipBlanks(pos + 1)
		return true
	}
	want := "a value"
	switch kind, n := s.dec.StackIndex(s.dec.StackDepth()); {
	case kind == '{' && n%2 == 1 && !next(':'):
		return s.unexpected(pos, "a colon")
	case kind == '{' && n%2 == 0:
		if n > 0 && !next(',') {
			return s.unexpected(pos, "a comma or }")
		}
		want = "a name in quotes"
		if pos < len(s.data) && s.data[pos] != '"' {
			return s.unexpected(pos, want)
		}
	case kind == '[' && n > 0 && !next(','):
		return s.unexpected(pos, "a comma or ]")
	}
	at, instead := badToken(s.data[pos:])
	if instead != "" {
		want = instead
	}
	return s.unexpected(pos+at, want)
}

// unexpected returns an error that names the character at a byte, and the expected one.
func (s *scanner) unexpected(pos int, want string) error {
	if pos >= len(s.data) {
		return fmt.Errorf("not valid JSON: ends where %s should stand, after %d bytes", want, len(s.data))
	}
	r, _ := utf8.DecodeRune(s.data[pos:])
	return fmt.Errorf("not valid JSON: %q at byte %d, where %s should stand", r, pos, want)
}

func (s *scanner) skipBlanks(pos int) int {
	for pos < len(s.data) && strings.IndexByte(blanks, s.data[pos]) >= 0 {
		pos++
	}
	return pos
}

// badToken finds the byte at which a token is wrong, and the expected one; "" if no token
// begins there.
func badToken(data []byte) (at int, want string) {
	text := string(data)
	if text == "" {
		return 0, ""
	}
	switch text[0] {
	case '"':
		return badString(text)
	case 't':
		return badWord(text, "true")
	case 'f':
		return badWord(text, "false")
	case 'n':
		return badWord(text, "null")
	}
	if text[0] == '-' || text[0] >= '0' && text[0] <= '9' {
		return badNumber(text), "a digit"
	}
	return 0, ""
}

// badNumber returns the offset at which a digit is missing.
func badNumber(text string) (at int) {
	digits := func() bool {
		start := at
		for at < len(text) && text[at] >= '0' && text[at] <= '9' {
			at++
		}
		return at > start
	}
	if text[0] == '-' {
		at++
	}
	if !digits() {
		return at
	}
	if strings.HasPrefix(text[at:], ".") {
		if at++; !digits() {
			return at
		}
	}
	at++ // the e
	if at < len(text) && (text[at] == '+' || text[at] == '-') {
		at++
	}
	return at
}

func badWord(text, word string) (at int, want string) {
	for at < len(word) && at < len(text) && text[at] == word[at] {
		at++
	}
	return at, word
}

func badString(text string) (at int, want string) {
	for at = 1; at < len(text); at++ {
		switch c := text[at]; {
		case c < ' ':
			return at, "an escape instead of a control character"
		case c != '\\':
			continue
		}
		at++
		if at == len(text) || strings.IndexByte(`"\/bfnrtu`, text[at]) < 0 {
			return at, "an escape that JSON knows"
		}
		if text[at] != 'u' {
			continue
		}
		for range 4 {
			if at++; at == len(text) || strings.IndexByte("0123456789abcdefABCDEF", text[at]) < 0 {
				return at, "a hexadecimal digit"
			}
		}
	}
	return at, "a closing quote"
}
