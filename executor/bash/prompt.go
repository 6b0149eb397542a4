package bash

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// show puts into out the next thing to show: output up to the next command, the
// beginning of a command, or the prompt. The caller holds mu.
func (a *Attachment) show() {
	end := a.s.log.End()
	i := slices.IndexFunc(a.s.notes, func(n note) bool { return n.seq > a.seen })
	if i >= 0 {
		end = min(end, max(a.s.notes[i].at, a.next))
	}
	switch {
	case a.next < end:
		c := a.s.read(a.next, end, make([]byte, chunkSize))
		a.next = c.Offset + int64(len(c.Data))
		a.erase()
		if c.Missed > 0 {
			a.out = fmt.Appendf(a.out, "\r\n[%d bytes are not shown]\r\n", c.Missed)
		}
		a.out = append(a.out, c.Data...)
		a.fresh = bytes.HasSuffix(c.Data, []byte("\n"))
	case i >= 0:
		n := a.s.notes[i]
		a.seen = n.seq
		if n.by == a {
			a.show() // what comes behind it
			return
		}
		a.erase()
		a.freshLine()
		a.out = append(a.out, a.promptIn(n.dir)+printable(n.text)+"\r\n"...)
	case a.types && !a.prompted && !a.submitting && !a.left && !a.s.closed && !a.s.busy():
		a.freshLine()
		a.prompted, a.fresh = true, false
		a.draw()
		a.s.changed() // what was pasted may go on
	}
}

// erase takes the prompt away. The caller holds mu.
func (a *Attachment) erase() {
	if a.prompted {
		a.toFirstRow()
		a.prompted, a.fresh = false, true
	}
}

// toFirstRow goes to the first row of the prompt and clears all rows of it. The
// caller holds mu.
func (a *Attachment) toFirstRow() {
	if a.row > 0 {
		a.out = fmt.Appendf(a.out, "\x1b[%dA", a.row)
	}
	if a.below {
		a.out = append(a.out, "\r\x1b[J"...)
	} else {
		a.out = append(a.out, "\r\x1b[K"...)
	}
	a.row, a.below, a.full = 0, false, false
}

// freshLine makes sure that a line begins. The caller holds mu.
func (a *Attachment) freshLine() {
	if !a.fresh {
		a.out = append(a.out, "\r\n"...)
		a.fresh = true
	}
}

// prompt returns the text before the line and the index of the cursor in both.
// The caller holds mu.
func (a *Attachment) prompt() (text []rune, pos int) {
	prompt := "> "
	switch {
	case a.line.searching && a.line.missed:
		prompt = "(failed search)`" + string(a.line.search) + "': "
	case a.line.searching:
		prompt = "(search)`" + string(a.line.search) + "': "
	case a.before == "":
		prompt = a.promptIn(a.s.dir)
	}
	text = []rune(prompt)
	return append(text, a.line.text...), len(text) + a.line.pos
}

// draw draws the prompt and the line anew, where they are on the terminal. Of one
// that has more rows than the terminal, those around the cursor are shown: a
// terminal cannot go back to a row that has left it. The caller holds mu.
func (a *Attachment) draw() {
	if len(a.out) > maxEcho {
		return
	}
	text, pos := a.prompt()
	l := layOut(text, pos, a.cols)
	first, last := 0, l.endRow
	if a.rows > 0 && last >= a.rows {
		first = max(0, min(l.row-a.rows/2, last-a.rows+1))
		last = first + a.rows - 1
	}
	end := len(text)
	if last < l.endRow {
		end = l.starts[last+1]
	}
	a.toFirstRow()
	a.out = append(a.out, string(text[l.starts[first]:end])...)
	switch {
	case last == l.endRow && l.endCol == 0 && last > 0:
		a.out = append(a.out, " \r"...) // the terminal wraps only when something comes
	case last == l.row && last == l.endRow && l.endCol-l.col > 0:
		a.out = fmt.Appendf(a.out, "\x1b[%dD", l.endCol-l.col)
	}
	if last > l.row || last < l.endRow {
		if last > l.row {
			a.out = fmt.Appendf(a.out, "\x1b[%dA", last-l.row)
		}
		a.out = append(a.out, '\r')
		if l.col > 0 {
			a.out = fmt.Appendf(a.out, "\x1b[%dC", l.col)
		}
	}
	a.row, a.below, a.full = l.row-first, last > first, pos == len(text) && l.col == 0 && l.row > 0
}

// say shows a message of the server on a line of its own. The caller holds mu.
func (a *Attachment) say(text string) {
	a.erase()
	a.freshLine()
	a.out = append(a.out, "["+printable(text)+"]\r\n"...)
	a.s.changed()
}

// promptIn returns the text before a command: the name that the person has for
// the sandbox, if any, and the directory.
func (a *Attachment) promptIn(dir string) string {
	sign := "$ "
	if a.s.cfg.User == nil && os.Geteuid() == 0 || a.s.cfg.User != nil && a.s.cfg.User.UID == 0 {
		sign = "# "
	}
	if a.name != "" {
		dir = a.name + ":" + dir
	}
	return strings.ReplaceAll(printable(dir), "\r\n", " ") + sign
}

// printable is text without control characters, each line but the first after the
// prompt of a continued line.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, text)
	return strings.ReplaceAll(text, "\n", "\r\n> ")
}
