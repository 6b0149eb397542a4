package screen

import (
	"bytes"
	"unicode/utf8"
)

// A page is the part of a screen that the cursor reaches: of the main screen
// the lines that were pulled out of the flow, of the alternate screen all.
// There may be fewer lines than rows; those missing are blank.
type page struct {
	lines    []*line // nil: blank
	row, col int     // of the cursor; row may be one of the missing lines

	top, bottom        int // first and last row of the scroll region; bottom 0: the whole screen
	savedRow, savedCol int
	pending            bool // the last column was written: the next rune begins a row (alternate screen)
}

// current returns the line of the cursor.
func (p *page) current() *line {
	for len(p.lines) <= p.row {
		p.lines = append(p.lines, nil)
	}
	if p.lines[p.row] == nil {
		p.lines[p.row] = &line{}
	}
	return p.lines[p.row]
}

// keepColumn keeps a cursor that is behind the last column of a line wider
// than the screen within the screen when it comes to another line.
func (s *Screen) keepColumn() {
	pg := s.page()
	pg.toColumn(min(pg.col, s.cols-1))
}

// toColumn moves the cursor within its row.
func (p *page) toColumn(col int) { p.col, p.pending = max(col, 0), false }

// left moves the cursor n columns to the left.
func (p *page) left(n int) { p.toColumn(p.col - n) }

// rightmost is the last column that cursor movements reach.
func (s *Screen) rightmost() int {
	if s.alt != nil {
		return s.cols - 1
	}
	return max(s.cols-1, s.main.current().width())
}

// lastRow is the last row of the scroll region.
func (s *Screen) lastRow() int {
	if bottom := s.page().bottom; bottom > 0 {
		return bottom
	}
	return s.rows - 1
}

// put writes printable bytes at the cursor and returns how many it took: less
// than all where output flows again.
func (s *Screen) put(run []byte) int {
	rest := run
	for len(rest) > 0 && !s.flowing() {
		switch ascii := asciiLen(rest); {
		case len(s.bad) > 0:
			s.putBad(rest[0])
			rest = rest[1:]
		case ascii > 0:
			rest = rest[s.putText(rest[:ascii]):]
		default:
			rest = rest[s.putNext(rest):]
		}
	}
	return len(run) - len(rest)
}

// putText is put for printable ASCII.
func (s *Screen) putText(text []byte) int {
	rest := text
	for len(rest) > 0 && !s.flowing() {
		n := s.putASCII(rest)
		s.debt -= n
		rest = rest[n:]
		s.payGrowth()
	}
	return len(text) - len(rest)
}

// putNext writes the rune that b begins with, or keeps its beginning.
func (s *Screen) putNext(b []byte) int {
	r, size := utf8.DecodeRune(b)
	if size == 1 && !utf8.FullRune(b) {
		s.bad = bytes.Clone(b)
		return len(b)
	}
	s.putRune(r)
	s.debt -= size
	s.payGrowth()
	return size
}

// putBad adds a byte to the beginning of a rune kept in bad.
func (s *Screen) putBad(c byte) {
	b := append(s.bad, c)
	s.bad = nil
	for len(b) > 0 && !s.flowing() {
		b = b[s.putNext(b):]
	}
	s.appendFlow(b)
}

// putASCII writes the first of some printable ASCII and returns how much of it.
func (s *Screen) putASCII(b []byte) int {
	if s.insert {
		b = b[:1]
		s.shiftColumns('@', 1)
	}
	pg := s.page()
	s.wrap(1)
	l := pg.current()
	weight := 1
	if l.cells != nil {
		weight = cellSize
	}
	if s.alt == nil {
		room := max(l.width(), maxColumns) - pg.col
		if room <= 0 {
			s.spill()
			return 0
		}
		b = b[:min(len(b), room, max(1, (maxKept-s.grown)/weight))]
		s.grown += weight * (len(b) + max(0, pg.col-l.width()))
		l.putASCII(pg.col, b)
		pg.col += len(b)
		return len(b)
	}
	if s.nowrap && len(b) > s.cols-pg.col { // what does not fit is written over in the last column
		n := len(b)
		l.putASCII(pg.col, b[:s.cols-1-pg.col])
		l.putASCII(s.cols-1, b[n-1:])
		pg.col = s.cols - 1
		return n
	}
	b = b[:min(len(b), s.cols-pg.col)]
	l.putASCII(pg.col, b)
	s.advance(pg.col + len(b))
	return len(b)
}

// putRune writes any rune.
func (s *Screen) putRune(r rune) {
	pg := s.page()
	width := max(0, RuneWidth(r))
	if s.insert && width > 0 {
		s.shiftColumns('@', width)
	}
	if width > 0 {
		s.wrap(width)
	}
	l := pg.current()
	if s.alt == nil && width > 0 && pg.col >= max(l.width(), maxColumns) {
		s.spill()
		s.print(utf8.AppendRune(nil, r))
		return
	}
	before := l.size()
	col := pg.col
	if pg.pending { // only a mark that combines with the last column comes here
		col++
	}
	next := l.putRune(col, r, &s.marks)
	if s.alt == nil {
		s.grown += max(0, l.size()-before)
		pg.col = next
		return
	}
	if !pg.pending {
		s.advance(next)
	}
}

// wrap begins a new row of the alternate screen where a rune of that width does
// not fit.
func (s *Screen) wrap(width int) {
	if s.alt == nil || s.nowrap || !s.alt.pending && s.alt.col+width <= s.cols {
		return
	}
	if s.alt.col > 0 || s.alt.pending {
		s.newline()
	}
}

// advance puts the cursor of the alternate screen behind the last written cell.
func (s *Screen) advance(col int) {
	s.alt.col, s.alt.pending = min(col, s.cols-1), col >= s.cols && !s.nowrap
}

// spill goes on where a line has no more columns: as flowing text where it is
// the last, else in the next row, as a terminal does.
func (s *Screen) spill() {
	m := &s.main
	if m.bottom == 0 && m.row >= len(m.lines)-1 {
		m.current().reach(m.col)
		s.merge(false)
		return
	}
	m.toColumn(0)
	s.index()
}

// writeTab writes a tab at the end of a line; elsewhere it moves the cursor.
func (s *Screen) writeTab() {
	s.pull(0)
	m := &s.main
	if s.alt != nil || m.current().edited || m.col != m.current().width() || m.col > maxColumns-tabStop {
		s.tab(1)
		return
	}
	l := m.current()
	before := l.size()
	m.toColumn(l.putTab(m.col))
	s.debt--
	s.grown += l.size() - before
	s.payGrowth()
}

// print writes printable bytes, wherever they go.
func (s *Screen) print(b []byte) {
	if !s.flowing() {
		b = b[s.put(b):]
	}
	s.appendFlow(b)
}

// newline moves the cursor to the start of the next row, below the last one by
// scrolling. It lets output flow again once the lines pulled are paid for.
func (s *Screen) newline() {
	if s.flowing() {
		s.appendFlow(newline)
		s.cr = false
		return
	}
	pg := s.page()
	pg.toColumn(0)
	if s.alt == nil && pg.bottom == 0 && pg.row >= len(pg.lines)-1 && s.debt <= pullSlack {
		pg.current()
		s.merge(true)
		s.appendFlow(newline)
		return
	}
	s.index()
}

// index moves the cursor down one row; at the end of the scroll region the
// region scrolls.
func (s *Screen) index() {
	s.keepColumn()
	pg := s.page()
	switch {
	case pg.row == s.lastRow():
		pg.current()
		s.shiftUp(pg.top, s.lastRow(), 1, true)
		pg.current()
	case pg.row < s.rows-1:
		pg.row++
		pg.current()
	}
}

// reverseIndex moves the cursor up one row; at the start of the scroll region
// the region scrolls down.
func (s *Screen) reverseIndex() {
	s.pull(1)
	s.keepColumn()
	pg := s.page()
	switch {
	case pg.row == pg.top:
		s.shiftDown(pg.top, s.lastRow(), 1)
	case pg.row > 0:
		pg.row--
	}
}

// shiftUp removes n lines at row at, moves those below up to bottom, and leaves
// blank ones. Where the main screen scrolls, the lines that leave it at its top
// stay in the text.
func (s *Screen) shiftUp(at, bottom, n int, scroll bool) {
	pg := s.page()
	n = min(n, bottom-at+1, len(pg.lines)-at)
	if n <= 0 {
		return
	}
	if scroll && at == 0 && s.alt == nil {
		s.flush(n)
	}
	if len(pg.lines) > bottom+1 {
		copy(pg.lines[at:], pg.lines[at+n:bottom+1])
		clear(pg.lines[bottom+1-n : bottom+1])
		return
	}
	if at == 0 { // the common case, without moving a thousand lines
		clear(pg.lines[:n])
		pg.lines = pg.lines[n:]
	} else {
		copy(pg.lines[at:], pg.lines[at+n:])
		clear(pg.lines[len(pg.lines)-n:])
		pg.lines = pg.lines[:len(pg.lines)-n]
	}
	if len(pg.lines) == 0 {
		pg.lines = make([]*line, 1)
	}
}

// shiftDown inserts n blank lines at row at; lines that pass bottom are lost.
func (s *Screen) shiftDown(at, bottom, n int) {
	pg := s.page()
	n = min(n, bottom-at+1)
	if n <= 0 || at >= len(pg.lines) {
		return
	}
	for range min(n, bottom+1-len(pg.lines)) {
		pg.lines = append(pg.lines, nil)
	}
	end := min(len(pg.lines), bottom+1)
	copy(pg.lines[at+n:end], pg.lines[at:])
	clear(pg.lines[at:min(at+n, end)])
}

// altText returns the text of the alternate screen.
func (s *Screen) altText() string {
	var text []byte
	for i := range s.alt.lines {
		start := len(text)
		text = s.alt.lines[i].appendTo(text, &s.marks)
		text = append(text[:start+len(bytes.TrimRight(text[start:], " "))], '\n')
	}
	return string(bytes.TrimRight(text, "\n"))
}
