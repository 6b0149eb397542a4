package edit

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/actiond/actiond/internal/lazyregexp"
)

const (
	beginPatch = "*** Begin Patch"
	endPatch   = "*** End Patch"
	updateFile = "*** Update File: "
	deleteFile = "*** Delete File: "
	addFile    = "*** Add File: "
	moveTo     = "*** Move to: "
	endOfFile  = "*** End of File"
)

// maxPatchedLines bounds the lines of a file that a patch changes; each takes a hundred bytes of memory.
const maxPatchedLines = 1 << 20

// maxPatchWork bounds the lines of one file that the search for hunks compares, which take a second or two.
const maxPatchWork = 200_000_000

// patchFile is the part of a patch for one file.
type patchFile struct {
	kind   string // updateFile, deleteFile or addFile
	path   string // as the patch names it
	moveTo string // "" if the file keeps its name
	added  []string
	hunks  []patchHunk
}

// verb returns the kind as errors name it.
func (f patchFile) verb() string { return strings.Trim(f.kind, "*: ") }

// patchHunk is a run of changed lines with their context.
type patchHunk struct {
	anchors []string // the lines after which to search, the outermost first
	line    int      // the line at which it begins, counted from 1, as the head of a unified diff says; 0 for none
	old     []string // context and removed lines, as the file should have them
	blank   int      // how many blank lines at the end of old may only separate it from what follows
	edits   []lineEdit
	atEnd   bool // the last of old is the last line of the file
}

// lineEdit replaces some old lines of a hunk, beginning with the line at.
type lineEdit struct {
	at, removed int
	added       []string
}

// patchReader reads a patch line by line.
type patchReader struct {
	lines []string
	at    int
}

var (
	patchFence = lazyregexp.New("^(?:```|~~~)\\w*$")
	hereDoc    = lazyregexp.New(`^(?:apply_?patch\s*)?<<-?\s*["']?(\w+)["']?$`)
	diffHead   = lazyregexp.New(`^-(\d+)(?:,\d+)? \+\d+(?:,\d+)?(?: @@|$)`)
)

// unwrap returns the lines of a patch without a code fence or a here-document around it, and without white space around
// its markers.
func unwrap(text string) []string {
	lines := strings.Split(trimSpace(lineFeeds(text)), "\n")
	for len(lines) > 1 {
		first, last := trimSpace(lines[0]), trimSpace(lines[len(lines)-1])
		word := hereDoc().FindStringSubmatch(first)
		if word == nil && !patchFence().MatchString(first) {
			break
		}
		if last == "```" || last == "~~~" || word != nil && last == word[1] {
			lines = lines[:len(lines)-1]
		}
		lines = strings.Split(trimSpace(strings.Join(lines[1:], "\n")), "\n")
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "***") || i == len(lines)-1 {
			lines[i] = trimSpaceRight(line)
		}
	}
	if last := &lines[len(lines)-1]; trimSpace(*last) == endPatch {
		*last = endPatch
	}
	return lines
}

// parsePatch parses a patch in the format of OpenAI's apply_patch without reading files. It fails with
// CodeInvalidArgument.
func parsePatch(text string) ([]patchFile, error) {
	lines := unwrap(text)
	switch {
	case strings.HasPrefix(lines[0], "--- ") || strings.HasPrefix(lines[0], "diff "):
		return nil, refuse(CodeInvalidArgument, "Invalid patch text: this is a unified diff. Begin with `%s` and `%spath` in place of the lines `---` and `+++`, "+
			"and end with `%s`.", beginPatch, updateFile, endPatch)
	case !strings.HasPrefix(lines[0], beginPatch):
		return nil, refuse(CodeInvalidArgument, "Invalid patch text: it must begin with the line `%s`.", beginPatch)
	case lines[len(lines)-1] != endPatch:
		return nil, refuse(CodeInvalidArgument, "Missing End Patch: the last line must be `%s`.", endPatch)
	}
	r := patchReader{lines: lines, at: 1}
	var files []patchFile
	for r.skipBlank(); r.line() != endPatch; r.skipBlank() {
		file, err := r.file()
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if r.at < len(lines)-1 {
		return nil, refuse(CodeInvalidArgument, "Unknown Line: %s\nNo text may follow `%s`.", lines[r.at+1], endPatch)
	}
	if len(files) == 0 {
		return nil, refuse(CodeInvalidArgument, "The patch names no file.")
	}
	return files, nil
}

// PatchedFiles returns the paths of the existing files in a patch, as it names them and as far as
// it may have them.
func PatchedFiles(patch string) (paths []string) {
	for line := range strings.Lines(patch) {
		line = strings.TrimSpace(line)
		path, ok := strings.CutPrefix(line, updateFile)
		if !ok {
			path, ok = strings.CutPrefix(line, deleteFile)
		}
		if ok && len(paths) < maxPatchFiles {
			paths = append(paths, unquoted(path))
		}
	}
	return paths
}

// line returns the next line. The last one is always endPatch.
func (r *patchReader) line() string { return r.lines[r.at] }

// skipBlank skips blank lines before another line.
func (r *patchReader) skipBlank() {
	for trimSpace(r.line()) == "" {
		r.at++
	}
}

// word consumes a line with a prefix and returns the path behind it.
func (r *patchReader) word(prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(trimSpace(r.line()), strings.TrimSpace(prefix))
	if !ok {
		return "", false
	}
	r.at++
	return unquoted(rest), true
}

// unquoted returns a path without white space and quotes around it.
func unquoted(path string) string {
	path = strings.TrimSpace(path)
	if n := len(path); n > 2 && path[0] == path[n-1] && strings.ContainsRune("\"'`", rune(path[0])) {
		return path[1 : n-1]
	}
	return path
}

func (r *patchReader) file() (patchFile, error) {
	for _, kind := range []string{updateFile, deleteFile, addFile} {
		path, ok := r.word(kind)
		if !ok {
			continue
		}
		f := patchFile{kind: kind, path: path}
		var err error
		switch {
		case path == "":
			err = refuse(CodeInvalidArgument, "`%s` needs a path.", strings.TrimSpace(kind))
		case kind == addFile:
			f.added, err = r.addedLines()
		case kind == updateFile:
			f.moveTo, ok = r.word(moveTo)
			if ok && (!filepath.IsLocal(f.moveTo) || slices.Contains(strings.Split(f.moveTo, "/"), "..")) {
				return f, refuse(CodePathNotAllowed, "Update File Error: Invalid move path '%s': must be a relative path without '..' components", f.moveTo)
			}
			f.hunks, err = r.hunks()
		}
		return f, err
	}
	return patchFile{}, refuse(CodeInvalidArgument, "Unknown Line: %s", r.line())
}

// sectionEnds reports whether a line begins another file or ends the patch.
func sectionEnds(line string) bool {
	for _, prefix := range []string{endPatch, updateFile, deleteFile, addFile} {
		if strings.HasPrefix(line, strings.TrimSuffix(prefix, " ")) {
			return true
		}
	}
	return false
}

func (r *patchReader) addedLines() ([]string, error) {
	var added []string
	blank := 0 // lines before the next one, which are not of the file if none follows
	for ; !sectionEnds(trimSpace(r.line())); r.at++ {
		line := r.line()
		if strings.HasPrefix(line, `\ `) {
			continue
		}
		if line == "" {
			blank++
			continue
		}
		text, ok := strings.CutPrefix(line, "+")
		if !ok {
			return nil, refuse(CodeInvalidArgument, "Invalid Add File Line: %s\nEvery line of a new file begins with `+`.", line)
		}
		added = append(append(added, make([]string, blank)...), text)
		blank = 0
	}
	return added, nil
}

func (r *patchReader) hunks() ([]patchHunk, error) {
	var hunks []patchHunk
	r.skipHeader()
	for !sectionEnds(r.line()) {
		h, marked := patchHunk{}, false
		for strings.HasPrefix(r.line(), "@@") && (!marked || len(h.anchors) > 0) {
			h.mark(strings.TrimPrefix(r.line(), "@@"))
			marked = true
			r.at++
		}
		if !marked && len(hunks) > 0 {
			return nil, refuse(CodeInvalidArgument, "Invalid Line:\n%s\nA stretch of changes begins with `@@`.", r.line())
		}
		if err := r.body(&h); err != nil {
			return nil, err
		}
		hunks = append(hunks, h)
	}
	return hunks, nil
}

// skipHeader skips blank lines and the file names of a unified diff before the first hunk.
func (r *patchReader) skipHeader() {
	start := r.at
	r.skipBlank()
	if strings.HasPrefix(r.line(), "--- ") && strings.HasPrefix(r.lines[r.at+1], "+++ ") {
		r.at += 2
	}
	if !strings.HasPrefix(r.line(), "@@") && !sectionEnds(r.line()) {
		r.at = start
	}
}

// mark reads the rest of a line with @@: an anchor, or the line numbers of a unified diff with or without one.
func (h *patchHunk) mark(rest string) {
	rest = strings.TrimPrefix(rest, " ")
	if head := diffHead().FindStringSubmatch(trimSpace(rest)); head != nil {
		h.line, _ = strconv.Atoi(head[1])
		rest = strings.TrimPrefix(trimSpace(rest)[len(head[0]):], " ")
	}
	rest = strings.TrimSuffix(trimSpaceRight(rest), " @@")
	if trimSpace(rest) != "" && trimSpace(rest) != "@@" {
		h.anchors = append(h.anchors, rest)
	}
}

// body reads the lines of a hunk.
func (r *patchReader) body(h *patchHunk) error {
	start := r.at
	var e *lineEdit
	for ; ; r.at++ {
		line := r.line()
		if line == endOfFile {
			h.atEnd = true
			r.at++
			return nil
		}
		if strings.HasPrefix(line, "@@") || sectionEnds(line) {
			break
		}
		if strings.HasPrefix(line, `\ `) { // "\ No newline at end of file"
			continue
		}
		if strings.HasPrefix(line, "***") {
			return refuse(CodeInvalidArgument, "Invalid Line: %s", line)
		}
		mark, text := byte(' '), ""
		if line != "" {
			mark, text = line[0], line[1:]
		}
		if mark == ' ' {
			h.old = append(h.old, text)
			if h.blank++; trimSpace(text) != "" {
				h.blank = 0
			}
			e = nil
			continue
		}
		h.blank = 0
		if mark != '+' && mark != '-' {
			return refuse(CodeInvalidArgument, "Invalid Line: %s\nLines of a change begin with a space, `+` or `-`.", line)
		}
		if e == nil {
			h.edits = append(h.edits, lineEdit{at: len(h.old)})
			e = &h.edits[len(h.edits)-1]
		}
		if mark == '+' {
			e.added = append(e.added, text)
		} else {
			h.old = append(h.old, text)
			e.removed++
		}
	}
	if r.at == start {
		return refuse(CodeInvalidArgument, "Nothing in this section: line %d of the patch.", r.at+1)
	}
	return nil
}

// patched returns the changes that hunks make to a text.
func patched(path, view string, hunks []patchHunk) ([]change, error) {
	if strings.Count(view, "\n") > maxPatchedLines {
		return nil, refuse(CodeTooLarge, "The file %s has more than %d lines, too many for a patch.", path, maxPatchedLines)
	}
	lines := strings.Split(view, "\n")
	starts := make([]int, len(lines)+1)
	for i, line := range lines {
		starts[i+1] = starts[i] + len(line) + 1
	}
	var edits []lineEdit // with lines of the file
	from := 0            // where to search for the next hunk
	search := patchSearch{left: maxPatchWork}
	search.forms[0] = lines
	for _, h := range hunks {
		at, err := h.find(path, &search, from)
		if err != nil {
			return nil, err
		}
		if search.left < 0 {
			return nil, refuse(CodeTooLarge, "To find the %d stretches of the patch in the %d lines of %s would take too long. "+
				"Copy context lines exactly from the file, or apply the patch in parts.", len(hunks), len(lines), path)
		}
		for _, e := range h.edits {
			e.at += at
			if last := len(edits) - 1; last >= 0 && edits[last].at+edits[last].removed == e.at {
				// Both become one change, so that the line feed between them belongs to one.
				edits[last].removed += e.removed
				edits[last].added = append(slices.Clone(edits[last].added), e.added...)
				continue
			}
			edits = append(edits, e)
		}
		from = at + len(h.old)
	}
	changes := make([]change, len(edits))
	for i, e := range edits {
		changes[i] = e.change(view, starts)
	}
	return changes, nil
}

// find returns the line at which a hunk begins. Blank lines at its end count as context if the file has them.
func (h *patchHunk) find(path string, s *patchSearch, from int) (int, error) {
	if h.blank == len(h.old) {
		h.old, h.blank = nil, 0
	}
	at, err := h.findOld(path, s, from)
	if err == nil || h.blank == 0 {
		return at, err
	}
	shorter := *h
	shorter.old, shorter.blank = h.old[:len(h.old)-h.blank], 0
	if at, again := shorter.findOld(path, s, from); again == nil {
		*h = shorter
		return at, nil
	}
	return 0, err
}

func (h *patchHunk) findOld(path string, s *patchSearch, from int) (int, error) {
	lines := s.forms[0]
	anchored, missing := h.seek(s, from)
	end, empty := len(lines), 0
	if lines[end-1] == "" {
		empty = 1 // the empty line after a final line end can be the last line of a hunk; most patches omit it
	}
	notFound := func() error {
		return refuse(CodeNoMatch, "The line `@@ %s` of the patch does not occur in %s after line %d, and the lines below it do not occur exactly once.%s",
			missing, path, from, hint(strings.Join(lines, "\n"), missing))
	}
	switch {
	case len(h.old) == 0 && h.atEnd:
		return end - empty, nil
	case len(h.old) == 0 && missing != "":
		return 0, notFound()
	case len(h.old) == 0:
		return max(anchored, min(h.line, end-empty)), nil
	}
	for at := end - len(h.old); h.atEnd && at >= max(from, end-empty-len(h.old)); at-- {
		if s.find(at, at+len(h.old), h.old) >= 0 {
			return at, nil
		}
	}
	if at := h.line - 1; at >= anchored && at+len(h.old) <= end && s.find(at, at+len(h.old), h.old) >= 0 {
		return at, nil
	}
	at := s.find(anchored, end, h.old)
	if sure := missing == "" && (h.line == 0 || len(h.anchors) > 0); at >= 0 && !sure && s.find(at+1, end, h.old) >= 0 {
		if missing == "" {
			return 0, refuse(CodeMultipleMatches, "The lines of the patch at line %d occur more than once in %s. Add context lines around them.", h.line, path)
		}
		return 0, notFound()
	}
	if at >= 0 {
		return at, nil
	}
	what := "Invalid Context"
	if h.atEnd {
		what = "Invalid EOF Context"
	}
	context := strings.Join(h.old, "\n")
	return 0, refuse(CodeNoMatch, "%s %d:\n%s\nThese lines of the patch do not occur in %s after line %d.%s",
		what, anchored, context, path, anchored, hint(strings.Join(lines, "\n"), context))
}

// seek returns the line after which the anchors let a hunk begin, and the first anchor that does not occur. An anchor
// above the current line keeps the position, unless another anchor stands before it.
func (h *patchHunk) seek(s *patchSearch, from int) (at int, missing string) {
	lines := s.forms[0]
	for i, anchor := range h.anchors {
		want := []string{anchor}
		if i == 0 && s.find(0, from, want) >= 0 {
			continue
		}
		found := s.find(from, len(lines), want)
		if found < 0 {
			found = s.onlyPrefixed(from, trimSpace(anchor))
		}
		if found < 0 {
			return from, anchor
		}
		from = found + 1
	}
	return from, ""
}

// onlyPrefixed returns the only line from a position on that begins with a text, white space aside, whose last word does
// not go on, or -1.
func (s *patchSearch) onlyPrefixed(from int, text string) int {
	found := -1
	for i, line := range s.forms[0][from:] {
		if rest, ok := strings.CutPrefix(trimSpace(line), text); ok && !joins(text, rest) {
			if found >= 0 {
				return -1
			}
			found = from + i
		}
	}
	s.left -= len(s.forms[0]) - from
	return found
}

// patchSearch searches a file for the lines of a patch.
type patchSearch struct {
	forms [4][]string // the lines in each of lineForms; nil until first used
	left  int         // how many lines may still be compared
}

// lineForms lists the ways to compare lines: exactly, without trailing white space, without surrounding white space, with
// plain dashes, quotes and spaces.
var lineForms = [...]func(string) string{
	func(s string) string { return s },
	trimSpaceRight,
	trimSpace,
	func(s string) string { return strings.Map(plain, trimSpace(s)) },
}

// plain maps typographic dashes, quotes and spaces to those of ASCII.
func plain(r rune) rune {
	switch {
	case r < utf8.RuneSelf:
	case unicode.Is(unicode.Pd, r) || r == '\u2212':
		return '-'
	case unicode.Is(unicode.Zs, r):
		return ' '
	case r >= '\u2018' && r <= '\u201b' || r == '\u2032':
		return '\''
	case r >= '\u201c' && r <= '\u201f' || r == '\u2033':
		return '"'
	}
	return r
}

// find returns the position of lines in a range of the file, in the first form that matches, or -1.
func (s *patchSearch) find(from, to int, want []string) int {
	for i, form := range lineForms {
		if s.forms[i] == nil {
			s.forms[i] = mapped(s.forms[0], form)
		}
		at := findLines(s.forms[i][from:to], mapped(want, form))
		if at >= 0 {
			s.left -= at + len(want)
			return from + at
		}
		s.left -= to - from
	}
	return -1
}

func mapped(lines []string, form func(string) string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = form(line)
	}
	return out
}

// change replaces lines, which begin at starts. A text is its lines with a line feed between two, so lines at its end
// take the one before them away, and lines after its end bring one.
func (e lineEdit) change(view string, starts []int) change {
	text := strings.Join(e.added, "\n")
	total := len(starts) - 1
	at, end := e.at, e.at+e.removed
	switch {
	case end < total:
		if len(e.added) > 0 {
			text += "\n"
		}
		return change{starts[at], starts[end], text}
	case at == 0:
		return change{0, len(view), text}
	case len(e.added) > 0:
		text = "\n" + text
	}
	return change{starts[at] - 1, len(view), text}
}
