package edit

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/actiond/actiond/internal/shorten"
)

// Dialect names the editor whose rules and messages a command follows. All dialects use the same engine, so the
// promises of this package hold in each.
type Dialect string

// The dialects.
const (
	OpenHands   Dialect = "" // the editor of OpenHands' action execution server
	OpenHandsV1 Dialect = "openhands-v1"
	Gemini      Dialect = "gemini"
	Strands     Dialect = "strands"
	Anthropic   Dialect = "anthropic"              // as OpenHands, whose editor descends from it
	Toolset     Dialect = "agent_toolset_20260401" // as well, and its paths may be relative
	Actiond     Dialect = "actiond"                // as Toolset, and shows images
)

// maxStrandsSize is the largest file that the dialect Strands views and edits, in bytes.
const maxStrandsSize = 1 << 20

// Replacement is one of several replacements of a command.
type Replacement struct {
	Old, New string
	// Expected is the required number of occurrences of Old; nil means one.
	Expected *int
	// AllowMultiple replaces all occurrences of Old, however many there are.
	AllowMultiple bool
}

// counts reports whether a replacement may have another number of places than one.
func (r Replacement) counts() bool { return r.AllowMultiple || r.expected() != 1 }

func (r Replacement) expected() int {
	if r.Expected == nil {
		return 1
	}
	return *r.Expected
}

// limit is the size in bytes of the largest file that a dialect views and edits.
func (e *Editor) limit(d Dialect) int64 {
	switch d {
	case Strands:
		return min(maxStrandsSize, e.maxRead)
	case Gemini:
		return e.maxRead
	}
	return e.maxEdit
}

// numbered shows lines with their numbers, beginning with start. A text that ends in a line feed shows an empty last
// line.
func (d Dialect) numbered(what, body string, start int) string {
	body, gap := printable(body), "\t"
	switch d {
	case Strands:
		body, gap = strings.ReplaceAll(body, "\t", "        "), "  "
	case OpenHandsV1:
		body = clipMiddle(body)
	default:
		body = clipped(body)
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

// clipMiddle shortens a text to maxShown characters: a note replaces its middle.
func clipMiddle(s string) string {
	if len(s) <= maxShown || utf8.RuneCountInString(s) <= maxShown {
		return s
	}
	room := maxShown - utf8.RuneCountInString(fileClipped)
	return shorten.Middle(s, room-room/2, room/2, fileClipped)
}
