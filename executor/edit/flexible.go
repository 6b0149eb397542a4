package edit

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/actiond/actiond/internal/editdistance"
)

const (
	// leastFuzzy is the least length in characters of a text for the fuzzy search.
	leastFuzzy = 10
	// maxFuzzyWork bounds that search: lines of the file times the square of the text's length. It is Gemini's limit.
	maxFuzzyWork = 400_000_000
	// fuzzyThreshold is the part of a text that may differ, spaceWeight the weight of a white space in it.
	fuzzyThreshold = 0.1
	spaceWeight    = 0.1
	// maxTokenWork bounds the bytes that the search by tokens examines, which take some 200 ms at worst.
	maxTokenWork = 16 << 20
)

// match holds the places that Gemini's replace found, and the strategy.
type match struct {
	strategy string // exact, flexible, regex or fuzzy
	changes  []change
}

// findGemini finds the places of a replacement: exactly; else as lines that are equal without surrounding white space;
// else as a sequence of words with any white space between them; else, if fuzzy is set, as the most similar lines. The
// first strategy with a match decides. Except after an exact match, the replacement takes the indentation of its place.
//
// A replacement keeps the final line end of a file, unless it removes all text. In a file without a final line end, the
// text to find may have one, and none is added.
func findGemini(p place, view string, r Replacement, fuzzy bool) (match, error) {
	old, replacement := lineFeeds(r.Old), lineFeeds(r.New)
	m := match{"exact", replaceEach(view, old, replacement)}
	if len(m.changes) == 0 {
		m = match{"exact", withoutLineEnd(view, old, replacement, replaceEach)}
	}
	if len(m.changes) == 0 {
		m = match{"flexible", flexible(view, old, replacement)}
	}
	if len(m.changes) == 0 {
		m = match{"flexible", withoutLineEnd(view, old, replacement, flexible)}
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
		return match{}, refuse(CodeNoChange, "No changes to apply. The old_string and new_string are identical in file: %s",
			p.shown)
	}
	m.changes = keepEnd(view, m.changes)
	if !slices.ContainsFunc(m.changes, func(c change) bool { return view[c.start:c.end] != c.text }) {
		return match{}, refuse(CodeNoChange, "No changes to apply. The new content is identical to the current content in file: %s", p.shown)
	}
	return m, nil
}

// countGemini refuses a number of matches that the replacement does not expect.
func countGemini(p place, view, old string, r Replacement, found []change) error {
	count, expected, noun := len(found), r.expected(), "occurrence"
	if count > maxReplacements {
		count = max(count, strings.Count(view, old))
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
		return refuse(CodeNoMatch, "Failed to edit, Expected %d %s but found %d for old_string in file: %s", expected, noun,
			count, p.shown)
	}
	advice := ""
	if r.Expected == nil {
		advice = ". If you intended to replace multiple occurrences, set 'allow_multiple' to true."
	}
	return refuse(CodeMultipleMatches, "Failed to edit, Expected %d %s but found %d for old_string in file: %s%s\nThey begin at (line:column) %s.",
		expected, noun, count, p.shown, advice, places(view, found, count))
}

// withoutLineEnd finds old without its final line end at the end of a file that has none.
func withoutLineEnd(view, old, replacement string, find func(view, old, replacement string) []change) []change {
	text, ended := strings.CutSuffix(old, "\n")
	if !ended || text == "" || strings.HasSuffix(view, "\n") {
		return nil
	}
	found := find(view, text, strings.TrimSuffix(replacement, "\n"))
	if len(found) == 0 || found[len(found)-1].end < len(view) {
		return nil
	}
	return found[len(found)-1:]
}

// keepEnd adds the final line feed to the last change if the file would lose it. A file without other text loses it.
func keepEnd(view string, changes []change) []change {
	last := &changes[len(changes)-1]
	if removesAll(view, changes) {
		last.end = len(view)
		return changes
	}
	if !strings.HasSuffix(view, "\n") || last.end < len(view) || strings.HasSuffix(last.text, "\n") {
		return changes
	}
	if last.text == "" && strings.HasSuffix(view[:last.start], "\n") && (len(changes) == 1 || changes[len(changes)-2].end < last.start) {
		return changes // the rest ends in one
	}
	last.text += "\n"
	return changes
}

// removesAll reports whether changes remove all text and leave at most the final line end.
func removesAll(view string, changes []change) bool {
	rest := len(view)
	for _, c := range changes {
		if c.text != "" {
			return false
		}
		rest -= c.end - c.start
	}
	end := changes[len(changes)-1].end
	return rest == 0 || rest == 1 && end == len(view)-1 && view[end] == '\n'
}

// flexible finds the lines that equal those of old without surrounding white space. It reads the text once (Knuth,
// Morris and Pratt) and holds only as many lines as old has, since a text may have as many lines as bytes.
func flexible(view, old, replacement string) []change {
	want := mapped(strings.Split(old, "\n"), trimSpace)
	if strings.Join(want, "") == "" {
		return nil // white space alone matches everywhere
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
			break // no line follows the final line end
		}
		line = trimSpace(line)
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

// placed returns a replacement with the indentation and the line end of the block of lines that it replaces.
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

// indented gives the first line of a text an indentation; the other lines keep theirs relative to it. Blank lines
// become empty.
func indented(text, indent string) string {
	lines := strings.Split(text, "\n")
	from := indentation(lines[0])
	for i, line := range lines {
		rest, deeper := strings.CutPrefix(line, from)
		switch {
		case trimSpace(line) == "":
			lines[i] = ""
		case deeper:
			lines[i] = indent + rest
		default:
			lines[i] = indent + strings.TrimLeft(line, " \t")
		}
	}
	return strings.Join(lines, "\n")
}

// byTokens finds the words and brackets of old in order, from the beginning of a line, with any white space between
// them.
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
		if end > 0 && fits(view, at+len(indentation(view[at:])), end, " "+old+" ") {
			text := indented(replacement, indentation(view[at:]))
			if strings.HasSuffix(text, "\n") && end == len(view) {
				text = strings.TrimSuffix(text, "\n") // as [withoutLineEnd]
			} else if strings.HasSuffix(text, "\n") {
				end = pastLine(view, end, old)
			}
			changes = append(changes, change{at, end, text})
			at = end - 1 // of the line that it ends
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

// tokensAt returns the end of tokens that begin at an offset, after blanks, or 0. looked is the number of bytes
// examined.
func tokensAt(view string, start int, tokens []string) (end, looked int) {
	at := start + len(indentation(view[start:]))
	for i, token := range tokens {
		if i > 0 {
			last := at
			for at < len(view) {
				r, size := utf8.DecodeRuneInString(view[at:])
				if !isSpace(r) {
					break
				}
				at += size
			}
			if at == last && joins(tokens[i-1], token) {
				return 0, at - start + 1
			}
		}
		if !strings.HasPrefix(view[at:], token) {
			return 0, at - start + 1
		}
		at += len(token)
	}
	return at, at - start
}

// mostAlike finds the windows of as many lines as old has that differ least from it, by a tenth at most.
func mostAlike(view, old, replacement string) []change {
	want := slices.Collect(strings.Lines(old))
	length := utf8.RuneCountInString(old)
	if length < leastFuzzy || float64(lineCount(view))*float64(length)*float64(length) > maxFuzzyWork {
		return nil
	}
	lines := slices.Collect(strings.Lines(view))
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
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.score, b.score) })
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

// phrase is a text to compare, with and without its white space.
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

// distance returns the part of p by which another phrase differs, and whether it is below the threshold. White space
// counts for a tenth.
func (p phrase) distance(q phrase) (float64, bool) {
	length := float64(len(p.raw))
	if n := len(p.raw) - len(q.raw); n > len(p.raw) || -n > len(p.raw) {
		return 0, false
	}
	most := fuzzyThreshold * length // of spaceWeight·raw + (1 − spaceWeight)·bare
	bare := editdistance.Bounded(p.bare, q.bare, int(most/(1-spaceWeight)))
	rest := most - (1-spaceWeight)*float64(bare)
	if rest < 0 {
		return 0, false
	}
	// Inserting and deleting all white space costs no more than this.
	spaces := len(p.raw) - len(p.bare) + len(q.raw) - len(q.bare)
	raw := editdistance.Bounded(p.raw, q.raw, min(int(rest/spaceWeight), bare+spaces))
	score := (float64(bare) + spaceWeight*float64(raw-bare)) / length
	return score, score <= fuzzyThreshold
}
