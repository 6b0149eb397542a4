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

// maxPatchedLines bounds the lines of a file that a patch changes, each of which takes a hundred bytes while it does.
const maxPatchedLines = 1 << 20

// patchFile is what a patch does to one file.
type patchFile struct {
	kind   string // updateFile, deleteFile or addFile
	path   string // as the patch names it
	moveTo string // "" where the file keeps its name
	added  []string
	hunks  []patchHunk
}

// patchHunk is one stretch of changed lines with those around them.
type patchHunk struct {
	anchor string   // the line after which to look; "" for none
	old    []string // context and removed lines, as they should stand in the file
	edits  []lineEdit
	atEnd  bool // the last of old is the last line of the file
}

// lineEdit replaces a number of lines of a hunk's old ones, beginning with the line at, by others.
type lineEdit struct {
	at, removed int
	added       []string
}

// patchReader reads a patch line by line.
type patchReader struct {
	lines []string
	at    int
}

// parsePatch reads a patch in the format of OpenAI's apply_patch. It knows nothing of the files and fails with
// CodeInvalidArgument.
func parsePatch(text string) ([]patchFile, error) {
	lines := strings.Split(strings.TrimFunc(lineFeeds(text), isSpace), "\n")
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
		return nil, refuse(CodeInvalidArgument, "Unknown Line: %s\nNothing may stand after `%s`.", lines[r.at+1], endPatch)
	}
	if len(files) == 0 {
		return nil, refuse(CodeInvalidArgument, "The patch names no file.")
	}
	return files, nil
}

// line is the line to be read next. The last one is always endPatch.
func (r *patchReader) line() string { return r.lines[r.at] }

// word takes a line with a prefix and returns what follows it, without white space around.
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
			if ok && !filepath.IsLocal(f.moveTo) {
				return f, refuse(CodePathNotAllowed, "Update File Error: Invalid move path '%s': must be a relative path without '..' components", f.moveTo)
			}
			f.hunks, err = r.hunks()
		}
		return f, err
	}
	return patchFile{}, refuse(CodeInvalidArgument, "Unknown Line: %s", r.line())
}

// sectionEnds says that a line begins another file or ends the patch.
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

// patched finds the changes that hunks make to a text.
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
	from := 0            // where to look for the next hunk
	for _, h := range hunks {
		at, err := h.find(path, lines, from)
		if err != nil {
			return nil, err
		}
		for _, e := range h.edits {
			e.at += at
			if last := len(edits) - 1; last >= 0 && edits[last].at+edits[last].removed == e.at {
				// One change, so that the line feed between the two belongs to one.
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

// find says at which line a hunk begins.
func (h *patchHunk) find(path string, lines []string, from int) (int, error) {
	anchored, err := h.seek(path, lines, from)
	if err != nil {
		return 0, err
	}
	if len(h.old) == 0 {
		if h.atEnd {
			return len(lines), nil
		}
		return anchored, nil
	}
	if last := len(lines) - len(h.old); h.atEnd && last >= 0 {
		if at := findContext(lines[max(last, from):], h.old); at >= 0 {
			return max(last, from) + at, nil
		}
	}
	if at := findContext(lines[anchored:], h.old); at >= 0 {
		return anchored + at, nil
	}
	what := "Invalid Context"
	if h.atEnd {
		what = "Invalid EOF Context"
	}
	context := strings.Join(h.old, "\n")
	return 0, refuse(CodeNoMatch, "%s %d:\n%s\nThese lines of the patch do not stand in %s after line %d.%s",
		what, anchored, context, path, anchored, hint(strings.Join(lines, "\n"), context))
}

// seek says after which line an anchor lets a hunk begin. One that stands above already is where the patch is.
func (h *patchHunk) seek(path string, lines []string, from int) (int, error) {
	if strings.TrimSpace(h.anchor) == "" {
		return from, nil
	}
	anchor := []string{h.anchor}
	if findContext(lines[:from], anchor) >= 0 {
		return from, nil
	}
	if at := findContext(lines[from:], anchor); at >= 0 {
		return from + at + 1, nil
	}
	return 0, refuse(CodeNoMatch, "The line `@@ %s` of the patch does not stand in %s after line %d.%s",
		h.anchor, path, from, hint(strings.Join(lines, "\n"), h.anchor))
}

// findContext finds lines in others: exactly, else without white space at their ends, else without any around them. It is
// -1 where they do not stand there.
func findContext(lines, want []string) int {
	same := func(s string) string { return s }
	right := func(s string) string { return strings.TrimRightFunc(s, isSpace) }
	both := func(s string) string { return strings.TrimFunc(s, isSpace) }
	for _, form := range []func(string) string{same, right, both} {
		if at := findLines(mapped(lines, form), mapped(want, form)); at >= 0 {
			return at
		}
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

// change replaces lines, which begin at starts. A text is its lines with a line feed between two, so lines at its end take the one
// before them away, and lines after its end bring one.
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
