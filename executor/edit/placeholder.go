package edit

import (
	"slices"
	"strings"
	"unicode"

	"github.com/actiond/actiond/executor/internal/linediff"
	"github.com/actiond/actiond/internal/lazyregexp"
)

// maxRemark is the length in bytes of the longest line that may stand for other lines.
const maxRemark = 160

var (
	// commentMarks matches a line that is a comment in some language.
	commentMarks = lazyregexp.New(`^\{*(?:#+|//+!?|--+|;+|%+|(?:[!*]|::|(?i:rem|dnl))\s|/\*+|<?!--+|<%--|\(\*+|\{-+|@\*|"""|'''|["']\s)` +
		`\s*(.*?)\s*(?:\*+[/)@]|-+%?[>}]|"""|''')?\}*$`)
	// codeMarks matches lines that only begin like one.
	codeMarks = lazyregexp.New(`^(?:#[\[!]|#\s*(?:include|define|undef|if|ifdef|ifndef|elif|else|endif|pragma|error|warning|import|line|region|endregion)\b` +
		`|--\w|"[^"]*"[^"]|'[^']*'[^'])`)
	keptWords = lazyregexp.New(`^(?:` +
		`(?:the )?(?:rest|remainder) of(?: .{1,60})?` +
		`|(?:the )?(?:rest|remainder) (?:(?:is|stays?|remains?) )?(?:unchanged|the same|as is|as before)` +
		`|no changes?(?: .{1,60})?` +
		`|(?:keep |leave )?(?:the )?(?:existing|unchanged|remaining|previous|other|same)` +
		`(?: (?:code|lines?|content|text|methods?|functions?|imports?|implementation|logic|file|class|classes|fields|tests?))?` +
		`(?: (?:here|above|below|unchanged|stays?|remains?|as is|as before))*` +
		`|(?:code |lines? |content )?(?:is |are )?(?:unchanged|omitted)(?: (?:code|lines?|here|above|below))?` +
		`)$`)
	ellipses = strings.NewReplacer("…", "...", "⋯", "...", "⋮", "...")
)

// remark is a line that may stand for other lines: a comment, or words between dots.
type remark struct {
	words   string // without marks, dots and brackets
	comment bool
	quoted  bool // the comment is in quotes, as a docstring is
	begins  bool // with dots
	dotted  bool // has dots at an end; in a comment, brackets count too
}

func remarkOf(line string) (r remark) {
	inner := ellipses.Replace(trimSpace(line))
	if inner == "" || len(inner) > maxRemark || !strings.ContainsAny(inner[:1], "{#/-;%!*:<(@\"'[.RrDd") && !strings.Contains(inner, "...") {
		return r
	}
	if found := commentMarks().FindStringSubmatch(inner); found != nil && !codeMarks().MatchString(inner) {
		r.comment, r.quoted, inner = true, strings.ContainsAny(inner[:1], `"'`), found[1]
	}
	if framed := strings.TrimRight(inner, "-=*# \t"); framed != inner {
		inner = strings.TrimLeft(framed, "-=* \t")
	}
	r.words = strings.Join(strings.Fields(strings.Trim(inner, ".()[]<> \t")), " ")
	worded := strings.ContainsFunc(r.words, unicode.IsLetter)
	open, end := strings.IndexAny(inner, "([<"), strings.LastIndexAny(inner, ")]>")
	bracketed := open == 0 && end == len(inner)-1
	if bracketed {
		inner = strings.TrimSpace(inner[1:end])
	}
	r.begins = strings.HasPrefix(inner, "...") || r.words == "" && strings.HasPrefix(inner, "..")
	r.dotted = r.begins || strings.HasSuffix(inner, "...")
	switch {
	case r.words == "":
	case !worded:
		r.dotted = false
	case r.comment:
		r.dotted = r.dotted || bracketed
	case r.dotted: // "...props," and "f(a, b..." are code
		spaced := strings.Contains(strings.Trim(inner, "."), " ")
		r.dotted = spaced && !strings.ContainsAny(inner, "=;:{}*&|") && strings.Count(inner, "(") == strings.Count(inner, ")")
	}
	return r
}

// keeps reports whether a remark says that it is a placeholder for lines that stay. It must look like a comment or begin
// with dots, so that prose with the word "unchanged" does not count.
func (r remark) keeps() bool {
	if r.words == "" {
		return r.comment && r.begins // "# ..."; a bare "..." is Python code
	}
	return (r.comment && !r.quoted || r.begins) && keptWords().MatchString(strings.ToLower(r.words))
}

// isPlaceholder is [remark.keeps] for a line.
func isPlaceholder(line string) bool { return remarkOf(line).keeps() }

// rewriting compares an old text with the one that is to replace it, line by line, without blank lines and without
// white space around lines.
type rewriting struct {
	was, now     []string
	wasAt, nowAt []int // the numbers of the lines, blank ones counted
	remarks      []remark
	left         map[string]int // how many more of a line was has than now
	first, last  map[string]int // positions in was
	prev, next   []int          // positions in now of the lines around each that are not new remarks; -1 and len at the ends
}

func newRewriting(old, text string) rewriting {
	w := rewriting{left: map[string]int{}, first: map[string]int{}, last: map[string]int{}}
	w.was, w.wasAt = filled(old)
	w.now, w.nowAt = filled(text)
	for i, line := range w.was {
		w.left[line]++
		w.last[line] = i
		if _, found := w.first[line]; !found {
			w.first[line] = i
		}
	}
	w.remarks, w.prev, w.next = make([]remark, len(w.now)), make([]int, len(w.now)), make([]int, len(w.now))
	for i, line := range w.now {
		w.left[line]--
		w.remarks[i] = remarkOf(line)
	}
	isText := func(i int) bool {
		r := w.remarks[i]
		return !r.comment && !r.dotted || w.left[w.now[i]] >= 0
	}
	for around, i := -1, 0; i < len(w.now); i++ {
		if w.prev[i] = around; isText(i) {
			around = i
		}
	}
	for around, i := len(w.now), len(w.now)-1; i >= 0; i-- {
		if w.next[i] = around; isText(i) {
			around = i
		}
	}
	return w
}

// filled returns the lines of a text that are not blank, and their numbers.
func filled(text string) (lines []string, at []int) {
	n := 0
	for line := range strings.Lines(lineFeeds(text)) {
		if line = trimSpace(line); line != "" {
			lines, at = append(lines, line), append(at, n)
		}
		n++
	}
	return lines, at
}

// between reports whether the lines around a line of now can only be neighbours in was, so that it stands for no line.
// blank is how many more blank lines was has between them.
func (w rewriting) between(i int) (neighbours bool, blank int) {
	prev, next := w.prev[i], w.next[i]
	first, last, found := -1, len(w.was), true
	if prev >= 0 {
		if first, found = w.first[w.now[prev]]; !found {
			return false, 0
		}
	}
	if next < len(w.now) {
		last, found = w.last[w.now[next]]
	}
	if found && prev >= 0 && next < len(w.now) && first+1 == last {
		blank = w.wasAt[last] - w.wasAt[first] - (w.nowAt[next] - w.nowAt[prev]) + next - prev - 1
	}
	return found && first+1 == last, blank
}

// keepsAll reports whether now has all lines of was.
func (w rewriting) keepsAll() bool {
	for _, more := range w.left {
		if more > 0 {
			return false
		}
	}
	return true
}

// lossy returns the first line of now that may stand for lines of was that now does not have, "" without one: a new
// remark where more lines of code go than come. Other comments than dotted ones count only if comments is set.
func (w rewriting) lossy(comments bool) string {
	suspect := make([]bool, len(w.now))
	for i, line := range w.now {
		r := w.remarks[i]
		if !r.dotted && !(comments && r.comment && r.words != "") || w.left[line] >= 0 && !(r.dotted && r.keeps()) {
			continue
		}
		body := !comments && !r.comment && r.words == "" && w.prev[i] >= 0 && strings.HasSuffix(w.now[w.prev[i]], ":") // of a Python function
		neighbours, _ := w.between(i)
		suspect[i] = !body && !neighbours
	}
	if !slices.Contains(suspect, true) || len(w.was) == 0 {
		return ""
	}
	code := func(remarks []remark) (n int) {
		for _, r := range remarks {
			if !r.comment {
				n++
			}
		}
		return n
	}
	hunks := linediff.Shortest(strings.Join(w.was, "\n"), strings.Join(w.now, "\n"))
	for _, h := range append(hunks, linediff.Hunk{A1: len(w.was), B1: len(w.now)}) {
		gone, dotted, first, suspects := -code(w.remarks[h.B0:h.B1]), false, 0, 0
		for _, line := range w.was[h.A0:h.A1] {
			gone += code([]remark{remarkOf(line)})
		}
		for i := h.B1 - 1; i >= h.B0; i-- {
			if !suspect[i] {
				continue
			}
			gone += code(w.remarks[i : i+1]) // dots alone come in the place of nothing
			dotted, first, suspects = dotted || w.remarks[i].dotted, i, suspects+1
		}
		if suspects > 0 && (gone > suspects || dotted && gone > 0) {
			return w.now[first]
		}
	}
	return ""
}
