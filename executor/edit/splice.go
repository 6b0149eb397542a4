package edit

import (
	"strings"
	"unicode/utf8"

	"github.com/actiond/actiond/executor/internal/linediff"
)

// change replaces view[start:end] by text, in which line ends may be of any kind.
type change struct {
	start, end int
	text       string
}

// splice applies changes, which are in ascending order and do not overlap. It returns the new bytes of the file, in
// which only the changed bytes differ, and the new view.
//
// A bare line feed of a new text becomes the line end that the file uses most; a CRLF or CR that the caller sent stays.
func (t *text) splice(changes []change) (raw []byte, view string, err error) {
	edges := make([]int, 0, 2*len(changes))
	for i, c := range changes {
		changes[i] = c.trim(t.view)
		edges = append(edges, changes[i].start, changes[i].end)
	}
	inBody, inRaw := edges, t.offsets(edges...)
	if t.crs {
		inBody = t.bodyOffsets(edges)
	}
	texts := make([]string, len(changes))
	size := len(t.raw)
	for i, c := range changes {
		texts[i] = t.ends(c.text, inBody[2*i], inBody[2*i+1])
		size += len(texts[i]) + inRaw[2*i] - inRaw[2*i+1]
	}
	raw = make([]byte, 0, size) // exact for UTF-8: a file may have many megabytes
	done := 0
	for i, text := range texts {
		if raw = append(raw, t.raw[done:inRaw[2*i]]...); t.charset.coding == nil {
			raw = append(raw, text...)
		} else {
			coded, err := t.charset.encode(text)
			if err != nil {
				return nil, "", err
			}
			raw = append(raw, coded...)
		}
		done = inRaw[2*i+1]
	}
	raw = append(raw, t.raw[done:]...)
	if t.charset.coding == nil {
		view = textOf(raw[t.mark:])
	} else {
		view = t.spliceBody(inBody, texts)
	}
	if t.exact {
		return raw, view, nil
	}
	return raw, lineFeeds(view), nil
}

// spliceBody returns the body with new texts between edges.
func (t *text) spliceBody(edges []int, texts []string) string {
	var body strings.Builder
	body.Grow(len(t.body))
	done := 0
	for i, text := range texts {
		body.WriteString(t.body[done:edges[2*i]])
		body.WriteString(text)
		done = edges[2*i+1]
	}
	body.WriteString(t.body[done:])
	return body.String()
}

// ends converts the bare line feeds of a new text to the line ends of the file. Next to a lone CR or LF of the file it
// writes the line end at the edge so that the two do not merge.
func (t *text) ends(s string, start, end int) string {
	if t.exact {
		if t.eol == "\r\n" {
			s = bareFeeds(s, t.eol)
		}
		return s
	}
	if s == "" || !t.crs {
		return s
	}
	first, last := strings.HasPrefix(s, "\n"), strings.HasSuffix(s, "\n")
	if t.eol != "\n" {
		s = bareFeeds(s, t.eol)
	}
	if first && strings.HasPrefix(s, "\n") && strings.HasSuffix(t.body[:start], "\r") {
		s = "\r" + s
	}
	if last && strings.HasSuffix(s, "\r") && strings.HasPrefix(t.body[end:], "\n") {
		s += "\n"
	}
	return s
}

// bareFeeds replaces every line feed without a CR before it.
func bareFeeds(s, eol string) string {
	if eol == "\n" {
		return s
	}
	return strings.NewReplacer("\r\n", "\r\n", "\n", eol).Replace(s)
}

// trim removes the common prefix and suffix of the new and the old text, so that those bytes stay untouched.
func (c change) trim(view string) change {
	old := view[c.start:c.end]
	n := linediff.CommonPrefix(old, c.text)
	for n > 0 && !(boundary(old, n) && boundary(c.text, n)) {
		n--
	}
	c.start, c.text, old = c.start+n, c.text[n:], old[n:]
	n = linediff.CommonSuffix(old, c.text)
	for n > 0 && !(boundary(old, len(old)-n) && boundary(c.text, len(c.text)-n)) {
		n--
	}
	c.end, c.text = c.end-n, c.text[:len(c.text)-n]
	return c
}

// boundary reports whether at is neither inside a character nor between a CR and its LF.
func boundary(s string, at int) bool {
	if at == 0 || at == len(s) {
		return true
	}
	return utf8.RuneStart(s[at]) && !(s[at-1] == '\r' && s[at] == '\n')
}
