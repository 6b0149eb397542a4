package edit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

const (
	// exactLines is the most lines of both texts for which unifiedDiff is difflib's. Its algorithm takes quadratic time.
	exactLines = 2048
	// maxCompared is the most lines of both texts that are compared. Only a 32nd of them may differ in order: go-diff takes
	// time in their square. If there are more, they show as replaced.
	maxCompared = 1 << 18
	// maxShownDiff is the most bytes of both texts that a diff shows. Two unlike files of the largest size that the editor
	// takes are below.
	maxShownDiff = 32 << 20
	// maxWriteDiff is maxShownDiff for a write: some thousand lines. Showing a megabyte took as long as writing it.
	maxWriteDiff = 256 << 10
)

// unifiedDiff returns the diff of two texts that Python's difflib.unified_diff gives for texts split at line feeds, without
// context lines, with the same name twice, and without white space at the ends of lines; "" for equal texts. Clients of
// OpenHands compare it as a whole. For more than exactLines it is lineDiff.
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
	before, after, above := cutEqual(before, after)
	if len(before)+len(after) > maxShownDiff {
		return header(path)
	}
	return printDiff(path, before, after, others+above, shortest(before, after))
}

// writeDiff is lineDiff, but of a change of more than maxWriteDiff bytes it returns the names, the range, and the sizes.
func writeDiff(path, before, after string) string {
	a, b, above := cutEqual(before, after)
	if len(a)+len(b) <= maxWriteDiff {
		return lineDiff(path, before, after)
	}
	return header(path) + hunk{0, lineCount(a), 0, lineCount(b)}.header(above) +
		fmt.Sprintf("\n[text left out: %d bytes removed, %d added]", len(a), len(b))
}

func header(path string) string { return printable("--- " + path + "\n+++ " + path) }

// printDiff writes the hunks between two texts, above which both have the same number of lines.
func printDiff(path, before, after string, above int, hunks []hunk) string {
	var out strings.Builder
	out.WriteString(header(path))
	a, b := lineReader{rest: before}, lineReader{rest: after}
	for _, h := range hunks {
		out.WriteString(h.header(above))
		a.copy(&out, "\n-", h.a0, h.a1)
		b.copy(&out, "\n+", h.b0, h.b1)
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

// hunk replaces the lines a0 to a1 of one text by the lines b0 to b1 of the other, counted from 0.
type hunk struct {
	a0, a1, b0, b1 int
}

func (h hunk) header(above int) string {
	return "\n@@ -" + hunkRange(above+h.a0, above+h.a1) + " +" + hunkRange(above+h.b0, above+h.b1) + " @@"
}

// hunkRange is the lines from start to stop, counted from 0, as difflib writes them.
func hunkRange(start, stop int) string {
	switch length := stop - start; length {
	case 0:
		return strconv.Itoa(start) + ",0"
	case 1:
		return strconv.Itoa(start + 1)
	default:
		return strconv.Itoa(start+1) + "," + strconv.Itoa(length)
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
	oldPart, newPart, above := cutEqual(before, after)
	below := a[above+strings.Count(oldPart, "\n")+1:]
	return a, slices.Concat(a[:above], number(newPart), below), len(numbers)
}

// cutEqual removes the lines that are equal at both ends of two texts, and returns how many it removed above. So the edit of
// a large file costs no more than its own lines.
func cutEqual(before, after string) (a, b string, above int) {
	head := strings.LastIndexByte(before[:commonPrefix(before, after)], '\n') + 1
	tail := commonSuffix(before[head:], after[head:])
	above = strings.Count(before[:head], "\n")
	before, after = before[head:], after[head:]
	// The first line feed of the common end belongs to the last line that stays.
	if end := strings.IndexByte(before[len(before)-tail:], '\n'); end >= 0 {
		tail -= end
		before, after = before[:len(before)-tail], after[:len(after)-tail]
	}
	return before, after, above
}

// hunks collects the hunks between equal lines.
type hunks struct {
	list         []hunk
	aDone, bDone int
}

// equal adds n equal lines, from i and j on. The calls are in order; the last is for the ends of the texts.
func (h *hunks) equal(i, j, n int) {
	if i > h.aDone || j > h.bDone {
		h.list = append(h.list, hunk{h.aDone, i, h.bDone, j})
	}
	h.aDone, h.bDone = i+n, j+n
}

// shortest returns the hunks of a shortest diff.
func shortest(before, after string) []hunk {
	aLines, bLines := strings.Count(before, "\n")+1, strings.Count(after, "\n")+1
	if aLines+bLines > maxCompared {
		return []hunk{{0, aLines, 0, bLines}}
	}
	differ := diffmatchpatch.New()
	differ.DiffTimeout = 0
	aAll, bAll, lines := differ.DiffLinesToRunes(before+"\n", after+"\n")
	a, aAt := shared(aAll, bAll, len(lines))
	b, bAt := shared(bAll, aAll, len(lines))
	var h hunks
	i, j := 0, 0
	equal := func(n int) {
		for range n {
			h.equal(aAt[i], bAt[j], 1)
			i, j = i+1, j+1
		}
	}
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	equal(head)
	a, b = a[head:], b[head:]
	tail := 0
	for tail < min(len(a), len(b)) && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	a, b = a[:len(a)-tail], b[:len(b)-tail]
	if len(a)+len(b) > maxCompared/32 {
		i, j = i+len(a), j+len(b)
	} else {
		for _, part := range differ.DiffMainRunes(a, b, false) {
			switch n := utf8.RuneCountInString(part.Text); part.Type {
			case diffmatchpatch.DiffDelete:
				i += n
			case diffmatchpatch.DiffInsert:
				j += n
			case diffmatchpatch.DiffEqual:
				equal(n)
			}
		}
	}
	equal(tail)
	h.equal(aLines, bLines, 0)
	return h.list
}

// shared returns the lines of a that b has too, and their places in a. Two texts without a common line cost nothing.
func shared(a, b []rune, lines int) (common []rune, at []int) {
	inB := make(map[rune]bool, lines)
	for _, line := range b {
		inB[line] = true
	}
	for i, line := range a {
		if inB[line] {
			common, at = append(common, line), append(at, i)
		}
	}
	return common, at
}
