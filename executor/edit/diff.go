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
	// exactLines is up to how many lines of both sides together a diff is the very one that difflib makes. Its method takes
	// time in the square of that, or worse.
	exactLines = 2048
	// maxCompared is how many lines of both sides together are compared as one stretch; a longer one is cut at lines that
	// stand once on both sides.
	maxCompared = 3000
	// maxWork bounds the work of one diff, in squares of compared lines. What is left when it is used up shows as replaced.
	maxWork = 64 << 20
	// maxDiffLines is how many lines of both sides are compared at all, after the equal ones at both ends are cut off.
	maxDiffLines = 1 << 20
	// maxShownDiff is up to how many bytes of both sides a diff shows. Two unlike files of the largest size that the editor
	// takes stay below.
	maxShownDiff = 32 << 20
	// maxCuts bounds how often a stretch is cut again, since each cut looks at all of its lines.
	maxCuts = 8
)

// unifiedDiff shows what became of a text as Python's difflib.unified_diff does for texts split at line feeds: no context
// lines, the same name twice, no white space at the ends of lines; "" for equal texts.
//
// The diff leads from one text to the other. For texts of up to about a thousand lines it is the one that difflib makes,
// since clients compare answers as a whole; for larger ones it is a shortest one, unless they are so different that
// comparing them would take long: then whole stretches show as removed and added. Changes of more than maxShownDiff bytes
// show as the two names alone.
func unifiedDiff(path, before, after string) string {
	if before == after {
		return ""
	}
	if strings.Count(before, "\n")+strings.Count(after, "\n")+2 <= exactLines {
		return printDiff(path, strings.Split(before, "\n"), strings.Split(after, "\n"), 0, difflib)
	}
	before, after, above := cutEqual(before, after)
	switch {
	case len(before)+len(after) > maxShownDiff:
		return header(path)
	case strings.Count(before, "\n")+strings.Count(after, "\n") > maxDiffLines:
		return replaceAll(path, before, after, above)
	}
	return printDiff(path, strings.Split(before, "\n"), strings.Split(after, "\n"), above, shortest)
}

// maxWriteDiff is up to how many bytes of both sides the diff of a write shows. It is some thousand lines, more than anyone
// reads; showing a megabyte took as long as writing it.
const maxWriteDiff = 256 << 10

// writeDiff is unifiedDiff, but of changes above maxWriteDiff it gives the names and the range, and says what it leaves out.
func writeDiff(path, before, after string) string {
	a, b, above := cutEqual(before, after)
	if len(a)+len(b) <= maxWriteDiff {
		return unifiedDiff(path, before, after)
	}
	return header(path) + hunkHeader(above, above+countLines(a), above, above+countLines(b)) +
		fmt.Sprintf("\n[text left out: %d bytes removed, %d added]", len(a), len(b))
}

// countLines counts the last line whether or not it ends in a line feed.
func countLines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

func header(path string) string { return printable("--- " + path + "\n+++ " + path) }

// printDiff writes the lines that differ, where match finds those that do not. above lines were left out before them.
func printDiff(path string, a, b []string, above int, match func(*differ)) string {
	hunks := compare(a, b, match)
	var out strings.Builder
	out.Grow(room(path, a, b, hunks))
	out.WriteString(header(path))
	for _, h := range hunks {
		out.WriteString(hunkHeader(above+h.a0, above+h.a1, above+h.b0, above+h.b1))
		writeLines(&out, "\n-", a[h.a0:h.a1])
		writeLines(&out, "\n+", b[h.b0:h.b1])
	}
	return printable(out.String())
}

// replaceAll is one hunk. It does not split the texts: of ten million lines even the list takes much memory.
func replaceAll(path, before, after string, above int) string {
	var out strings.Builder
	out.Grow(len(before) + len(after) + strings.Count(before, "\n")*2 + strings.Count(after, "\n")*2 + 2*len(path) + 64)
	out.WriteString(header(path))
	out.WriteString(hunkHeader(above, above+strings.Count(before, "\n")+1, above, above+strings.Count(after, "\n")+1))
	for line := range strings.SplitSeq(before, "\n") {
		writeLine(&out, "\n-", line)
	}
	for line := range strings.SplitSeq(after, "\n") {
		writeLine(&out, "\n+", line)
	}
	return printable(out.String())
}

// room is about how long a diff gets.
func room(path string, a, b []string, hunks []hunk) int {
	n := 2*len(path) + 16
	for _, h := range hunks {
		n += 32
		for _, line := range a[h.a0:h.a1] {
			n += len(line) + 2
		}
		for _, line := range b[h.b0:h.b1] {
			n += len(line) + 2
		}
	}
	return n
}

func writeLines(out *strings.Builder, sign string, lines []string) {
	for _, line := range lines {
		writeLine(out, sign, line)
	}
}

func writeLine(out *strings.Builder, sign, line string) {
	out.WriteString(sign)
	out.WriteString(strings.TrimRightFunc(line, isSpace))
}

func hunkHeader(a0, a1, b0, b1 int) string {
	return "\n@@ -" + hunkRange(a0, a1) + " +" + hunkRange(b0, b1) + " @@"
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

// cutEqual takes off the lines that are equal at both ends of two texts, and says how many it took off above. So the edit
// of a large file costs no more than its own lines.
func cutEqual(before, after string) (a, b string, above int) {
	head := strings.LastIndexByte(before[:commonPrefix(before, after)], '\n') + 1
	tail := commonSuffix(before[head:], after[head:])
	above = strings.Count(before[:head], "\n")
	before, after = before[head:], after[head:]
	// A line feed in the common end is the end of the last line that stays. What follows it is cut off.
	if end := strings.IndexByte(before[len(before)-tail:], '\n'); end >= 0 {
		tail -= end
		before, after = before[:len(before)-tail], after[:len(after)-tail]
	}
	return before, after, above
}

// hunk says that the lines a0 to a1 of one side became the lines b0 to b1 of the other.
type hunk struct {
	a0, a1, b0, b1 int
}

// compare returns the hunks that lead from a to b, in order, with equal lines between them as match finds them.
func compare(a, b []string, match func(*differ)) []hunk {
	ids := make(map[string]int, len(a))
	d := &differ{a: make([]int, len(a)), b: make([]int, len(b)), work: maxWork}
	for i, line := range a {
		id, ok := ids[line]
		if !ok {
			id = len(ids) + 1
			ids[line] = id
		}
		d.a[i] = id
	}
	for j, line := range b {
		d.b[j] = ids[line] // 0 for a line that a does not have
	}
	d.facts = make([]facts, len(ids)+1)
	match(d)
	d.equal(len(a), len(b), 0)
	return d.hunks
}

// differ compares lines by number.
type differ struct {
	a, b         []int
	facts        []facts // of each number; zero but while a stretch is looked at
	work         int
	hunks        []hunk
	aDone, bDone int // everything before is in a hunk or equal
}

// facts are what is known of a line in a stretch: how often it stands on either side and where last, and the character
// that stands for it.
type facts struct {
	inA, inB int
	a, b     int
	char     rune
}

// count takes down the facts of a stretch.
func (d *differ) count(a0, a1, b0, b1 int) {
	for i := a0; i < a1; i++ {
		f := &d.facts[d.a[i]]
		f.inA++
		f.a = i
	}
	for j := b0; j < b1; j++ {
		f := &d.facts[d.b[j]]
		f.inB++
		f.b = j
	}
}

func (d *differ) forget(a0, a1, b0, b1 int) {
	for _, id := range d.a[a0:a1] {
		d.facts[id] = facts{}
	}
	for _, id := range d.b[b0:b1] {
		d.facts[id] = facts{}
	}
}

// equal notes that n lines from i and j on are the same. It is called in order; what it leaves out becomes a hunk.
func (d *differ) equal(i, j, n int) {
	if i > d.aDone || j > d.bDone {
		d.hunks = append(d.hunks, hunk{d.aDone, i, d.bDone, j})
	}
	d.aDone, d.bDone = i+n, j+n
}

func shortest(d *differ) { d.stretch(0, len(d.a), 0, len(d.b), 0) }

// stretch compares a part of both sides.
func (d *differ) stretch(a0, a1, b0, b1, cuts int) {
	start := 0
	for a0+start < a1 && b0+start < b1 && d.a[a0+start] == d.b[b0+start] {
		start++
	}
	if start > 0 {
		d.equal(a0, b0, start)
	}
	a0, b0 = a0+start, b0+start
	end := 0
	for a0 < a1-end && b0 < b1-end && d.a[a1-end-1] == d.b[b1-end-1] {
		end++
	}
	a1, b1 = a1-end, b1-end
	switch {
	case a0 == a1 || b0 == b1:
	case a1-a0+b1-b0 <= maxCompared || cuts == maxCuts:
		d.lines(a0, a1, b0, b1)
	default:
		d.cut(a0, a1, b0, b1, cuts)
	}
	if end > 0 {
		d.equal(a1, b1, end)
	}
}

// cut takes the lines that stand once on both sides and in the same order for equal, and compares what is between them.
func (d *differ) cut(a0, a1, b0, b1, cuts int) {
	anchors := d.anchors(a0, a1, b0, b1)
	if len(anchors) == 0 {
		d.lines(a0, a1, b0, b1)
		return
	}
	for _, at := range anchors {
		if at[0] < a0 || at[1] < b0 {
			continue
		}
		d.stretch(a0, at[0], b0, at[1], cuts+1)
		d.equal(at[0], at[1], 1)
		a0, b0 = at[0]+1, at[1]+1
	}
	d.stretch(a0, a1, b0, b1, cuts+1)
}

// anchors are the places of the longest rising row of lines that stand exactly once on either side.
func (d *differ) anchors(a0, a1, b0, b1 int) [][2]int {
	d.count(a0, a1, b0, b1)
	defer d.forget(a0, a1, b0, b1)
	var unique []facts // in the order of a
	for _, id := range d.a[a0:a1] {
		if f := d.facts[id]; f.inA == 1 && f.inB == 1 {
			unique = append(unique, f)
		}
	}
	// Patience: tails[n] is the row of n+1 places that ends lowest in b.
	var tails []int
	before := make([]int, len(unique))
	for i, p := range unique {
		n, _ := slices.BinarySearchFunc(tails, p.b, func(t, b int) int { return unique[t].b - b })
		before[i] = -1
		if n > 0 {
			before[i] = tails[n-1]
		}
		if n == len(tails) {
			tails = append(tails, i)
		} else {
			tails[n] = i
		}
	}
	if len(tails) == 0 {
		return nil
	}
	rising := make([][2]int, len(tails))
	for i, n := tails[len(tails)-1], len(tails)-1; n >= 0; i, n = before[i], n-1 {
		rising[n] = [2]int{unique[i].a, unique[i].b}
	}
	return rising
}

// lines compares line by line. Lines that the other side does not have at all are left aside, for nothing can be equal to
// them; so two texts that have nothing in common cost nothing.
func (d *differ) lines(a0, a1, b0, b1 int) {
	d.count(a0, a1, b0, b1)
	defer d.forget(a0, a1, b0, b1)
	chars := rune(0)
	shared := func(ids []int, from int) (runes []rune, at []int) {
		for i, id := range ids {
			f := &d.facts[id]
			if f.inA == 0 || f.inB == 0 {
				continue
			}
			if f.char == 0 {
				chars++
				f.char = chars
			}
			runes, at = append(runes, f.char), append(at, from+i)
		}
		return runes, at
	}
	aRunes, aAt := shared(d.a[a0:a1], a0)
	bRunes, bAt := shared(d.b[b0:b1], b0)
	n := len(aRunes) + len(bRunes)
	// go-diff needs characters, which numbers above 0xD800 are not; maxCompared is far below.
	if len(aRunes) == 0 || n > maxCompared || n*n > d.work {
		return
	}
	d.work -= n * n
	compare := diffmatchpatch.New()
	compare.DiffTimeout = 0
	i, j := 0, 0
	for _, part := range compare.DiffMainRunes(aRunes, bRunes, false) {
		n := utf8.RuneCountInString(part.Text)
		switch part.Type {
		case diffmatchpatch.DiffDelete:
			i += n
		case diffmatchpatch.DiffInsert:
			j += n
		case diffmatchpatch.DiffEqual:
			for ; n > 0; n-- {
				d.equal(aAt[i], bAt[j], 1)
				i++
				j++
			}
		}
	}
}
