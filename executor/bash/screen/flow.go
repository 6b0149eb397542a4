package screen

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"
)

// appendFlow appends text that only flows to hist.
func (s *Screen) appendFlow(b []byte) {
	for len(b) > 0 {
		n := min(len(b), s.compactAt-len(s.hist))
		s.appendLines(b[:n])
		b = b[n:]
		if len(s.hist) >= s.compactAt {
			s.compact()
		}
	}
}

// appendLines is appendFlow between two compactions.
func (s *Screen) appendLines(b []byte) {
	if len(s.hist)-s.lineStart+s.cut+len(b) <= maxLine { // no line can get too long
		s.hist = append(s.hist, b...)
		if bytes.IndexByte(b, '\n') >= 0 {
			s.lineStart = len(s.hist) - len(b) + bytes.LastIndexByte(b, '\n') + 1
		}
		return
	}
	for len(b) > 0 {
		part, rest, ended := bytes.Cut(b, newline)
		for len(part) > 0 {
			n := min(len(part), s.lineStart+2*maxLine-len(s.hist))
			s.hist = append(s.hist, part[:n]...)
			part = part[n:]
			if len(s.hist)-s.lineStart >= 2*maxLine {
				s.cutMiddle()
			}
		}
		if ended {
			s.endLine()
		}
		b = rest
	}
}

// half is the length of the beginning and of the end that a clipped line keeps, with
// room for the note between them within maxLine.
const half = (maxLine - 64) / 2

// cutMiddle takes the middle out of an unfinished line of twice the length that
// will be shown of it.
func (s *Screen) cutMiddle() {
	from, to := s.lineStart+half, len(s.hist)-half
	s.cut += to - from
	s.hist = slices.Delete(s.hist, from, to)
}

// endLine ends the unfinished line, clipped where it is too long.
func (s *Screen) endLine() {
	if s.overlong() {
		s.hist = clip(s.hist, s.lineStart, s.cut)
	}
	s.hist = append(s.hist, '\n')
	s.lineStart = len(s.hist)
	s.cut = 0
}

// overlong reports whether the unfinished line is too long to be shown whole.
func (s *Screen) overlong() bool {
	return s.cut > 0 || len(s.hist)-s.lineStart > maxLine
}

// clip replaces the middle of the line in b from start on by a note that counts
// the bytes left out, cut of which were left out before, half a line behind its
// start. Runes at the borders stay whole or go.
func clip(b []byte, start, cut int) []byte {
	line := b[start:]
	head := line[:min(half, len(line))]
	tail := bytes.Clone(line[max(len(head), len(line)-half):])
	omitted := cut + len(line) - len(head) - len(tail)
	rest := len(incomplete(head))
	head = head[:len(head)-rest]
	omitted += rest
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
		omitted++
	}
	b = append(b[:start+len(head)], "[... "...)
	b = strconv.AppendInt(b, int64(omitted), 10)
	b = append(b, " bytes omitted ...]"...)
	return append(b, tail...)
}

// compact drops the oldest lines that Text would not show.
func (s *Screen) compact() {
	whole := s.hist[:s.lineStart]
	s.drop(max(lastBytes(whole, maxKept), lastLines(whole, trimAbove)))
	s.compactAt = len(s.hist) + max(minCompact, len(s.hist)/3)
}

// drop removes the lines of hist before start and counts them.
func (s *Screen) drop(start int) {
	if start == 0 {
		return
	}
	s.dropped += bytes.Count(s.hist[:start], newline)
	s.hist = append(s.hist[:0], s.hist[start:]...)
	s.lineStart -= start
	s.origin = max(0, s.origin-start)
}

// forget drops all text of the main screen without counting it.
func (s *Screen) forget() {
	s.hist = s.hist[:0]
	if cap(s.hist) > keepBuffer {
		s.hist = nil
	}
	s.lineStart, s.origin, s.compactAt, s.cut, s.cr = 0, 0, minCompact, 0, false
	s.main.savedRow, s.main.savedCol = 0, 0
	s.unpull()
}

// unpull leaves main without text: output flows again, unless a scroll region
// of the main screen needs columns and rows.
func (s *Screen) unpull() {
	m := &s.main
	m.lines, m.row, m.col = nil, 0, 0
	s.debt, s.grown = 0, 0
	if m.bottom > 0 {
		m.lines = make([]*line, 1)
	}
	if s.alt == nil {
		s.marks = clusters{}
	}
}

// pull takes the last line of the main screen out of hist, and with it at least
// above lines over the cursor as far as there are any within its reach. On the
// alternate screen it does nothing.
func (s *Screen) pull(above int) {
	if s.alt != nil {
		return
	}
	m := &s.main
	if m.lines == nil {
		s.pullLast()
	}
	want := above - m.row
	if want <= 0 {
		return
	}
	// At least as many again, so that a climb line by line costs no more than
	// one in a single leap.
	want = min(max(want, len(m.lines)), s.rows-len(m.lines))
	s.pullAbove(want)
}

// pullLast pulls the unfinished line, or as much of its end as has columns.
func (s *Screen) pullLast() {
	raw := s.hist[s.lineStart:]
	if len(raw) > maxColumns {
		raw = raw[len(raw)-maxColumns/2:]
		for i := 0; i < utf8.UTFMax-1 && !utf8.RuneStart(raw[0]); i++ {
			raw = raw[1:]
		}
		s.origin = len(s.hist) - len(raw)
	}
	s.hist = s.hist[:len(s.hist)-len(raw)]
	l := newLine(bytes.TrimSuffix(raw, []byte{'\r'}), &s.marks)
	m := &s.main
	m.lines = []*line{l}
	m.row, m.col = 0, l.width()
	if s.cr {
		m.col = 0
	}
	s.cr = false
	s.debt = len(raw) + lineWeight
	s.grown = l.size()
}

// pullAbove pulls n lines that end before those of main, or as many as are in
// reach.
func (s *Screen) pullAbove(n int) {
	if n <= 0 || len(s.hist) <= s.origin {
		return
	}
	pulled := make([]*line, n, n+len(s.main.lines))
	end := len(s.hist)
	for n > 0 && end > s.origin {
		begin := s.origin + bytes.LastIndexByte(s.hist[s.origin:end-1], '\n') + 1
		n--
		pulled[n] = newLine(bytes.TrimSuffix(s.hist[begin:end-1], []byte{'\r'}), &s.marks)
		s.grown += pulled[n].size()
		end = begin
	}
	pulled = pulled[n:]
	s.debt += len(s.hist) - end + lineWeight*len(pulled)
	s.hist = s.hist[:end]
	s.lineStart = min(s.lineStart, end)
	s.main.row += len(pulled)
	s.main.lines = append(pulled, s.main.lines...)
	s.payGrowth()
}

// pullScreen pulls all lines in reach, so that the first line of main is the
// first row of the screen. Lines above it never come back to the screen.
func (s *Screen) pullScreen() {
	if s.alt != nil {
		return
	}
	s.pull(s.rows)
	s.origin = len(s.hist)
}

// flush gives the first n lines of main back to hist, out of reach.
func (s *Screen) flush(n int) {
	s.giveBack(n)
	s.origin = len(s.hist)
}

// giveBack gives the first n lines of main back to hist.
func (s *Screen) giveBack(n int) {
	var buf []byte
	for _, l := range s.main.lines[:n] {
		buf = l.appendWhole(buf[:0], &s.marks)
		s.appendFlow(append(buf, '\n'))
	}
}

// merge gives all lines of main back to hist, and output flows again: behind
// the last of them, which has ended or goes on.
func (s *Screen) merge(ended bool) {
	last := len(s.main.lines) - 1
	final := s.main.lines[last]
	s.giveBack(last)
	var buf []byte
	if ended {
		buf = final.appendWhole(buf, &s.marks)
	} else {
		buf = final.appendTo(buf, &s.marks)
	}
	s.appendFlow(buf)
	s.unpull()
}

// payGrowth keeps the lines of main within bounds: when they may have grown too
// much they are counted, and the first ones up to the cursor go out of reach.
func (s *Screen) payGrowth() {
	if s.grown < maxKept || s.alt != nil {
		return
	}
	m := &s.main
	s.grown = 0
	for i := range m.lines {
		s.grown += m.lines[i].size()
	}
	n := 0
	for ; n < min(m.row, len(m.lines)-1) && s.grown > maxKept/2; n++ {
		s.grown -= m.lines[n].size()
	}
	if n == 0 {
		return
	}
	s.flush(n)
	m.lines = slices.Clone(m.lines[n:])
	m.row -= n
	m.savedRow = max(0, m.savedRow-n)
}

// visibleStart returns the offset in hist at which the first row of the main
// screen begins.
func (s *Screen) visibleStart() int {
	if s.origin >= s.lineStart {
		return s.origin
	}
	above := s.rows - max(len(s.main.lines), 1)
	return s.origin + lastLines(s.hist[s.origin:s.lineStart], above)
}

// clear empties the main screen and begins it anew at its top left; the
// visible lines are counted as dropped.
func (s *Screen) clear() {
	start := s.visibleStart()
	lost := bytes.Count(s.hist[start:], newline)
	if s.main.lines == nil && len(s.hist) > max(s.lineStart, start) {
		lost++
	}
	for i, l := range slices.Backward(s.main.lines) {
		if !l.isBlank() {
			lost += i + 1
			break
		}
	}
	s.dropped += lost
	s.hist = s.hist[:start]
	if s.lineStart < start { // the beginning of a line that is too long to be cleared whole
		s.endLine()
	}
	s.lineStart, s.origin, s.cut, s.cr = len(s.hist), len(s.hist), 0, false
	s.unpull()
}

// dropScrolledOff drops the lines that left the main screen at its top.
func (s *Screen) dropScrolledOff() {
	s.pullScreen()
	s.drop(s.lineStart)
}

// contents returns the text of the main screen as raw lines, and how many were
// dropped before them. It is hist itself where that is all; else a copy.
func (s *Screen) contents() (raw []byte, dropped int) {
	if s.main.lines == nil && !s.overlong() {
		return s.trimUnfinished(), s.dropped
	}
	t := *s
	t.hist = slices.Clone(s.hist)
	t.marks = clusters{list: slices.Clone(s.marks.list)}
	if len(t.bad) > 0 {
		t.main.lines = slices.Clone(s.main.lines)
		t.main.lines[t.main.row] = t.main.current().clone()
		t.endRune()
	}
	if t.main.lines != nil {
		t.merge(false)
	}
	t.hist = t.trimUnfinished()
	t.endLine()
	return t.hist, t.dropped
}

// trimUnfinished returns hist without blanks at the end of its last line: they
// are those of a prompt, or of a line of which the rest is still to come.
func (s *Screen) trimUnfinished() []byte {
	return s.hist[:s.lineStart+len(bytes.TrimRight(s.hist[s.lineStart:], " \t\r"))]
}

// render turns raw lines into text. Of more than maxKept bytes the oldest lines
// are lost, and counted.
func render(raw []byte) (text []byte, lost int) {
	text = make([]byte, 0, len(raw))
	for len(raw) > 0 {
		var l []byte
		var ended bool
		l, raw, ended = bytes.Cut(raw, newline)
		text = renderLine(text, l)
		if ended {
			text = append(text, '\n')
		}
		if len(text) > 2*maxKept {
			text, lost = dropOldest(text, lost)
		}
	}
	text = bytes.TrimRight(text, "\n")
	if len(text) > maxKept {
		text, lost = dropOldest(text, lost)
	}
	return text, lost
}

// dropOldest drops the lines of text before its last maxKept bytes and adds
// their number to lost.
func dropOldest(text []byte, lost int) ([]byte, int) {
	start := lastBytes(text, maxKept)
	lost += bytes.Count(text[:start], newline)
	return append(text[:0], text[start:]...), lost
}

// renderLine appends a raw line to dst as it is seen: each byte of bad UTF-8 as
// U+FFFD, no control characters of C1, and no middle where it is too long.
func renderLine(dst, raw []byte) []byte {
	raw = bytes.TrimSuffix(raw, []byte{'\r'})
	if asciiLen(raw) == len(raw) {
		return append(dst, raw...)
	}
	start := len(dst)
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		raw = raw[size:]
		if r < 0x80 || r >= 0xa0 {
			dst = utf8.AppendRune(dst, r)
		}
	}
	if len(dst)-start > maxLine {
		dst = clip(dst, start, 0)
	}
	return dst
}

// repeatFlow writes the last rune of the unfinished line n more times.
func (s *Screen) repeatFlow(n int) {
	line := s.hist[s.lineStart:]
	r, size := utf8.DecodeLastRune(line)
	if size == 0 || r == '\t' || r == '\r' || r == utf8.RuneError {
		return
	}
	s.appendFlow(bytes.Repeat(line[len(line)-size:], n))
}
