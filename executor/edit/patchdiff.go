package edit

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/actiond/actiond/executor/internal/linediff"
)

// patchDiff is a unified diff without context that patch and git apply (with --unidiff-zero) accept: lines keep the
// blanks and carriage returns at their ends, and a missing line feed at the end of a file is noted. Like [writeDiff] it
// leaves out the text of a large change, and then is no patch. A file that did not exist is /dev/null.
func patchDiff(path, before, after string, existed bool) string {
	if before == after {
		return ""
	}
	a, b, above := linediff.CutLines(before, after)
	if len(a)+len(b) > maxWriteDiff {
		return writeDiff(path, before, after)
	}
	from := "/dev/null"
	if existed {
		from = path
	}
	header := printable("--- " + patchName(from) + "\n+++ " + patchName(path) + "\n")
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
