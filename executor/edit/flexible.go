package edit

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// leastFuzzy is how many characters a text must have to be looked for by likeness.
	leastFuzzy = 10
	// maxFuzzyWork bounds that search: lines of the file times the square of the text's length. It is Gemini's limit.
	maxFuzzyWork = 400_000_000
	// fuzzyThreshold is how much of a text may differ, and spaceWeight how much a white space counts of that.
	fuzzyThreshold = 0.1
	spaceWeight    = 0.1
	// maxTokenWork bounds how many bytes the search by tokens looks at, which takes some 200 ms at worst.
	maxTokenWork = 16 << 20
)

// match is where Gemini's replace found its text, and how.
type match struct {
	strategy string // exact, flexible, regex or fuzzy
	changes  []change
}

// findGemini finds the places of a replacement: exactly; else as lines that are equal without the white space around them;
// else as a sequence of words with any white space between them; else, where that is asked for, as the lines most like it.
// The first way that finds anything decides. What was found other than exactly takes the indentation of its place.
//
// A replacement cannot take away the line end at the end of a file.
func findGemini(p place, view string, r Replacement, fuzzy bool) (match, error) {
	old, replacement := lineFeeds(r.Old), lineFeeds(r.New)
	m := match{"exact", replaceEach(view, old, replacement)}
	if len(m.changes) == 0 {
		m = match{"flexible", flexible(view, old, replacement)}
	}
	if len(m.changes) == 0 {
		m = match{"regex", byTokens(view, old, replacement)}
	}
	if len(m.changes) == 0 && fuzzy {
		m = match{"fuzzy", mostAlike(view, old, replacement)}
	}
	if err := countGemini(p, view, old, r, m.changes); err != nil {
		return match{}, err
	}
	if old == replacement {
		return match{}, refuse(CodeNoChange, "No changes to apply. The old_string and new_string are identical in file: %s", p.shown)
	}
	m.changes = keepEnd(view, m.changes)
	if !slices.ContainsFunc(m.changes, func(c change) bool { return view[c.start:c.end] != c.text }) {
		return match{}, refuse(CodeNoChange, "No changes to apply. The new content is identical to the current content in file: %s", p.shown)
	}
	return m, nil
}

// countGemini says whether as many places were found as a replacement wants.
func countGemini(p place, view, old string, r Replacement, found []change) error {
	count, expected, noun := len(found), 1, "occurrence"
	if count > maxReplacements {
		count = max(count, strings.Count(view, old))
	}
	if r.Expected != nil {
		expected = *r.Expected
	}
	if expected > 1 {
		noun = "occurrences"
	}
	switch {
	case count == 0:
		return refuse(CodeNoMatch, "Failed to edit, 0 occurrences found for old_string in %s. Ensure you're not escaping content incorrectly "+
			"and check whitespace, indentation, and context. Use read_file tool to verify.%s", p.shown, hint(view, old))
	case count > maxReplacements && (r.Expected == nil || *r.Expected >= maxReplacements):
		return refuse(CodeMultipleMatches, "Failed to edit, found %d occurrences for old_string in file: %s. At most %d are replaced at once.",
			count, p.shown, maxReplacements)
	case count == expected || r.AllowMultiple && r.Expected == nil:
		return nil
	case count < expected:
		return refuse(CodeNoMatch, "Failed to edit, Expected %d %s but found %d for old_string in file: %s", expected, noun, count, p.shown)
	}
	advice := ""
	if r.Expected == nil {
		advice = ". If you intended to replace multiple occurrences, set 'allow_multiple' to true."
	}
	return refuse(CodeMultipleMatches, "Failed to edit, Expected %d %s but found %d for old_string in file: %s%s\nThey begin at (line:column) %s.",
		expected, noun, count, p.shown, advice, places(view, found, count))
}

// keepEnd gives the last change the line feed that the file would lose at its end.
func keepEnd(view string, changes []change) []change {
	last := &changes[len(changes)-1]
	if !strings.HasSuffix(view, "\n") || last.end < len(view) || strings.HasSuffix(last.text, "\n") {
		return changes
	}
	if last.text == "" && strings.HasSuffix(view[:last.start], "\n") && (len(changes) == 1 || changes[len(changes)-2].end < last.start) {
		return changes // what is left ends in one
	}
	last.text += "\n"
	return changes
}

// splitAfter splits a text after its line feeds. A piece after the last one counts unless it is empty.
func splitAfter(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// flexible finds the lines that are those of old but for the white space around them. It goes over the text once (Knuth,
// Morris and Pratt) and holds no more of it than old has lines, since a text may have as many lines as bytes.
func flexible(view, old, replacement string) []change {
	want := trimmed(strings.Split(old, "\n"))
	if strings.Join(want, "") == "" {
		return nil // white space alone stands everywhere
	}
	border := borders(want)
	starts := make([]int, len(want)) // of the last lines
	var changes []change
	at, matched, number := 0, 0, 0
	for line := range strings.SplitAfterSeq(view, "\n") {
		starts[number%len(want)] = at
		at += len(line)
		number++
		if line == "" {
			break // there is none after the last line end
		}
		line = strings.TrimFunc(line, isSpace)
		for matched > 0 && line != want[matched] {
			matched = border[matched-1]
		}
		if line == want[matched] {
			matched++
		}
		if matched < len(want) {
			continue
		}
		matched = 0
		start := starts[number%len(want)]
		changes = append(changes, change{start, at, placed(view[start:at], replacement)})
		if len(changes) > maxReplacements {
			break
		}
	}
	return changes
}

func trimmed(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = strings.TrimFunc(line, isSpace)
	}
	return out
}

// borders says for each beginning of a run of lines how long its longest beginning is that it also ends with.
func borders(want []string) []int {
	border := make([]int, len(want))
	for i, n := 1, 0; i < len(want); i++ {
		for n > 0 && want[i] != want[n] {
			n = border[n-1]
		}
		if want[i] == want[n] {
			n++
		}
		border[i] = n
	}
	return border
}

// findLines finds where a run of lines first stands in others; -1 where it does not. It takes time in the number of all
// lines, whatever they are. want must not be empty.
func findLines(lines, want []string) int {
	border, n := borders(want), 0
	for i, line := range lines {
		for n > 0 && line != want[n] {
			n = border[n-1]
		}
		if line == want[n] {
			n++
		}
		if n == len(want) {
			return i + 1 - n
		}
	}
	return -1
}

// placed is a replacement with the indentation of the block of lines that it replaces, and with its line end.
func placed(block, replacement string) string {
	text := indented(replacement, indentation(block))
	if text != "" && strings.HasSuffix(block, "\n") {
		text += "\n"
	}
	return text
}

func indentation(line string) string {
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}

// indented moves a text so that its first line has the given indentation and the others keep theirs relative to it. Blank
// lines lose their white space.
func indented(text, indent string) string {
	lines := strings.Split(text, "\n")
	from := indentation(lines[0])
	for i, line := range lines {
		rest, deeper := strings.CutPrefix(line, from)
		switch {
		case strings.TrimFunc(line, isSpace) == "":
			lines[i] = ""
		case deeper:
			lines[i] = indent + rest
		default:
			lines[i] = indent + strings.TrimLeft(line, " \t")
		}
	}
	return strings.Join(lines, "\n")
}

// byTokens finds the words and brackets of old in their order from the beginning of a line on, whatever white space is
// between them.
func byTokens(view, old, replacement string) []change {
	var spaced strings.Builder
	for _, r := range old {
		if strings.ContainsRune("():[]{}><=", r) {
			spaced.WriteString(" " + string(r) + " ")
		} else {
			spaced.WriteRune(r)
		}
	}
	tokens := strings.FieldsFunc(spaced.String(), isSpace)
	if len(tokens) == 0 {
		return nil
	}
	var changes []change
	work := maxTokenWork
	for at := 0; at < len(view) && work > 0 && len(changes) <= maxReplacements; {
		end, looked := tokensAt(view, at, tokens)
		work -= looked
		if end > 0 {
			changes = append(changes, change{at, end, indented(replacement, indentation(view[at:]))})
			at = end
		}
		next := strings.IndexByte(view[at:], '\n')
		if next < 0 {
			break
		}
		work -= next
		at += next + 1
	}
	return changes
}

// tokensAt says where tokens end that begin at an offset, after blanks; 0 where they do not. looked is how many bytes it
// looked at.
func tokensAt(view string, start int, tokens []string) (end, looked int) {
	at := start + len(indentation(view[start:]))
	for i, token := range tokens {
		if i > 0 {
			for at < len(view) {
				r, size := utf8.DecodeRuneInString(view[at:])
				if !isSpace(r) {
					break
				}
				at += size
			}
		}
		if !strings.HasPrefix(view[at:], token) {
			return 0, at - start + 1
		}
		at += len(token)
	}
	return at, at - start
}

// mostAlike finds the windows of as many lines as old has that differ from it least, and by a tenth at most.
func mostAlike(view, old, replacement string) []change {
	want := splitAfter(old)
	length := utf8.RuneCountInString(old)
	if length < leastFuzzy || float64(lineCount(view))*float64(length)*float64(length) > maxFuzzyWork {
		return nil
	}
	lines := splitAfter(view)
	if len(lines) < len(want) {
		return nil
	}
	search := newPhrase(want)
	type candidate struct {
		line  int
		score float64
	}
	var found []candidate
	for i := range len(lines) - len(want) + 1 {
		if score, ok := search.distance(newPhrase(lines[i : i+len(want)])); ok {
			found = append(found, candidate{i, score})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		switch {
		case a.score < b.score:
			return -1
		case a.score > b.score:
			return 1
		}
		return 0
	})
	var chosen []int
	for _, c := range found {
		if !slices.ContainsFunc(chosen, func(other int) bool { return c.line < other+len(want) && other < c.line+len(want) }) {
			chosen = append(chosen, c.line)
		}
	}
	slices.Sort(chosen)
	var changes []change
	at, line := 0, 0
	for _, c := range chosen {
		for ; line < c; line++ {
			at += len(lines[line])
		}
		block := strings.Join(lines[c:c+len(want)], "")
		changes = append(changes, change{at, at + len(block), placed(block, strings.TrimSuffix(replacement, "\n"))})
	}
	return changes
}

// phrase is a text for comparing, with and without its white space.
type phrase struct {
	raw, bare []rune
}

func newPhrase(lines []string) phrase {
	var p phrase
	for i, line := range lines {
		if i > 0 {
			p.raw = append(p.raw, '\n')
		}
		p.raw = append(p.raw, []rune(strings.TrimRightFunc(line, unicode.IsSpace))...)
	}
	for _, r := range p.raw {
		if !isSpace(r) {
			p.bare = append(p.bare, r)
		}
	}
	return p
}

// distance says how much of p another phrase differs from, and whether that is little enough. White space counts for a
// tenth.
func (p phrase) distance(q phrase) (float64, bool) {
	length := float64(len(p.raw))
	if n := len(p.raw) - len(q.raw); n > len(p.raw) || -n > len(p.raw) {
		return 0, false
	}
	most := fuzzyThreshold * length // of spaceWeight·raw + (1 − spaceWeight)·bare
	bare := levenshtein(p.bare, q.bare, int(most/(1-spaceWeight)))
	rest := most - (1-spaceWeight)*float64(bare)
	if rest < 0 {
		return 0, false
	}
	// To put every white space in and take every one out again would take no more than this.
	spaces := len(p.raw) - len(p.bare) + len(q.raw) - len(q.bare)
	raw := levenshtein(p.raw, q.raw, min(int(rest/spaceWeight), bare+spaces))
	score := (float64(bare) + spaceWeight*float64(raw-bare)) / length
	return score, score <= fuzzyThreshold
}

// levenshtein is how many characters must be put in, taken out or exchanged to make b of a, or most+1 where that is more
// than most. It looks at a band of that width only.
func levenshtein(a, b []rune, most int) int {
	if len(a)-len(b) > most || len(b)-len(a) > most {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		first, last := max(1, i-most), min(len(b), i+most)
		diagonal := row[first-1]
		row[first-1] = most + 1
		if first == 1 {
			row[0] = i
		}
		best := row[first-1]
		for j := first; j <= last; j++ {
			above := most + 1
			if j < i+most {
				above = row[j]
			}
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost = 1 + min(diagonal, above, row[j-1])
			}
			diagonal, row[j] = row[j], cost
			best = min(best, cost)
		}
		if best > most {
			return most + 1
		}
	}
	return min(row[len(b)], most+1)
}
