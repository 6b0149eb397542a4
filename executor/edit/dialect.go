package edit

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Dialect is whose rules and words a command follows. All dialects work on the same engine, so what this package promises
// holds in each.
type Dialect string

// The dialects.
const (
	OpenHands   Dialect = "" // the editor of OpenHands' action execution server
	OpenHandsV1 Dialect = "openhands-v1"
	Gemini      Dialect = "gemini"
	Strands     Dialect = "strands"
	Anthropic   Dialect = "anthropic" // as OpenHands, whose editor descends from it
)

// maxStrandsSize is the largest file that the dialect Strands views and edits, in bytes.
const maxStrandsSize = 1 << 20

// Replacement is one of several that a command makes.
type Replacement struct {
	Old, New string
	// Expected is how often Old must stand there; nil means once.
	Expected *int
	// AllowMultiple lets Old stand there any number of times.
	AllowMultiple bool
}

// counts says that a replacement may be of other than one place.
func (r Replacement) counts() bool { return r.AllowMultiple || r.Expected != nil && *r.Expected != 1 }

// limit is the largest file that a dialect views and edits.
func (e *Editor) limit(d Dialect) int64 {
	switch d {
	case Strands:
		return min(maxStrandsSize, e.maxRead)
	case Gemini:
		return e.maxRead
	}
	return e.maxEdit
}

// numbered is the block that shows lines with their numbers, the first being start. A text that ends in a line feed shows
// one more line, an empty one.
func (d Dialect) numbered(what, body string, start int) string {
	body, gap := printable(body), "\t"
	switch d {
	case Strands:
		body, gap = strings.ReplaceAll(body, "\t", "        "), "  "
	case OpenHandsV1:
		body = clipMiddle(body)
	default:
		body = clip(body)
	}
	var out strings.Builder
	out.WriteString("Here's the result of running `cat -n` on " + what + ":\n")
	for i, line := range strings.Split(body, "\n") {
		number := strconv.Itoa(start + i)
		for range 6 - len(number) {
			out.WriteByte(' ')
		}
		out.WriteString(number)
		out.WriteString(gap)
		out.WriteString(line)
		out.WriteByte('\n')
	}
	return out.String()
}

// clipMiddle cuts a text to maxShown characters by taking out its middle, and says so there.
func clipMiddle(s string) string {
	if len(s) <= maxShown || utf8.RuneCountInString(s) <= maxShown {
		return s
	}
	kept := []rune(s)
	room := maxShown - utf8.RuneCountInString(fileClipped)
	return string(kept[:room/2+room%2]) + fileClipped + string(kept[len(kept)-room/2:])
}
