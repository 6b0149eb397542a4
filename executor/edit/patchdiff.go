package edit

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// patchDiff is a unified diff without context that patch and git apply (with --unidiff-zero) accept: lines keep the blanks
// and carriage returns at their ends, and a missing line feed at the end of a file is noted. Like [writeDiff] it leaves out
// the text of a large change, and then is no patch. A file that did not exist is /dev/null.
func patchDiff(path, before, after string, existed bool) string {
	if before == after {
		return ""
	}
	a, b, above := cutEqualLines(before, after)
	if len(a)+len(b) > maxWriteDiff {
		return writeDiff(path, before, after)
	}
	from := "/dev/null"
	if existed {
		from = path
	}
	var out strings.Builder
	out.WriteString(printable("--- " + patchName(from) + "\n+++ " + patchName(path) + "\n"))
	aLines, bLines := slices.Collect(strings.Lines(a)), slices.Collect(strings.Lines(b))
	hunks := []hunk{{0, len(aLines), 0, len(bLines)}}
	if a != "" && b != "" {
		hunks = shortest(markEnd(a), markEnd(b))
	}
	for _, h := range hunks {
		out.WriteString(h.header(above)[1:] + "\n")
		writePatchLines(&out, "-", aLines[h.a0:h.a1])
		writePatchLines(&out, "+", bLines[h.b0:h.b1])
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// patchName ends a name that contains a blank, as GNU diff does, and quotes one that is not text on one line, as git and
// patch read it.
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

// cutEqualLines is [cutEqual] for lines with their line feeds.
func cutEqualLines(before, after string) (a, b string, above int) {
	head := strings.LastIndexByte(before[:commonPrefix(before, after)], '\n') + 1
	above, a, b = strings.Count(before[:head], "\n"), before[head:], after[head:]
	tail := commonSuffix(a, b)
	end := strings.IndexByte(a[len(a)-tail:], '\n')
	if end < 0 {
		return a, b, above
	}
	tail -= end + 1
	return a[:len(a)-tail], b[:len(b)-tail], above
}

// markEnd turns lines with their line feeds into lines between line feeds, with a mark on a last line that has none. Valid
// UTF-8 does not contain the mark.
func markEnd(text string) string {
	if rest, ended := strings.CutSuffix(text, "\n"); ended {
		return rest
	}
	return text + "\xff"
}

func writePatchLines(out *strings.Builder, sign string, lines []string) {
	for _, line := range lines {
		out.WriteString(sign + line)
		if !strings.HasSuffix(line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
