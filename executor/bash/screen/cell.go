package screen

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// A cell is one column of a line: a rune, wideTail for the second column of the
// wide rune to its left, tab and tabTail for the first and the further columns
// of a tab, or firstCluster less the number of a cluster of runes in a clusters
// table.
type cell rune

const (
	wideTail     cell = -1
	tab          cell = -2
	tabTail      cell = -3
	firstCluster cell = -4
)

// isBlank reports whether there is nothing to see in the column.
func (c cell) isBlank() bool { return c == ' ' || c == tab || c == tabTail }

// Bounds on the cost of combining marks: a program that piles them on one
// column, or makes ever new piles, loses the marks beyond and nothing else.
const (
	maxCluster  = 64      // bytes in one cell
	maxClusters = 1 << 16 // different clusters at a time
)

const (
	zeroWidthJoiner   = '\u200d'
	tabStop           = 8
	firstSkinModifier = '\U0001f3fb'
	lastSkinModifier  = '\U0001f3ff'
)

// widths fixes the width of ambiguous runes to one column, whatever the locale
// of the server says: the text comes from programs of the sandbox.
var widths = &runewidth.Condition{StrictEmojiNeutral: true}

// RuneWidth returns the columns of r: 0 for combining marks, 2 for wide runes,
// -1 for the control characters of C0, C1 and DEL, which are never shown.
func RuneWidth(r rune) int {
	switch {
	case r < 0x20 || r >= 0x7f && r < 0xa0:
		return -1
	case r < 0x300 || r >= 0x2500 && r < 0x25a0: // Latin; lines and blocks, as in progress bars
		return 1
	}
	return widths.RuneWidth(r)
}

// clusters holds the cells of more than one rune: a letter with its accents, a
// sequence glued by joiners. Lines refer to it by number.
type clusters struct {
	list  []string
	index map[string]cell
}

// join returns the cell that shows c with r added to it, or c where the
// bounds forbid more.
func (t *clusters) join(c cell, r rune) cell {
	var buf [maxCluster + 2*utf8.UTFMax]byte
	b := utf8.AppendRune(t.append(buf[:0], c), r)
	if len(b) > maxCluster {
		return c
	}
	if known, ok := t.index[string(b)]; ok {
		return known
	}
	if len(t.list) >= maxClusters {
		return c
	}
	if t.index == nil {
		t.index = make(map[string]cell)
	}
	made := firstCluster - cell(len(t.list)) //nolint:gosec // less than maxClusters
	t.list = append(t.list, string(b))
	t.index[string(b)] = made
	return made
}

// append appends the text of c to dst.
func (t *clusters) append(dst []byte, c cell) []byte {
	switch {
	case c == wideTail:
		return dst
	case c.isBlank():
		return append(dst, ' ')
	case c <= firstCluster:
		return append(dst, t.list[firstCluster-c]...)
	}
	return utf8.AppendRune(dst, rune(c))
}

// glues reports whether a rune that follows c belongs to it.
func (t *clusters) glues(c cell) bool {
	if c > firstCluster {
		return false
	}
	r, _ := utf8.DecodeLastRuneInString(t.list[firstCluster-c])
	return r == zeroWidthJoiner
}

// A line is one line of the screen that can be written at any column. As long
// as every column holds one printable ASCII byte it is kept as text; the first
// other rune turns it into cells. Columns to the right of its end are blank. A
// nil line is blank too; it can be measured and shown, not written.
//
// A line that was only ever written at its end, since it was last empty, is
// shown as it was written. In a line that was edited, tabs are blanks, and
// blanks at its end are not shown.
type line struct {
	text   []byte
	cells  []cell // in place of text where not nil
	edited bool
}

// newLine makes a line of raw, the text that flowed to the terminal:
// printable ASCII, tabs and bytes from 0x80.
func newLine(raw []byte, t *clusters) *line {
	if plainASCII(raw) {
		return &line{text: bytes.Clone(raw)}
	}
	l := &line{}
	col := 0
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		raw = raw[size:]
		if r == '\t' {
			col = l.putTab(col)
			continue
		}
		col = l.putRune(col, r, t)
	}
	return l
}

// width returns the columns of the line, blank ones at its end included.
func (l *line) width() int {
	if l.cells != nil {
		return len(l.cells)
	}
	return len(l.text)
}

// clone returns a line that shares nothing with l.
func (l *line) clone() *line {
	return &line{text: bytes.Clone(l.text), cells: slices.Clone(l.cells), edited: l.edited}
}

// pad makes the line at least width columns wide.
func (l *line) pad(width int) {
	n := width - l.width()
	if n <= 0 {
		return
	}
	if l.cells == nil {
		l.text = slices.Grow(l.text, n)
		for range n {
			l.text = append(l.text, ' ')
		}
		return
	}
	l.cells = slices.Grow(l.cells, n)
	for range n {
		l.cells = append(l.cells, ' ')
	}
}

// toCells turns the line into cells.
func (l *line) toCells() {
	if l.cells != nil {
		return
	}
	l.cells = make([]cell, len(l.text), len(l.text)+len(l.text)/4+16)
	for i, b := range l.text {
		l.cells[i] = cell(b)
	}
	l.text = nil
}

// reach makes col a column of the line or the one after its end.
func (l *line) reach(col int) {
	if col != l.width() {
		l.edited = true
		l.pad(col)
	}
}

// putTab writes a tab at the end of the line and returns the column after it.
func (l *line) putTab(col int) int {
	l.toCells()
	l.cells = append(l.cells, tab)
	for col++; col%tabStop != 0; col++ {
		l.cells = append(l.cells, tabTail)
	}
	return col
}

// putASCII writes printable ASCII at col.
func (l *line) putASCII(col int, b []byte) {
	l.reach(col)
	if l.cells == nil {
		n := copy(l.text[col:], b)
		l.text = append(l.text, b[n:]...)
		return
	}
	l.split(col)
	l.split(col + len(b))
	l.pad(col + len(b))
	for i, c := range b {
		l.cells[col+i] = cell(c)
	}
}

// putRune writes r at col, or adds it to the cell before col where it combines,
// and returns the column after it.
func (l *line) putRune(col int, r rune, t *clusters) int {
	width := RuneWidth(r)
	if width < 0 {
		return col
	}
	l.toCells()
	if before := l.head(col - 1); before >= 0 && l.combines(before, r, width, t) {
		l.cells[before] = t.join(l.cells[before], r)
		l.edited = l.edited || col < l.width()
		return col
	}
	if width == 0 {
		return col // nothing to combine with
	}
	l.reach(col)
	l.split(col)
	l.split(col + width)
	l.pad(col + width)
	l.cells[col] = cell(r)
	if width == 2 {
		l.cells[col+1] = wideTail
	}
	return col + width
}

// combines reports whether r, of that width, belongs to the cell at col.
func (l *line) combines(col int, r rune, width int, t *clusters) bool {
	if width == 0 || t.glues(l.cells[col]) {
		return l.cells[col] != tab && l.cells[col] != tabTail
	}
	wide := col+1 < len(l.cells) && l.cells[col+1] == wideTail
	return wide && r >= firstSkinModifier && r <= lastSkinModifier
}

// head returns the column at which the rune that covers col begins, or -1
// where there is none.
func (l *line) head(col int) int {
	if col < 0 || col >= len(l.cells) {
		return -1
	}
	if l.cells[col] == wideTail {
		return col - 1
	}
	return col
}

// split blanks a wide rune that lies across the border left of col, as writing
// on one half of it does.
func (l *line) split(col int) {
	if col > 0 && col < len(l.cells) && l.cells[col] == wideTail {
		l.cells[col-1], l.cells[col] = ' ', ' '
	}
}

// truncate removes the columns from col on.
func (l *line) truncate(col int) {
	if col >= l.width() {
		return
	}
	if col == 0 {
		*l = line{text: l.text[:0]} // an empty line is ASCII again
		return
	}
	l.edited = true
	if l.cells == nil {
		l.text = l.text[:col]
		return
	}
	l.split(col)
	l.cells = l.cells[:col]
}

// blank empties the columns from up to, not including, to.
func (l *line) blank(from, to int) {
	if to >= l.width() {
		l.truncate(from)
		return
	}
	l.edited = true
	if l.cells == nil {
		for i := from; i < to; i++ {
			l.text[i] = ' '
		}
		return
	}
	l.split(from)
	l.split(to)
	for i := from; i < to; i++ {
		l.cells[i] = ' '
	}
}

// insert shifts the columns from col up to edge right by n; cells beyond
// edge are lost.
func (l *line) insert(col, n, edge int) {
	n = min(n, edge-col)
	if col >= l.width() || n <= 0 {
		return
	}
	l.edited = true
	l.toCells()
	end := min(len(l.cells)+n, max(edge, len(l.cells)))
	l.split(col)
	l.split(edge - n)
	l.split(edge)
	l.pad(end)
	stop := min(edge, end)
	copy(l.cells[col+n:stop], l.cells[col:stop-n])
	for i := col; i < col+n; i++ {
		l.cells[i] = ' '
	}
}

// remove takes n columns away at col and shifts those up to edge left.
func (l *line) remove(col, n, edge int) {
	stop := min(edge, l.width())
	n = min(n, stop-col)
	if n <= 0 {
		return
	}
	l.edited = true
	l.toCells()
	l.split(col)
	l.split(col + n)
	l.split(stop)
	copy(l.cells[col:], l.cells[col+n:stop])
	if stop == len(l.cells) {
		l.cells = l.cells[:stop-n]
		return
	}
	for i := stop - n; i < stop; i++ {
		l.cells[i] = ' '
	}
}

// appendTo appends the text of the line, blanks at its end included, to dst.
func (l *line) appendTo(dst []byte, t *clusters) []byte {
	if l == nil {
		return dst
	}
	if l.cells == nil {
		return append(dst, l.text...)
	}
	for _, c := range l.cells {
		switch {
		case c >= 0 && c < utf8.RuneSelf:
			dst = append(dst, byte(c))
		case c == tab && !l.edited:
			dst = append(dst, '\t')
		case c == tabTail && !l.edited:
		default:
			dst = t.append(dst, c)
		}
	}
	return dst
}

// appendWhole appends the text of a line that has ended to dst.
func (l *line) appendWhole(dst []byte, t *clusters) []byte {
	start := len(dst)
	dst = l.appendTo(dst, t)
	if l != nil && l.edited {
		dst = dst[:start+len(bytes.TrimRight(dst[start:], " "))]
	}
	return dst
}

// isBlank reports whether there is nothing to see in the line.
func (l *line) isBlank() bool {
	if l == nil {
		return true
	}
	for _, c := range l.cells {
		if !c.isBlank() {
			return false
		}
	}
	return len(bytes.TrimRight(l.text, " ")) == 0
}

// cellSize is the size of a cell in bytes.
const cellSize = 4

// size returns the bytes that the line takes.
func (l *line) size() int {
	if l == nil {
		return 0
	}
	return len(l.text) + cellSize*len(l.cells)
}
