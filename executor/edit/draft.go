package edit

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	// maxWindow is how many lines one draft may replace. It is the limit that OpenHands documents.
	maxWindow = 300
	// chunkLines is how many lines the regions have that a refusal shows, and maxChunks how many of them.
	chunkLines, maxChunks = 20, 3
)

// Draft is a part of a file as it should be. Lines that stay may be left out, with a placeholder such as
// "# ... existing code ..." in their place.
type Draft struct {
	// Path may be relative to Dir.
	Path, Dir string
	Content   string
	// Start and End are the first and the last line that the draft is about, counted from 1; -1 as End is the end, and as
	// Start appends. The empty line after a final line end counts too.
	Start, End int
	// IfSHA256 is the hash that the file must have, "" for any.
	IfSHA256 string
	// Model merges a draft into the lines it is about, and returns these as they should be. nil means by the rules of
	// Merge. It is called without a lock; where the file has changed meanwhile, Merge fails with CodeConflict.
	Model func(original, draft string) (string, error)
}

// Merged is what Merge did.
type Merged struct {
	Result
	// Before and After are the whole text, with plain line feeds.
	Before, After string
}

// Merge puts a draft into a file, or makes the file of it where there is none. Without a placeholder the draft replaces its
// lines. With placeholders, each stretch of the draft between them must begin and end with lines that stand in the file as
// they are there, in the same order and each in one possible place: then what is between those lines is replaced and the
// rest stays. A draft that begins or ends without a placeholder begins or ends with its lines.
//
// It returns an *Error where it fails or cannot be sure; the file is then as it was.
func (e *Editor) Merge(d Draft) (Merged, error) {
	path := absolutePath(d.Dir, d.Path)
	m, err := e.merge(d, path)
	m.Path = path
	return m, err
}

func (e *Editor) merge(d Draft, path string) (Merged, error) {
	c := Command{Path: path, Content: &d.Content, IfSHA256: d.IfSHA256}
	if _, err := c.check(); err != nil {
		return Merged{}, err
	}
	if d.Model == nil || d.Start == -1 {
		return e.mergeInto(c, d, d.Content)
	}
	original, sum, err := e.window(c, d)
	if err != nil || sum == "" {
		if err == nil { // no such file
			return e.mergeInto(c, d, d.Content)
		}
		return Merged{}, err
	}
	merged, err := d.Model(original, d.Content)
	if err != nil {
		return Merged{}, &Error{CodeCommandFailed, "The draft could not be merged: " + err.Error() + ". Nothing was changed.", err}
	}
	c.IfSHA256 = string(sum)
	return e.mergeInto(c, d, merged)
}

// window returns the lines that a draft is about, and the hash of the file, "" where there is none.
func (e *Editor) window(c Command, d Draft) (lines string, sum hash, err error) {
	p, leave, err := e.enterFor(c)
	defer leave()
	if err != nil || !p.exists() {
		return "", "", err
	}
	f, t, err := e.openDrafted(p)
	if err != nil {
		return "", "", err
	}
	start, end, err := d.window(p, t.view)
	if err != nil {
		return "", "", err
	}
	return t.view[start:end], hashOf(f.data), nil
}

// openDrafted loads the file that a draft is about.
func (e *Editor) openDrafted(p place) (*file, *text, error) {
	if p.isDir() {
		return nil, nil, refuse(CodeIsDirectory, "Path is a directory: %s. You can only edit files", p.shown)
	}
	return e.open(p)
}

// mergeInto puts a text into a file: the draft, or what a model made of it.
func (e *Editor) mergeInto(c Command, d Draft, content string) (Merged, error) {
	p, leave, err := e.enterFor(c)
	defer leave()
	if err != nil {
		return Merged{}, err
	}
	if !p.exists() {
		r, err := e.newFile(p, ended(content))
		return Merged{Result: r, After: lineFeeds(ended(content))}, err
	}
	f, t, err := e.openDrafted(p)
	if err != nil {
		return Merged{}, err
	}
	changes, err := d.changes(p, t.view, content)
	if err != nil {
		return Merged{}, err
	}
	r, view, err := e.apply(p, f, t, changes, unifiedDiff)
	if err != nil {
		return Merged{}, err
	}
	r.Text = cmp.Or(r.Diff, "(no changes detected. Please make sure your edits change the content of the existing file.)")
	return Merged{Result: r, Before: t.view, After: view}, nil
}

// ended is a text with a line end at its end, unless it is empty.
func ended(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// changes says what a draft does to a text.
func (d Draft) changes(p place, view, content string) ([]change, error) {
	if d.Start == -1 {
		text := ended(content)
		if view != "" && !strings.HasSuffix(view, "\n") && text != "" {
			text = "\n" + text
		}
		return []change{{len(view), len(view), text}}, nil
	}
	start, end, err := d.window(p, view)
	if err != nil {
		return nil, err
	}
	lines := splitAfter(lineFeeds(content))
	if d.Model == nil && slices.ContainsFunc(lines, isPlaceholder) {
		return stretched(view, start, end, lines)
	}
	if end < len(view) || strings.HasSuffix(view, "\n") {
		content = ended(content)
	}
	if start > 0 && view[start-1] != '\n' && content != "" {
		content = "\n" + content
	}
	return []change{{start, end, content}}, nil
}

// window is where the lines of a draft begin and end. There must not be more than maxWindow of them.
func (d Draft) window(p place, view string) (start, end int, err error) {
	first, start, end, err := strictWindow(view, d.Start, d.End)
	if err != nil {
		return 0, 0, err
	}
	if n := lineCount(view[start:end]); n > maxWindow {
		return 0, 0, refuse(CodeInvalidRange, "[Edit error: The range of lines to edit is too long.]\n"+
			"[The maximum number of lines allowed to edit at once is %d. Got (L%d-L%d) %d lines.]\n%s",
			maxWindow, first, first+n-1, n, likely(p.shown, view, d.Content))
	}
	return start, end, nil
}

// likely shows the regions of a text that have the most words in common with a draft.
func likely(path, view, draft string) string {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(draft) {
		words[word] = true
	}
	type region struct {
		first int
		lines []string
		score float64
	}
	var best []region
	seen := map[string]bool{}
	rank := func(r region) {
		clear(seen)
		for _, line := range r.lines {
			for word := range strings.FieldsSeq(line) {
				if words[word] && !seen[word] {
					seen[word] = true
					r.score++
				}
			}
		}
		if len(best) == maxChunks && r.score <= best[maxChunks-1].score {
			return
		}
		r.lines = slices.Clone(r.lines)
		best = append(best, r)
		slices.SortStableFunc(best, func(a, b region) int { return cmp.Compare(b.score, a.score) })
		best = best[:min(len(best), maxChunks)]
	}
	at := region{first: 1}
	for line := range strings.SplitSeq(strings.TrimSuffix(view, "\n"), "\n") {
		if at.lines = append(at.lines, line); len(at.lines) == chunkLines {
			rank(at)
			at.first, at.lines = at.first+chunkLines, at.lines[:0]
		}
	}
	if len(at.lines) > 0 {
		rank(at)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "Give a start and an end no more than %d lines apart. These regions of %s are most like the draft:", maxWindow, path)
	for i, r := range best {
		fmt.Fprintf(&out, "\n[region %d: lines %d-%d]", i+1, r.first, r.first+len(r.lines)-1)
		for j, line := range r.lines {
			fmt.Fprintf(&out, "\n%d|%s", r.first+j, printable(shortened(line)))
		}
	}
	return out.String()
}

var (
	commentMarks = lazily(`^\{?(?:#+|//+|--+|;+|%+|/\*+|<!--+)\s*(.*?)\s*(?:\*+/|--+>)?\}?$`)
	keptWords    = lazily(`^(?:` +
		`(?:the )?(?:rest|remainder) of(?: .{1,60})?` +
		`|(?:the )?(?:rest|remainder) (?:(?:is|stays?|remains?) )?(?:unchanged|the same|as is|as before)` +
		`|no changes?(?: .{1,60})?` +
		`|(?:keep |leave )?(?:the )?(?:existing|unchanged|remaining|previous|other|same)` +
		`(?: (?:code|lines?|content|text|methods?|functions?|imports?|implementation|logic|file|class|classes|fields|tests?))?` +
		`(?: (?:here|above|below|unchanged|stays?|remains?|as is|as before))*` +
		`|(?:code |lines? |content )?(?:is |are )?(?:unchanged|omitted)(?: (?:code|lines?|here|above|below))?` +
		`)$`)
)

// lazily compiles an expression when it is first used: few sandboxes need any, and
// all of them would start a millisecond later.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// isPlaceholder says whether a line stands for lines that stay. It must look like a comment, or have dots around it, so
// that prose which says "unchanged" is none.
func isPlaceholder(line string) bool {
	line = strings.TrimFunc(line, isSpace)
	if len(line) > 120 {
		return false
	}
	inner, marked := line, false
	if found := commentMarks().FindStringSubmatch(line); found != nil {
		inner, marked = found[1], true
	}
	if framed := strings.TrimRight(inner, "-=*# \t"); framed != inner {
		inner = strings.TrimLeft(framed, "-=* \t")
	}
	core := strings.ToLower(strings.Trim(inner, ".…()[] \t"))
	dotted := strings.HasPrefix(inner, "...") || strings.HasPrefix(inner, "…")
	if core == "" {
		return marked && dotted // "# ..."; a bare "..." is Python
	}
	return (marked || dotted) && keptWords().MatchString(strings.Join(strings.Fields(core), " "))
}

// stretch is a run of a draft's lines between placeholders, from its first to its last line that is not blank.
type stretch struct {
	lines []string
	// first and last are the lines of the window that its first and last line are.
	first, last int
}

// stretched finds the changes that a draft with placeholders makes to the lines of view from start to end.
func stretched(view string, start, end int, draft []string) ([]change, error) {
	window := splitAfter(view[start:end])
	var stretches []stretch
	var run []string
	cut := func() {
		blank := func(line string) bool { return strings.TrimFunc(line, isSpace) == "" }
		for len(run) > 0 && blank(run[0]) {
			run = run[1:]
		}
		for len(run) > 0 && blank(run[len(run)-1]) {
			run = run[:len(run)-1]
		}
		if len(run) > 0 {
			stretches = append(stretches, stretch{lines: run})
		}
		run = nil
	}
	for _, line := range draft {
		if isPlaceholder(line) {
			cut()
			continue
		}
		run = append(run, line)
	}
	open := len(run) > 0 && strings.TrimSpace(strings.Join(run, "")) != "" // the draft ends without a placeholder
	cut()
	if len(stretches) == 0 {
		return nil, refuse(CodeNoChange, "The draft has nothing but placeholders, so there is nothing to change.")
	}
	above := strings.Count(view[:start], "\n")
	if err := anchor(window, stretches, above, !isPlaceholder(firstOf(draft)), open); err != nil {
		return nil, err
	}
	offsets := make([]int, len(window)+1)
	offsets[0] = start
	for i, line := range window {
		offsets[i+1] = offsets[i] + len(line)
	}
	changes := make([]change, len(stretches))
	for i, s := range stretches {
		from, to := offsets[s.first], offsets[s.last+1]
		changes[i] = change{from, to, s.text(view[from:to])}
	}
	return changes, nil
}

// firstOf is the first line that is not blank.
func firstOf(lines []string) string {
	for _, line := range lines {
		if strings.TrimFunc(line, isSpace) != "" {
			return line
		}
	}
	return ""
}

// text is what a stretch puts in the place of lines: itself, moved to their indentation where its own is another.
func (s stretch) text(old string) string {
	text := strings.TrimSuffix(strings.Join(s.lines, ""), "\n")
	if indent := indentation(old); indentation(text) != indent {
		text = indented(text, indent)
	}
	if strings.HasSuffix(old, "\n") {
		text += "\n"
	}
	return text
}

// anchor finds where the stretches begin and end in the window. above is how many lines stand over it. Where begins or ends
// is set, no placeholder stands before the first or after the last stretch.
func anchor(window []string, stretches []stretch, above int, begins, ends bool) error {
	if len(stretches) > len(window) {
		return refuse(CodeNoMatch, "The draft has %d stretches between placeholders, and the range has %d lines. Each stretch must begin "+
			"with another line of the range. Nothing was changed.", len(stretches), len(window))
	}
	inner := trimmed(window)
	anchors := make([]anchorLine, 0, 2*len(stretches))
	for _, s := range stretches {
		anchors = append(anchors, newAnchor(window, inner, s.lines[0], false))
		anchors = append(anchors, newAnchor(window, inner, s.lines[len(s.lines)-1], len(s.lines) == 1))
	}
	isText := func(line string) bool { return line != "" }
	if first := slices.IndexFunc(inner, isText); begins {
		anchors[0].only(first)
	}
	if ends {
		last := len(inner) - 1
		for last > 0 && !isText(inner[last]) {
			last--
		}
		anchors[len(anchors)-1].only(last)
	}
	// What comes too early for the lines before, or too late for those behind, is no candidate.
	least := -1
	for i := range anchors {
		least = anchors[i].after(least)
	}
	most := len(window)
	for i := range slices.Backward(anchors) {
		most = anchors[i].before(most, i+1 < len(anchors) && anchors[i+1].same)
	}
	for _, a := range anchors {
		if err := a.check(above); err != nil {
			return err
		}
	}
	for i := range stretches {
		stretches[i].first, stretches[i].last = anchors[2*i].at[0], anchors[2*i+1].at[0]
	}
	return nil
}

// anchorLine is a line of a draft that must stand in the window.
type anchorLine struct {
	line string
	same bool  // it is the line of the anchor before, too
	all  []int // where it stands in the window
	at   []int // where it can stand, its neighbours considered
	edge bool  // it must be the first or the last line of the window
}

// newAnchor finds a line in the window: as it is, else without the white space around it, as it stands in inner.
func newAnchor(window, inner []string, line string, same bool) anchorLine {
	a := anchorLine{line: strings.TrimFunc(line, isSpace), same: same}
	line = strings.TrimSuffix(line, "\n")
	for i, w := range window {
		if strings.TrimSuffix(w, "\n") == line {
			a.all = append(a.all, i)
		}
	}
	if a.all == nil {
		for i, w := range inner {
			if w == a.line {
				a.all = append(a.all, i)
			}
		}
	}
	a.at = slices.Clone(a.all)
	return a
}

// only leaves one line of the window as a candidate.
func (a *anchorLine) only(line int) {
	a.edge = true
	a.at = slices.DeleteFunc(a.at, func(at int) bool { return at != line })
}

// after drops candidates that do not come after a line, and returns the first one that is left.
func (a *anchorLine) after(least int) int {
	a.at = slices.DeleteFunc(a.at, func(at int) bool { return at < least || at == least && !a.same })
	if len(a.at) == 0 {
		return least
	}
	return a.at[0]
}

// before drops candidates that do not come before a line, and returns the last one that is left.
func (a *anchorLine) before(most int, same bool) int {
	a.at = slices.DeleteFunc(a.at, func(at int) bool { return at > most || at == most && !same })
	if len(a.at) == 0 {
		return most
	}
	return a.at[len(a.at)-1]
}

func (a *anchorLine) check(above int) error {
	if len(a.at) == 1 {
		return nil
	}
	const rule = "Between placeholders, a draft must begin and end with lines that are in the file, in their order and each in one place. " +
		"Nothing was changed."
	numbers := func(at []int) string {
		ranges := make([]lineRange, len(at))
		for i, n := range at {
			ranges[i] = lineRange{above + n + 1, above + n + 1}
		}
		return lineRanges(ranges)
	}
	switch {
	case len(a.all) == 0:
		return refuse(CodeNoMatch, "The line `%s` of the draft is not in the range. %s", a.line, rule)
	case len(a.at) > 1:
		return refuse(CodeMultipleMatches, "The line `%s` of the draft can be %s. %s", a.line, numbers(a.at), rule)
	case a.edge:
		return refuse(CodeNoMatch, "The line `%s` of the draft is %s, and lines above or below it would be lost. "+
			"Put a placeholder there to keep them. %s", a.line, numbers(a.all), rule)
	}
	return refuse(CodeNoMatch, "The line `%s` of the draft is %s, which is out of order. %s", a.line, numbers(a.all), rule)
}
