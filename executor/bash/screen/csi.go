package screen

import "bytes"

// move carries out a cursor movement.
func (s *Screen) move(c byte, n int) {
	switch c {
	case 'A', 'F':
		s.up(n)
	case 'B', 'E', 'e':
		s.down(n)
	case 'd', 'H', 'f':
		s.pullScreen()
		s.keepColumn()
		s.page().row = min(n, s.rows) - 1
	default:
		s.pull(0)
	}
	pg := s.page()
	switch c {
	case 'C', 'a':
		pg.toColumn(max(pg.col, min(pg.col+n, s.rightmost())))
	case 'D':
		pg.left(n)
	case 'G', '`':
		pg.toColumn(min(n-1, s.rightmost()))
	case 'H', 'f':
		pg.toColumn(min(s.parser.param(1, 1)-1, s.rightmost()))
	case 'E', 'F':
		pg.toColumn(0)
	case 'I':
		s.tab(n)
	case 'Z':
		pg.toColumn((pg.col+tabStop-1)/tabStop*tabStop - n*tabStop)
	default:
		pg.pending = false
	}
}

// up moves the cursor up, not out of the scroll region it is in.
func (s *Screen) up(n int) {
	s.pull(n)
	pg := s.page()
	limit := 0
	if pg.row >= pg.top {
		limit = pg.top
	}
	pg.row = max(pg.row-n, limit)
	s.keepColumn()
}

// down moves the cursor down, not out of the scroll region it is in.
func (s *Screen) down(n int) {
	s.pull(0)
	pg := s.page()
	if pg.row+n >= len(pg.lines) {
		s.pullScreen()
	}
	limit := s.rows - 1
	if pg.row <= s.lastRow() {
		limit = s.lastRow()
	}
	pg.row = min(pg.row+n, limit)
	s.keepColumn()
}

// tab moves the cursor n tab stops to the right.
func (s *Screen) tab(n int) {
	s.pull(0)
	pg := s.page()
	limit := max(maxColumns, pg.col)
	if s.alt != nil {
		limit = s.cols - 1
	}
	pg.toColumn(min(pg.col-pg.col%tabStop+n*tabStop, limit))
}

// save keeps the position of the cursor.
func (s *Screen) save() {
	s.pullScreen()
	pg := s.page()
	pg.savedRow, pg.savedCol = pg.row, pg.col
}

// restore puts the cursor where it was saved.
func (s *Screen) restore() {
	s.pullScreen()
	pg := s.page()
	pg.row = min(pg.savedRow, s.rows-1)
	pg.toColumn(min(pg.savedCol, s.rightmost()))
}

// setRegion sets the rows, counted from one, that scroll, and puts the cursor
// at the top left.
func (s *Screen) setRegion(top, bottom int) {
	bottom = min(bottom, s.rows)
	if top >= bottom {
		return
	}
	s.pullScreen()
	pg := s.page()
	pg.top, pg.bottom = top-1, bottom-1
	if top == 1 && bottom == s.rows {
		pg.top, pg.bottom = 0, 0
	}
	pg.row = 0
	pg.toColumn(0)
}

// setAlt switches to a blank alternate screen, or back to the main screen.
func (s *Screen) setAlt(on bool) {
	switch {
	case on && s.alt == nil:
		s.alt = &page{}
	case !on:
		s.alt = nil
	}
}

// eraseDisplay erases from the cursor on (0), up to the cursor (1), all (2) or
// the lines that scrolled off (3).
func (s *Screen) eraseDisplay(what int) {
	switch {
	case what == 0 && s.flowing():
		s.eraseLine(0)
	case what == 0:
		s.eraseBelow()
	case what == 1:
		s.pullScreen()
		pg := s.page()
		pg.current().blank(0, pg.col+1)
		clear(pg.lines[:pg.row])
	case what == 2 && s.alt != nil:
		s.alt.lines = nil
	case what == 2:
		s.clear()
	case what == 3 && s.alt == nil:
		s.dropScrolledOff()
	}
}

// eraseBelow erases from the cursor on. At the top left, where a program has
// just put the cursor, this clears the screen: so do the terminals whose
// "clear" has no code of its own.
func (s *Screen) eraseBelow() {
	pg := s.page()
	if s.alt == nil && s.parser.home && pg.row == 0 && pg.col == 0 {
		s.clear()
		return
	}
	pg.current().truncate(pg.col)
	clear(pg.lines[pg.row+1:])
	pg.lines = pg.lines[:pg.row+1]
}

// eraseLine erases from the cursor to the end of the line (0), from its start
// to the cursor (1), or all of it (2).
func (s *Screen) eraseLine(what int) {
	if s.flowing() && what != 1 {
		if s.cr { // as progress bars do: the line is empty and text flows on
			s.hist = s.hist[:s.lineStart]
			s.origin = min(s.origin, s.lineStart)
			s.cut, s.cr = 0, false
			return
		}
		if what == 0 {
			return
		}
	}
	s.pull(0)
	pg := s.page()
	switch what {
	case 0:
		pg.current().truncate(pg.col)
	case 1:
		pg.current().blank(0, pg.col+1)
	case 2:
		pg.current().truncate(0)
	}
}

// shiftLines inserts (L) and deletes (M) lines at the cursor, and scrolls the
// region up (S) and down (T).
func (s *Screen) shiftLines(c byte, n int) {
	s.pullScreen()
	s.keepColumn()
	pg := s.page()
	inside := pg.row >= pg.top && pg.row <= s.lastRow()
	switch {
	case c == 'S':
		s.shiftUp(pg.top, s.lastRow(), n, true)
	case c == 'T':
		s.shiftDown(pg.top, s.lastRow(), n)
	case !inside:
	case c == 'L':
		s.shiftDown(pg.row, s.lastRow(), n)
	case c == 'M':
		s.shiftUp(pg.row, s.lastRow(), n, false)
	}
}

// shiftColumns inserts (@), deletes (P) and erases (X) columns at the cursor.
// Of a line wider than the screen only the screen's width moves, as in a
// terminal, where the rest is in other rows.
func (s *Screen) shiftColumns(c byte, n int) {
	s.pull(0)
	pg := s.page()
	l := pg.current()
	before := l.size()
	edge := (pg.col/s.cols + 1) * s.cols
	switch c {
	case '@':
		l.insert(pg.col, n, edge)
	case 'P':
		l.remove(pg.col, n, edge)
	case 'X':
		l.blank(pg.col, min(pg.col+n, max(edge, l.width())))
	}
	s.grown += max(0, l.size()-before)
	s.payGrowth()
}

// repeat writes the rune left of the cursor n more times, at most as many as
// the screen is wide.
func (s *Screen) repeat(n int) {
	n = min(n, s.cols)
	if s.flowing() {
		s.repeatFlow(n)
		return
	}
	pg := s.page()
	if s.alt != nil { // it does not wrap
		n = min(n, s.cols-pg.col)
	}
	l := pg.current()
	col := pg.col - 1
	if pg.pending || col < 0 || col >= l.width() {
		return
	}
	if l.cells == nil {
		s.print(bytes.Repeat(l.text[col:col+1], n))
		return
	}
	if c := l.cells[l.head(col)]; c != tab && c != tabTail {
		s.print(bytes.Repeat(s.marks.append(nil, c), n))
	}
}
