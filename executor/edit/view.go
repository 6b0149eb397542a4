package edit

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/actiond/actiond/internal/shorten"
)

const (
	// maxShown bounds the characters of a file or a listing in one answer.
	maxShown = 16000
	// snippetContext is the number of context lines around an edit in a snippet.
	snippetContext = 4

	fileClipped = "<response clipped><NOTE>Due to the max output limit, only part of this file has been shown to you. " +
		"You should retry this tool after you have searched inside the file with `grep -n` " +
		"in order to find the line numbers of what you are looking for.</NOTE>"
	directoryClipped = "<response clipped><NOTE>Due to the max output limit, only part of this directory has been shown to you. " +
		"You should use `ls -la` instead to view large directories incrementally.</NOTE>"
)

// clipped shortens a text to maxShown characters and adds a note.
func clipped(s string) string { return shorten.Middle(s, maxShown, 0, fileClipped) }

// snippet returns the lines first to last of a view, counted from 1, with their line feeds.
func snippet(view string, first, last int) string {
	rest := view[lineStart(view, first-1):]
	return rest[:lineStart(rest, last-first+1)]
}

// viewRange shows a range of lines. It checks the range in the order of the reference.
func viewRange(p place, view string, lines []int) (string, error) {
	if len(lines) != 2 {
		return "", invalid(CodeInvalidRange, "view_range", list(lines), "It should be a list of two integers.")
	}
	count, first, last := lineCount(view), lines[0], lines[1]
	if first < 1 || first > count {
		return "", invalid(CodeInvalidRange, "view_range", list(lines), fmt.Sprintf(
			"Its first element `%d` should be within the range of lines of the file: [1, %d].", first, count))
	}
	note := ""
	if last > count {
		note = fmt.Sprintf("NOTE: We only show up to %d since there're only %d lines in this file.\n", count, count)
		last = count
	}
	if last != -1 && last < first {
		return "", invalid(CodeInvalidRange, "view_range", list(lines), fmt.Sprintf(
			"Its second element `%d` should be greater than or equal to the first element `%d`.", last, first))
	}
	if last == -1 {
		last = count
	}
	shown := strings.Join(splitLines(snippet(view, first, last)), "\n")
	return note + p.dialect.numbered(p.shown, shown, first), nil
}

// splitLines splits at all line boundaries of Python's str.splitlines, not only at line feeds. A view has no CRs.
func splitLines(s string) []string {
	var lines []string
	start := 0
	for i, r := range s {
		switch r {
		case '\n', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
			lines = append(lines, s[start:i])
			start = i + utf8.RuneLen(r)
		}
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}

// list formats numbers as Python formats a list.
func list(numbers []int) string {
	return strings.ReplaceAll(fmt.Sprint(numbers), " ", ", ")
}
