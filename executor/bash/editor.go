package bash

import (
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Keys that are no characters. Negative, so that no text holds them.
const (
	keyUp = -1 - iota
	keyDown
	keyLeft
	keyRight
	keyHome
	keyEnd
	keyDelete
	keyOther // one that means nothing here
)

// nextKey returns the first key in b and how many bytes it has, 0 where b holds
// only the beginning of one.
func nextKey(b []byte) (key rune, size int) {
	if b[0] != 0x1b {
		if !utf8.FullRune(b) {
			return 0, 0
		}
		return utf8.DecodeRune(b)
	}
	if len(b) < 3 || b[1] != '[' && b[1] != 'O' {
		if len(b) < 2 || len(b) == 2 && (b[1] == '[' || b[1] == 'O') {
			return 0, 0
		}
		return keyOther, 2
	}
	end := 2
	for b[1] == '[' && b[end] < 0x40 {
		if end++; end == len(b) {
			if end > maxKey {
				return keyOther, end
			}
			return 0, 0
		}
	}
	switch string(b[2 : end+1]) {
	case "A":
		return keyUp, end + 1
	case "B":
		return keyDown, end + 1
	case "C":
		return keyRight, end + 1
	case "D":
		return keyLeft, end + 1
	case "H", "1~", "7~":
		return keyHome, end + 1
	case "F", "4~", "8~":
		return keyEnd, end + 1
	case "3~":
		return keyDelete, end + 1
	}
	return keyOther, end + 1
}

// maxKey is longer than any key's bytes.
const maxKey = 32

// editor is what a person types at a prompt of ours. The zero editor has an empty line.
type editor struct {
	text    []rune
	pos     int
	history []string
	recall  int // how far up in history, 0 for the line itself
	draft   []rune
}

const (
	maxTyped   = 64 << 10 // runes: as long as anybody pastes
	maxHistory = 200
)

// press does what a key means within a line and tells whether it means
// anything.
func (l *editor) press(key rune) bool {
	switch key {
	case keyLeft, 'B' - '@':
		l.pos = max(l.pos-1, 0)
	case keyRight, 'F' - '@':
		l.pos = min(l.pos+1, len(l.text))
	case keyHome, 'A' - '@':
		l.pos = 0
	case keyEnd, 'E' - '@':
		l.pos = len(l.text)
	case 0x7f, '\b':
		l.cut(max(l.pos-1, 0), l.pos)
	case keyDelete, 'D' - '@':
		l.cut(l.pos, min(l.pos+1, len(l.text)))
	case 'U' - '@':
		l.cut(0, l.pos)
	case 'K' - '@':
		l.cut(l.pos, len(l.text))
	case 'W' - '@':
		l.cut(l.wordStart(), l.pos)
	case keyUp, 'P' - '@':
		return l.recallLine(l.recall + 1)
	case keyDown, 'N' - '@':
		return l.recallLine(l.recall - 1)
	default:
		if key < ' ' || len(l.text) >= maxTyped {
			return false
		}
		l.text = slices.Insert(l.text, l.pos, key)
		l.pos++
	}
	return true
}

func (l *editor) cut(from, to int) {
	l.text = slices.Delete(l.text, from, to)
	l.pos = from
}

// wordStart is where the word before the cursor begins.
func (l *editor) wordStart() int {
	at := l.pos
	for at > 0 && l.text[at-1] == ' ' {
		at--
	}
	for at > 0 && l.text[at-1] != ' ' {
		at--
	}
	return at
}

// recallLine shows the line that was typed n lines ago, 0 for the one that is
// being typed.
func (l *editor) recallLine(n int) bool {
	if n < 0 || n > len(l.history) {
		return false
	}
	if l.recall == 0 {
		l.draft = l.text
	}
	l.recall, l.text = n, l.draft
	if n > 0 {
		l.text = []rune(l.history[len(l.history)-n])
	}
	l.pos = len(l.text)
	return true
}

// take remembers the line and begins anew.
func (l *editor) take() {
	text := string(l.text)
	if strings.TrimSpace(text) != "" && (len(l.history) == 0 || l.history[len(l.history)-1] != text) {
		l.history = append(l.history, text)
		l.history = l.history[max(0, len(l.history)-maxHistory):]
	}
	l.text, l.pos, l.recall, l.draft = nil, 0, 0, nil
}

// unfinished tells whether a shell would ask for another line of text: it ends
// within a quote, a here-document or a compound command.
func unfinished(text string) bool {
	if strings.HasSuffix(text, "\\\n") {
		return true
	}
	if len(text) > maxSplit {
		return false
	}
	_, err := parse(text)
	return syntax.IsIncomplete(err)
}
