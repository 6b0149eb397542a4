package edit

import (
	"path/filepath"
	"slices"
	"strings"
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

// patchHunk is a run of changed lines with their context.
type patchHunk struct {
	anchor string   // the line after which to search; "" for none
	old    []string // context and removed lines, as the file should have them
	edits  []lineEdit
	atEnd  bool // the last of old is the last line of the file
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

// parsePatch parses a patch in the format of OpenAI's apply_patch without reading files. It fails with
// CodeInvalidArgument.
func parsePatch(text string) ([]patchFile, error) {
	lines := strings.Split(trimSpace(lineFeeds(text)), "\n")
	switch {
	case !strings.HasPrefix(lines[0], beginPatch):
		return nil, refuse(CodeInvalidArgument, "Invalid patch text: it must begin with the line `%s`.", beginPatch)
	case lines[len(lines)-1] != endPatch:
		return nil, refuse(CodeInvalidArgument, "Missing End Patch: the last line must be `%s`.", endPatch)
	}
	r := patchReader{lines: lines, at: 1}
	var files []patchFile
	for r.line() != endPatch {
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
		path, ok := strings.CutPrefix(line, updateFile)
		if !ok {
			path, ok = strings.CutPrefix(line, deleteFile)
		}
		if ok && len(paths) < maxPatchFiles {
			paths = append(paths, strings.TrimSpace(path))
		}
	}
	return paths
}

// line returns the next line. The last one is always endPatch.
func (r *patchReader) line() string { return r.lines[r.at] }

// word consumes a line with a prefix and returns the rest of the line without surrounding white space.
func (r *patchReader) word(prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(r.line(), prefix)
	if !ok {
		return "", false
	}
	r.at++
	return strings.TrimSpace(rest), true
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
	for ; !sectionEnds(r.line()); r.at++ {
		text, ok := strings.CutPrefix(r.line(), "+")
		if !ok {
			return nil, refuse(CodeInvalidArgument, "Invalid Add File Line: %s\nEvery line of a new file begins with `+`.", r.line())
		}
		added = append(added, text)
	}
	return added, nil
}

func (r *patchReader) hunks() ([]patchHunk, error) {
	var hunks []patchHunk
	for !sectionEnds(r.line()) {
		h, marked := patchHunk{}, false
		if anchor, ok := strings.CutPrefix(r.line(), "@@"); ok && (anchor == "" || anchor[0] == ' ') {
			h.anchor, marked = strings.TrimPrefix(anchor, " "), true
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
		if strings.HasPrefix(line, "***") {
			return refuse(CodeInvalidArgument, "Invalid Line: %s", line)
		}
		mark, text := byte(' '), ""
		if line != "" {
			mark, text = line[0], line[1:]
		}
		if mark == ' ' {
			h.old = append(h.old, text)
			e = nil
			continue
		}
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

// find returns the line at which a hunk begins.
func (h *patchHunk) find(path string, s *patchSearch, from int) (int, error) {
	lines := s.forms[0]
	anchored, err := h.seek(path, s, from)
	if err != nil {
		return 0, err
	}
	end, empty := len(lines), 0
	if lines[end-1] == "" {
		empty = 1 // the empty line after a final line end can be the last line of a hunk; most patches omit it
	}
	switch {
	case len(h.old) == 0 && h.atEnd:
		return end - empty, nil
	case len(h.old) == 0:
		return anchored, nil
	}
	for at := end - len(h.old); h.atEnd && at >= max(from, end-empty-len(h.old)); at-- {
		if s.find(at, at+len(h.old), h.old) >= 0 {
			return at, nil
		}
	}
	if at := s.find(anchored, end, h.old); at >= 0 {
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

// seek returns the line after which an anchor lets a hunk begin. An anchor above the current line keeps the position.
func (h *patchHunk) seek(path string, s *patchSearch, from int) (int, error) {
	if strings.TrimSpace(h.anchor) == "" {
		return from, nil
	}
	lines, anchor := s.forms[0], []string{h.anchor}
	if s.find(0, from, anchor) >= 0 {
		return from, nil
	}
	if at := s.find(from, len(lines), anchor); at >= 0 {
		return at + 1, nil
	}
	return 0, refuse(CodeNoMatch, "The line `@@ %s` of the patch does not occur in %s after line %d.%s",
		h.anchor, path, from, hint(strings.Join(lines, "\n"), h.anchor))
}

// patchSearch searches a file for the lines of a patch.
type patchSearch struct {
	forms [3][]string // the lines in each of lineForms; nil until first used
	left  int         // how many lines may still be compared
}

// lineForms lists the ways to compare lines: exactly, without trailing white space, without surrounding white space.
var lineForms = [...]func(string) string{
	func(s string) string { return s },
	trimSpaceRight,
	trimSpace,
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
