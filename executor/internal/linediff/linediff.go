// Package linediff finds which lines differ in two texts.
package linediff

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

// maxCompared is the most lines of both texts that are compared. Only a 32nd of them may differ in order: go-diff takes
// time in their square. If there are more, they show as replaced.
const maxCompared = 1 << 18

// Hunk replaces the lines A0 to A1 of one text by the lines B0 to B1 of the other, counted from 0.
type Hunk struct {
	A0, A1, B0, B1 int
}

// Header is the line above the hunk in a unified diff, with a line feed before it, for texts above which both have the
// same number of lines.
func (h Hunk) Header(above int) string {
	return "\n@@ -" + hunkRange(above+h.A0, above+h.A1) + " +" + hunkRange(above+h.B0, above+h.B1) + " @@"
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

// Cut removes the lines that are equal at both ends of two texts, and returns how many it removed above. So the edit of
// a large file costs no more than its own lines.
func Cut(before, after string) (a, b string, above int) {
	head := strings.LastIndexByte(before[:CommonPrefix(before, after)], '\n') + 1
	tail := CommonSuffix(before[head:], after[head:])
	above = strings.Count(before[:head], "\n")
	before, after = before[head:], after[head:]
	// The first line feed of the common end belongs to the last line that stays.
	if end := strings.IndexByte(before[len(before)-tail:], '\n'); end >= 0 {
		tail -= end
		before, after = before[:len(before)-tail], after[:len(after)-tail]
	}
	return before, after, above
}

// Hunks collects the hunks between equal lines.
type Hunks struct {
	List         []Hunk
	aDone, bDone int
}

// Equal adds n equal lines, from i and j on. The calls are in order; the last is for the ends of the texts.
func (h *Hunks) Equal(i, j, n int) {
	if i > h.aDone || j > h.bDone {
		h.List = append(h.List, Hunk{h.aDone, i, h.bDone, j})
	}
	h.aDone, h.bDone = i+n, j+n
}

// Shortest returns the hunks of a shortest diff.
func Shortest(before, after string) []Hunk {
	aLines, bLines := strings.Count(before, "\n")+1, strings.Count(after, "\n")+1
	if aLines+bLines > maxCompared {
		return []Hunk{{0, aLines, 0, bLines}}
	}
	differ := diffmatchpatch.New()
	differ.DiffTimeout = 0
	aAll, bAll, lines := differ.DiffLinesToRunes(before+"\n", after+"\n")
	a, aAt := shared(aAll, bAll, len(lines))
	b, bAt := shared(bAll, aAll, len(lines))
	var h Hunks
	i, j := 0, 0
	equal := func(n int) {
		for range n {
			h.Equal(aAt[i], bAt[j], 1)
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
	h.Equal(aLines, bLines, 0)
	return h.List
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

// CutLines is [Cut] for lines with their line feeds.
func CutLines(before, after string) (a, b string, above int) {
	head := strings.LastIndexByte(before[:CommonPrefix(before, after)], '\n') + 1
	above, a, b = strings.Count(before[:head], "\n"), before[head:], after[head:]
	tail := CommonSuffix(a, b)
	end := strings.IndexByte(a[len(a)-tail:], '\n')
	if end < 0 {
		return a, b, above
	}
	tail -= end + 1
	return a[:len(a)-tail], b[:len(b)-tail], above
}

// Unified returns the hunks of a shortest diff of two texts without context lines, which patch and git apply (with
// --unidiff-zero) accept below a file header: lines keep the blanks and carriage returns at their ends, and a missing
// line feed at the end of a text is noted. above is the number of equal lines above both, and removed and added are
// numbers of lines. It ends without a line feed.
func Unified(before, after string, above int) (diff string, added, removed int) {
	a, b := slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(after))
	hunks := []Hunk{{0, len(a), 0, len(b)}}
	if before != "" && after != "" {
		hunks = Shortest(markEnd(before), markEnd(after))
	}
	var out strings.Builder
	for _, h := range hunks {
		out.WriteString(h.Header(above)[1:] + "\n")
		writeLines(&out, "-", a[h.A0:h.A1])
		writeLines(&out, "+", b[h.B0:h.B1])
		added, removed = added+h.B1-h.B0, removed+h.A1-h.A0
	}
	return strings.TrimSuffix(out.String(), "\n"), added, removed
}

// markEnd turns lines with their line feeds into lines between line feeds, with a mark on a last line that has none.
// Valid UTF-8 does not contain the mark.
func markEnd(text string) string {
	if rest, ended := strings.CutSuffix(text, "\n"); ended {
		return rest
	}
	return text + "\xff"
}

func writeLines(out *strings.Builder, sign string, lines []string) {
	for _, line := range lines {
		out.WriteString(sign + line)
		if !strings.HasSuffix(line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// CommonPrefix returns the length of the common prefix of two texts in bytes.
func CommonPrefix[S ~string | ~[]byte](a, b S) int {
	n, limit := 0, min(len(a), len(b))
	const stride = 4096
	for n+stride <= limit && string(a[n:n+stride]) == string(b[n:n+stride]) {
		n += stride
	}
	for n < limit && a[n] == b[n] {
		n++
	}
	return n
}

// CommonSuffix returns the length of the common suffix of two texts in bytes.
func CommonSuffix(a, b string) int {
	n, limit := 0, min(len(a), len(b))
	const stride = 4096
	for n+stride <= limit && a[len(a)-n-stride:len(a)-n] == b[len(b)-n-stride:len(b)-n] {
		n += stride
	}
	for n < limit && a[len(a)-n-1] == b[len(b)-n-1] {
		n++
	}
	return n
}
