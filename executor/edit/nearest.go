package edit

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/actiond/actiond/internal/lazyregexp"
	"github.com/actiond/actiond/internal/shorten"
)

const (
	// maxListedMatches bounds the places of a text that an error names.
	maxListedMatches = 10
	// maxAnchors is the number of lines of a missing text that are searched one by one, the longest ones.
	maxAnchors = 4
	// maxWanted is the most lines of it that are compared.
	maxWanted = 1000
	// maxCompare bounds the search for the nearest lines, in bytes, to some 30 ms.
	maxCompare = 32 << 20
	// maxComparedLine is the most bytes of a line that are compared.
	maxComparedLine = 160
	// maxNearestLines is the most lines that an error shows.
	maxNearestLines = 12
	// maxOtherForm is the largest text, in bytes, that is searched for other forms of a text.
	maxOtherForm = 16 << 20
	// leastAlike is the least likeness of lines that an error shows.
	leastAlike = 0.5
)

// places lists where the first of total matches begin, as line:column, both counted from 1 and columns in characters.
func places(view string, matches []change, total int) string {
	var out strings.Builder
	line, lineAt, seen := 1, 0, 0
	for i, m := range matches {
		if i == maxListedMatches {
			fmt.Fprintf(&out, " and %d more", total-i)
			break
		}
		between := view[seen:m.start]
		line += strings.Count(between, "\n")
		if end := strings.LastIndexByte(between, '\n'); end >= 0 {
			lineAt = seen + end + 1
		}
		seen = m.start
		if i > 0 {
			out.WriteString(", ")
		}
		fmt.Fprintf(&out, "%d:%d", line, utf8.RuneCountInString(view[lineAt:m.start])+1)
	}
	return out.String()
}

// hint returns the part of view that a missing text may mean: the same text in another form, or the most similar lines,
// with their numbers. It begins with a line feed, or is "" if no part is similar.
func hint(view, old string) string {
	if same := otherForm(view, old); same != "" {
		return "\n" + same
	}
	first, last, alike := nearest(view, old)
	if alike < leastAlike {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\nMost similar, by %.0f%%: %s", alike*100, lineRanges([]lineRange{{first, last}}))
	lines := strings.SplitN(snippet(view, first, last), "\n", maxNearestLines+1)
	for i, line := range lines[:min(len(lines), maxNearestLines, last-first+1)] {
		fmt.Fprintf(&out, "\n%6d\t%s", first+i, printable(shorten.Text(line, maxComparedLine)))
	}
	if last-first >= maxNearestLines {
		out.WriteString("\n…")
	}
	return out.String()
}

var viewNumbers = lazyregexp.New(`(?m)^[ \t]*\d+(?:[|\t→]|: ?|  )`)

// otherForm says where view has a text in another Unicode form, or with invisible characters.
func otherForm(view, old string) string {
	if strings.Contains(view+old, "\r") {
		if above, _, found := strings.Cut(lineFeeds(view), lineFeeds(old)); found {
			return fmt.Sprintf("The same text is on line %d with other line ends (CRLF or LF), which must be the same here.", 1+strings.Count(above, "\n"))
		}
	}
	if bare := viewNumbers().ReplaceAllString(old, ""); bare != old && strings.Contains(view, trimSpace(bare)) && trimSpace(bare) != "" {
		return "The file has this text without the line numbers, which are only those of a view. Send it without them."
	}
	if len(view) > maxOtherForm || isASCII(old) && isASCII(view) {
		return ""
	}
	if above, _, found := strings.Cut(norm.NFC.String(view), norm.NFC.String(old)); found && old != "" {
		return fmt.Sprintf("The same text is on line %d in another Unicode normalization form (composed or decomposed accents). "+
			"Copy it from the file.", 1+strings.Count(above, "\n"))
	}
	plain := strings.Map(visible, old)
	if strings.TrimSpace(plain) == "" {
		return ""
	}
	if above, _, found := strings.Cut(strings.Map(visible, view), plain); found {
		return fmt.Sprintf("The same text is on line %d, except for invisible characters or unusual spaces "+
			"(such as a no-break space, U+00A0, or a zero width space, U+200B). Copy it from the file.", 1+strings.Count(above, "\n"))
	}
	return ""
}

// visible maps spaces of all kinds to the usual one and drops characters without width.
func visible(r rune) rune {
	switch {
	case r == '\n' || r == '\t' || r < utf8.RuneSelf:
		return r
	case unicode.Is(unicode.Zs, r):
		return ' '
	case unicode.Is(unicode.Cf, r):
		return -1
	}
	return r
}

// nearest returns the lines of view that are most like a text, and how alike they are, from 0 to 1.
func nearest(view, old string) (first, last int, alike float64) {
	want := strings.SplitN(strings.Trim(old, "\n"), "\n", maxWanted+1)
	want = want[:min(len(want), maxWanted)]
	have, scores := align(view, want)
	best, bestScore := -1, 0.0
	for start, s := range scores {
		if s > bestScore || s == bestScore && start < best {
			best, bestScore = start, s
		}
	}
	if best < 0 {
		return 0, 0, 0
	}
	total := 0.0
	for i, line := range want {
		if best+i < len(have) {
			a, b := profileOf(line), profileOf(have[best+i])
			total += a.alike(&b)
		}
	}
	return best + 1, min(best+len(want), len(have)), total / float64(len(want))
}

// align compares the longest of some lines with each line of view, as far as maxCompare allows. It returns the lines of
// view, and for places where the wanted lines may begin how alike the longest ones are to the lines there, in sum.
func align(view string, want []string) (have []string, scores map[int]float64) {
	anchors := make([]int, 0, len(want))
	for i, line := range want {
		if trimSpace(line) != "" {
			anchors = append(anchors, i)
		}
	}
	slices.SortStableFunc(anchors, func(a, b int) int { return len(want[b]) - len(want[a]) })
	anchors = anchors[:min(len(anchors), maxAnchors)]
	profiles := make([]profile, len(anchors))
	for i, a := range anchors {
		profiles[i] = profileOf(want[a])
	}
	scores = make(map[int]float64)
	budget := maxCompare
	for line := range strings.SplitSeq(strings.TrimSuffix(view, "\n"), "\n") {
		if budget -= (min(len(line), maxComparedLine) + 64) * (1 + len(anchors)); budget < 0 {
			break
		}
		i, p := len(have), profileOf(line)
		have = append(have, line)
		for j, a := range anchors {
			if s := p.alike(&profiles[j]); s > leastAlike/2 && i >= a {
				scores[i-a] += s
			}
		}
	}
	return have, scores
}

// profile counts the pairs of neighbouring bytes of a line, white space aside.
type profile struct {
	pairs [64]uint8
	total int
}

func profileOf(line string) profile {
	var p profile
	var before byte
	for _, b := range []byte(line[:min(len(line), maxComparedLine)]) {
		if b <= ' ' {
			continue
		}
		p.pairs[(before*31+b)%64]++
		p.total++
		before = b
	}
	return p
}

// alike is the share of pairs that two lines have in common. Empty lines are equal.
func (p *profile) alike(q *profile) float64 {
	if p.total == 0 || q.total == 0 {
		if p.total == q.total {
			return 1
		}
		return 0
	}
	common := 0
	for i := range p.pairs {
		common += int(min(p.pairs[i], q.pairs[i]))
	}
	return 2 * float64(common) / float64(p.total+q.total)
}
