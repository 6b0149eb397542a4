package bash

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"github.com/actiond/actiond/executor/bash/screen"
)

// Keys that are not characters. They are negative, so that no text holds them.
const (
	keyUp = -1 - iota
	keyDown
	keyLeft
	keyRight
	keyHome
	keyEnd
	keyDelete
	keyWordLeft
	keyWordRight
	keyCutWord      // forwards
	keyCutWordStart // backwards, as far as Alt-b goes
	keyOther        // without a meaning here
)

// altKeys are the keys after an escape, and sequences those after an escape and "[" or "O".
var (
	altKeys = map[byte]rune{
		'b': keyWordLeft, 'B': keyWordLeft, 'f': keyWordRight, 'F': keyWordRight,
		'd': keyCutWord, 'D': keyCutWord, 0x7f: keyCutWordStart, '\b': keyCutWordStart,
	}
	sequences = map[string]rune{
		"A": keyUp, "B": keyDown, "C": keyRight, "D": keyLeft, "H": keyHome, "1~": keyHome, "7~": keyHome,
		"F": keyEnd, "4~": keyEnd, "8~": keyEnd, "3~": keyDelete,
		"1;3C": keyWordRight, "1;5C": keyWordRight, "1;3D": keyWordLeft, "1;5D": keyWordLeft,
	}
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
		return cmp.Or(altKeys[b[1]], keyOther), 2
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
	return cmp.Or(sequences[string(b[2:end+1])], keyOther), end + 1
}

// maxKey is longer than any key's bytes.
const maxKey = 32

// editor holds the line that a person types at a prompt. The zero editor has an
// empty line.
type editor struct {
	text    []rune
	pos     int
	history []string
	recall  int // how far up in history, 0 for the line itself
	draft   []rune
	over    bool // characters were refused because the line was full

	searching bool // the history, for what is typed
	search    []rune
	missed    bool // nothing in the history has search
}

const (
	maxTyped   = 64 << 10 // runes: longer than any pasted line
	maxHistory = 200
	maxSearch  = 256 // runes
)

// press obeys a key within a line and returns whether the key means anything.
func (l *editor) press(key rune) bool {
	if l.searching {
		if done, known := l.pressSearch(key); done {
			return known
		}
	}
	switch key {
	case keyLeft, 'B' - '@':
		l.pos = max(l.pos-1, 0)
	case keyRight, 'F' - '@':
		l.pos = min(l.pos+1, len(l.text))
	case keyHome, 'A' - '@':
		l.pos = 0
	case keyEnd, 'E' - '@':
		l.pos = len(l.text)
	case keyWordLeft:
		l.pos = l.startOf(isWord)
	case keyWordRight:
		l.pos = l.wordRight()
	case 0x7f, '\b':
		l.cut(max(l.pos-1, 0), l.pos)
	case keyDelete, 'D' - '@':
		l.cut(l.pos, min(l.pos+1, len(l.text)))
	case keyCutWord:
		l.cut(l.pos, l.wordRight())
	case keyCutWordStart:
		l.cut(l.startOf(isWord), l.pos)
	case 'U' - '@':
		l.cut(0, l.pos)
	case 'K' - '@':
		l.cut(l.pos, len(l.text))
	case 'W' - '@':
		l.cut(l.startOf(func(r rune) bool { return r != ' ' }), l.pos)
	case keyUp, 'P' - '@':
		return l.recallLine(l.recall + 1)
	case keyDown, 'N' - '@':
		return l.recallLine(l.recall - 1)
	case 'R' - '@':
		if l.recall == 0 {
			l.draft = l.text
		}
		l.searching, l.search, l.missed = true, nil, false
	default:
		if key < ' ' {
			return false
		}
		return l.insert([]rune{key})
	}
	return true
}

// insert puts text before the cursor, unless the line gets too long.
func (l *editor) insert(text []rune) bool {
	if len(l.text)+len(text) > maxTyped {
		l.over = true
		return false
	}
	l.text = slices.Insert(l.text, l.pos, text...)
	l.pos += len(text)
	return true
}

// pressSearch obeys a key while the history is searched. A key that is not for
// the search ends it, and acts on the line that was found: done is false then.
func (l *editor) pressSearch(key rune) (done, known bool) {
	switch {
	case key == 'R'-'@':
		if len(l.search) == 0 {
			return true, false
		}
		return true, l.find(l.recall + 1)
	case key == 'G'-'@' || key == keyOther:
		l.searching = false
		return true, l.recallLine(0)
	case key == 0x7f || key == '\b':
		l.search = l.search[:max(len(l.search)-1, 0)]
		return true, l.find(1)
	case key >= ' ':
		if len(l.search) >= maxSearch {
			return true, false
		}
		l.search = append(l.search, key)
		return true, !l.missed && l.find(max(l.recall, 1))
	}
	l.searching = false
	return false, false
}

// find goes to the first line that has the searched text, n lines ago or more.
func (l *editor) find(n int) bool {
	for ; n <= len(l.history); n++ {
		line := l.history[len(l.history)-n]
		if at := strings.Index(line, string(l.search)); at >= 0 {
			l.recallLine(n)
			l.pos = utf8.RuneCountInString(line[:at])
			l.missed = false
			return true
		}
	}
	l.missed = len(l.search) > 0
	return !l.missed
}

// isWord reports whether Alt-b and Alt-f stop beside a character and not at it.
func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// startOf returns where the word before the cursor starts, of characters that in reports.
func (l *editor) startOf(in func(rune) bool) int {
	at := l.pos
	for at > 0 && !in(l.text[at-1]) {
		at--
	}
	for at > 0 && in(l.text[at-1]) {
		at--
	}
	return at
}

// wordRight returns where the word behind the cursor ends.
func (l *editor) wordRight() int {
	at := l.pos
	for at < len(l.text) && !isWord(l.text[at]) {
		at++
	}
	for at < len(l.text) && isWord(l.text[at]) {
		at++
	}
	return at
}

func (l *editor) cut(from, to int) {
	l.text = slices.Delete(l.text, from, to)
	l.pos = from
}

// recallLine goes to the line that was typed n lines ago, 0 for the one that is
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

// take puts the line into the history and begins an empty one.
func (l *editor) take() {
	text := string(l.text)
	if strings.TrimSpace(text) != "" && (len(l.history) == 0 || l.history[len(l.history)-1] != text) {
		l.history = append(l.history, text)
		l.history = l.history[max(0, len(l.history)-maxHistory):]
	}
	*l = editor{history: l.history}
}

// unfinished reports whether a shell would ask for another line: text ends within a
// quote, a here-document or a compound command.
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

// layout is how a terminal shows a text: the rows that it is broken into, and
// where its end and the cursor are.
type layout struct {
	starts         []int // index of the first character of each row
	row, col       int   // of the cursor
	endRow, endCol int
}

// layOut breaks text into rows of so many columns, as terminals do; with 0 there
// is one row. A wide character that does not fit begins the next row. pos is the
// index of the character at the cursor.
func layOut(text []rune, pos, cols int) layout {
	l := layout{starts: []int{0}}
	row, col := 0, 0
	for i := 0; ; i++ {
		width := 0
		if i < len(text) {
			width = max(screen.RuneWidth(text[i]), 0)
		}
		// A full row is left when the next character comes, and at the end.
		if cols > 0 && (col+width > cols || i == len(text) && col == cols) && col > 0 {
			row, col = row+1, 0
			l.starts = append(l.starts, i)
		}
		if i == pos {
			l.row, l.col = row, col
			// Not behind the last column, where the next character starts.
			if cols > 0 && i < len(text) && width == 0 && col == cols {
				l.col = cols - 1
			}
		}
		if i == len(text) {
			l.endRow, l.endCol = row, col
			return l
		}
		col += width
	}
}
