package edit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/actiond/actiond/executor/internal/linediff"
)

const (
	// exactLines is the most lines of both texts for which unifiedDiff is difflib's. Its algorithm takes quadratic time.
	exactLines = 2048
	// maxShownDiff is the most bytes of both texts that a diff shows. Two unlike files of the largest size that the editor
	// takes are below.
	maxShownDiff = 32 << 20
	// maxWriteDiff is maxShownDiff for a write: some thousand lines. Showing a megabyte took as long as writing it.
	maxWriteDiff = 256 << 10
)

// unifiedDiff returns the diff of two texts that Python's difflib.unified_diff gives for texts split at line feeds,
// without context lines, with the same name twice, and without white space at the ends of lines; "" for equal texts.
// Clients of OpenHands compare it as a whole. For more than exactLines it is lineDiff.
func unifiedDiff(path, before, after string) string {
	if before == after || strings.Count(before, "\n")+strings.Count(after, "\n")+2 > exactLines {
		return lineDiff(path, before, after)
	}
	return printDiff(path, before, after, 0, difflib(numberLines(before, after)))
}

// lineDiff returns a shortest diff of two texts in the same form. It shows lines as replaced if there are too many to
// compare, and of a change of more than maxShownDiff bytes only the names.
func lineDiff(path, before, after string) string { return diffBelow(0, path, before, after) }

// diffBelow is lineDiff for the lines below a number of others.
func diffBelow(others int, path, before, after string) string {
	if before == after {
		return ""
	}
	before, after, above := linediff.Cut(before, after)
	if len(before)+len(after) > maxShownDiff {
		return header(path)
	}
	return printDiff(path, before, after, others+above, linediff.Shortest(before, after))
}

// writeDiff is lineDiff, but of a change of more than maxWriteDiff bytes it returns the names, the range, and the
// sizes.
func writeDiff(path, before, after string) string {
	a, b, above := linediff.Cut(before, after)
	if len(a)+len(b) <= maxWriteDiff {
		return lineDiff(path, before, after)
	}
	return header(path) + linediff.Hunk{A1: lineCount(a), B1: lineCount(b)}.Header(above) +
		fmt.Sprintf("\n[text left out: %d bytes removed, %d added]", len(a), len(b))
}

func header(path string) string { return printable("--- " + path + "\n+++ " + path) }

// printDiff writes the hunks between two texts, above which both have the same number of lines.
func printDiff(path, before, after string, above int, hunks []linediff.Hunk) string {
	var out strings.Builder
	out.WriteString(header(path))
	a, b := lineReader{rest: before}, lineReader{rest: after}
	for _, h := range hunks {
		out.WriteString(h.Header(above))
		a.copy(&out, "\n-", h.A0, h.A1)
		b.copy(&out, "\n+", h.B0, h.B1)
	}
	return printable(out.String())
}

// lineReader reads a text line by line. A slice of ten million lines would take much memory.
type lineReader struct {
	rest string
	line int // the number of the next line, from 0
}

// copy writes the lines from first up to end, each after a sign and without white space at its end.
func (r *lineReader) copy(out *strings.Builder, sign string, first, end int) {
	for ; r.line < end; r.line++ {
		var line string
		line, r.rest, _ = strings.Cut(r.rest, "\n")
		if r.line >= first {
			out.WriteString(sign)
			out.WriteString(trimSpaceRight(line))
		}
	}
}

// numberLines gives equal lines of two texts the same number, below count.
func numberLines(before, after string) (a, b []rune, count int) {
	numbers := make(map[string]rune, strings.Count(before, "\n")+1)
	number := func(text string) []rune {
		lines := make([]rune, 0, strings.Count(text, "\n")+1)
		for more := true; more; {
			var line string
			line, text, more = strings.Cut(text, "\n")
			n, known := numbers[line]
			if !known {
				n = rune(len(numbers)) //nolint:gosec // exactLines bounds it
				numbers[line] = n
			}
			lines = append(lines, n)
		}
		return lines
	}
	a = number(before)
	// Most of the lines of after are those of before, at its two ends.
	oldPart, newPart, above := linediff.Cut(before, after)
	below := a[above+strings.Count(oldPart, "\n")+1:]
	return a, slices.Concat(a[:above], number(newPart), below), len(numbers)
}
