package edit

import (
	"strings"
	"unicode/utf8"
)

// maxListedLines bounds the line numbers in an error.
const maxListedLines = 1000

// occurrences counts the matches of old in view without overlap and returns the lines on which they begin, each once.
// An empty old matches before every character and at the end.
func occurrences(view, old string) (count int, lines []int) {
	if old == "" {
		for line := range min(strings.Count(view, "\n")+1, maxListedLines) {
			lines = append(lines, line+1)
		}
		return utf8.RuneCountInString(view) + 1, lines
	}
	line, seen := 1, 0
	for {
		found := strings.Index(view[seen:], old)
		if found < 0 {
			return count, lines
		}
		count++
		line += strings.Count(view[seen:seen+found], "\n")
		if len(lines) < maxListedLines && (len(lines) == 0 || lines[len(lines)-1] != line) {
			lines = append(lines, line)
		}
		line += strings.Count(old, "\n")
		seen += found + len(old)
	}
}

// replaceEach returns a change for each match of old in view, without overlap, and for the first maxReplacements+1 at
// most: more are refused, and would take more memory than the text. old must not be empty.
func replaceEach(view, old, replacement string) []change {
	var changes []change
	for seen := 0; len(changes) <= maxReplacements; {
		found := strings.Index(view[seen:], old)
		if found < 0 {
			break
		}
		at := seen + found
		seen = at + len(old)
		changes = append(changes, change{at, seen, replacement})
	}
	return changes
}

// findLines returns the first position of a run of lines in others, or -1, in linear time. want must not be empty.
func findLines(lines, want []string) int {
	border, n := borders(want), 0
	for i, line := range lines {
		for n > 0 && line != want[n] {
			n = border[n-1]
		}
		if line == want[n] {
			n++
		}
		if n == len(want) {
			return i + 1 - n
		}
	}
	return -1
}

// borders is the failure function of Knuth, Morris and Pratt: for each prefix of the lines, the length of its longest
// proper prefix that is also its suffix.
func borders(want []string) []int {
	border := make([]int, len(want))
	for i, n := 1, 0; i < len(want); i++ {
		for n > 0 && want[i] != want[n] {
			n = border[n-1]
		}
		if want[i] == want[n] {
			n++
		}
		border[i] = n
	}
	return border
}
