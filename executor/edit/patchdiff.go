package edit

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/actiond/actiond/executor/internal/linediff"
)

// noFile is the name of a file that does not exist in a diff.
const noFile = "/dev/null"

// diffForm makes the diff of a file between two views.
type diffForm func(path, before, after string) string

// diff returns the diff of a change at a place between two versions of the file, nil where it does not exist: in a form
// of the dialect, or as a patch for clients of our own protocol.
func (p place) diff(form diffForm, raw, newRaw []byte, view, newView string) string {
	if !p.native {
		return form(p.shown, view, newView)
	}
	from, to := p.shown, p.shown
	if raw == nil {
		from = noFile
	}
	if newRaw == nil {
		to = noFile
	}
	return patchDiff(from, to, patchText(raw), patchText(newRaw), maxShownDiff)
}

// patchDiff is a unified diff without context that patch and git apply (with --unidiff-zero) accept: lines keep the
// blanks and carriage returns at their ends, and a missing line feed at the end of a file is noted. It leaves out the text of
// a change of more than most bytes, as [writeDiff] does, and then is no patch.
func patchDiff(from, to, before, after string, most int) string {
	if before == after {
		return ""
	}
	a, b, above := linediff.CutLines(before, after)
	if len(a)+len(b) > most {
		return writeDiff(to, before, after)
	}
	header := printable("--- " + patchName(from) + "\n+++ " + patchName(to) + "\n")
	diff, _, _ := linediff.Unified(a, b, above)
	return header + diff
}

// patchText returns bytes as patchDiff shows them: characters of another encoding, and bytes of none as \xNN.
func patchText(raw []byte) string {
	if utf8.Valid(raw) {
		return textOf(raw)
	}
	if t, err := decode(raw); err == nil {
		return printable(t.body)
	}
	return printable(textOf(raw))
}

// patchName ends a name that contains a blank, as GNU diff does, and quotes one that is not text on one line, as git
// and patch read it.
func patchName(path string) string {
	if utf8.ValidString(path) && !strings.ContainsFunc(path, unicode.IsControl) {
		if strings.Contains(path, " ") {
			return path + "\t"
		}
		return path
	}
	quoted := []byte{'"'}
	for _, b := range []byte(path) {
		switch {
		case b < ' ' || b >= 0x7f:
			quoted = fmt.Appendf(quoted, `\%03o`, b)
		case b == '"' || b == '\\':
			quoted = append(quoted, '\\', b)
		default:
			quoted = append(quoted, b)
		}
	}
	return string(append(quoted, '"'))
}
