package edit

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/actiond/actiond/internal/lazyregexp"
	"github.com/actiond/actiond/internal/shorten"
)

const (
	// maxWindow bounds the lines that one draft may replace, as OpenHands documents.
	maxWindow = 300
	// chunkLines is the number of lines of a region in a refusal, maxChunks the number of regions.
	chunkLines, maxChunks = 20, 3
)

// Draft is the new version of a part of a file. A placeholder such as "# ... existing code ..." replaces lines that
// stay.
type Draft struct {
	// Path may be relative to Dir.
	Path, Dir string
	Content   string
	// Start and End are the first and the last line that the draft replaces, counted from 1. End -1 is the end of the
	// file, Start -1 appends. The empty line after a final line end counts too.
	Start, End int
	// IfSHA256 is the hash that the file must have, "" for any.
	IfSHA256 string
	// Model merges a draft into its lines and returns the new lines. If nil, [Editor.Merge] merges by its own rules. Merge
	// calls Model without a lock; if the file changes meanwhile, Merge fails with CodeConflict.
	Model func(original, draft string) (string, error)
}

// Merge merges a draft into a file, or creates the file. Without a placeholder the draft replaces its lines. With
// placeholders, each stretch of the draft between them must begin and end with lines that occur in the file, in the
// same order and each at one possible place: the lines in between are replaced and the rest stays. Where the draft
// begins or ends without a placeholder, so do its lines.
//
// Merge returns an *Error if it fails or if the draft is ambiguous; the file is then unchanged.
func (e *Editor) Merge(d Draft) (Result, error) {
	path := absolutePath(d.Dir, d.Path)
	m, err := e.merge(d, path)
	m.Path = path
	return m, err
}

func (e *Editor) merge(d Draft, path string) (Result, error) {
	c := Command{Path: path, Content: &d.Content, IfSHA256: d.IfSHA256}
	if _, err := c.check(); err != nil {
		return Result{}, err
	}
	if d.Model == nil || d.Start == -1 {
		return e.mergeInto(c, d, d.Content)
	}
	original, sum, err := e.window(c, d)
	if err != nil || sum == "" {
		if err == nil { // the file does not exist
			return e.mergeInto(c, d, d.Content)
		}
		return Result{}, err
	}
	merged, err := d.Model(original, d.Content)
	if err != nil {
		return Result{}, &Error{CodeCommandFailed, "The draft could not be merged: " + err.Error() + ". Nothing was changed.", err}
	}
	c.IfSHA256 = string(sum)
	return e.mergeInto(c, d, merged)
}

// window returns the lines that a draft replaces and the hash of the file, "" if it does not exist.
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

// openDrafted loads the file of a draft.
func (e *Editor) openDrafted(p place) (*file, *text, error) {
	if p.isDir() {
		return nil, nil, refuse(CodeIsDirectory, "Path is a directory: %s. You can only edit files", p.shown)
	}
	return e.open(p)
}

// mergeInto writes a text into a file: the draft, or the result of the model.
func (e *Editor) mergeInto(c Command, d Draft, content string) (Result, error) {
	p, leave, err := e.enterFor(c)
	defer leave()
	if err != nil {
		return Result{}, err
	}
	if !p.exists() {
		if err := d.checkDecoration(""); err != nil {
			return Result{}, err
		}
		return e.newFile(p, ended(content))
	}
	f, t, err := e.openDrafted(p)
	if err != nil {
		return Result{}, err
	}
	changes, err := d.changes(p, t.view, content)
	if err != nil {
		return Result{}, err
	}
	return e.apply(p, f, t, changes, lineDiff, func(diff, _ string) string {
		return cmp.Or(diff, "(no changes detected. Please make sure your edits change the content of the existing file.)")
	})
}

// ended adds a final line end to a text that is not empty.
func ended(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// changes returns the changes that a draft makes to a text.
func (d Draft) changes(p place, view, content string) ([]change, error) {
	if err := d.checkDecoration(view); err != nil {
		return nil, err
	}
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
	if d.Model == nil {
		lines := slices.Collect(strings.Lines(lineFeeds(content)))
		if kept := placeholders(view[start:end], lines); len(kept) > 0 {
			return stretched(view, start, end, lines, kept)
		}
		if err := checkLoss(view[start:end], content); err != nil {
			return nil, err
		}
	}
	if end < len(view) || strings.HasSuffix(view, "\n") {
		content = ended(content)
	}
	if start > 0 && view[start-1] != '\n' && content != "" {
		content = "\n" + content
	}
	return []change{{start, end, content}}, nil
}

// window returns the offsets of the lines of a draft. It refuses more than maxWindow lines.
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

// likely shows the regions of a text that are most like a draft.
func likely(path, view, draft string) string {
	lines, scores := align(view, strings.Split(draft, "\n"))
	regions := make([]float64, (len(lines)+chunkLines-1)/chunkLines)
	for start, score := range scores {
		regions[start/chunkLines] = max(regions[start/chunkLines], score)
	}
	best := make([]int, len(regions))
	for i := range best {
		best[i] = i
	}
	slices.SortStableFunc(best, func(a, b int) int { return cmp.Compare(regions[b], regions[a]) })
	var out strings.Builder
	fmt.Fprintf(&out, "Give a start and an end no more than %d lines apart. These regions of %s are most like the draft:",
		maxWindow, path)
	for i, region := range best[:min(len(best), maxChunks)] {
		first := region * chunkLines
		shown := lines[first:min(first+chunkLines, len(lines))]
		fmt.Fprintf(&out, "\n[region %d: lines %d-%d]", i+1, first+1, first+len(shown))
		for j, line := range shown {
			fmt.Fprintf(&out, "\n%d|%s", first+j+1, printable(shorten.Text(line, maxComparedLine)))
		}
	}
	return out.String()
}

// stretch is the run of a draft's lines between two placeholders, without blank lines at its ends.
type stretch struct {
	lines []string
	// first and last are the lines of the window that its first and last line match.
	first, last int
}

// placeholders returns the lines of a draft that stand for lines of its range. A line that the range has is text, and so
// is one without dots that stands for no line, unless it is short and the first or the last one.
func placeholders(window string, draft []string) map[int]bool {
	if !slices.ContainsFunc(draft, isPlaceholder) {
		return nil
	}
	w, kept := newRewriting(window, strings.Join(draft, "")), map[int]bool{}
	whole := w.keepsAll()
	for i, line := range w.now {
		neighbours, blank := w.between(i)
		r, edge := w.remarks[i], w.prev[i] < 0 || w.next[i] == len(w.now)
		isComment := !r.dotted && !(edge && strings.Count(r.words, " ") < 3)
		isText := w.left[line] >= 0 || w.left[line] == -1 && isComment && (neighbours || whole) && blank <= 0
		if r.keeps() && !isText {
			kept[w.nowAt[i]] = true
		}
	}
	return kept
}

var (
	numbered = lazyregexp.New(`(?m)^[ \t]*\d+[|\t]`)
	fence    = lazyregexp.New("(?m)^[ \t]*(?:```|~~~)")
)

// checkDecoration refuses a draft in a code fence, or with the line numbers of this tool's views, unless its file has
// such lines.
func (d Draft) checkDecoration(view string) error {
	lines, _ := filled(d.Content)
	if len(lines) == 0 || d.Model != nil {
		return nil
	}
	var what string
	switch ext := filepath.Ext(d.Path); {
	case fence().MatchString(lines[0]) && ext != ".md" && ext != ".mdx" && ext != ".markdown" && !fence().MatchString(view):
		what = "a code fence"
	case d.Start != -1 && view != "" && len(numbered().FindAllString(strings.Join(lines, "\n"), -1)) == len(lines) && !numbered().MatchString(view):
		what = "line numbers"
	default:
		return nil
	}
	return refuse(CodeInvalidArgument, "The draft has %s, which would stand in the file: `%s`. Send the lines alone. Nothing was changed.", what, lines[0])
}

// checkLoss refuses lines that have a new remark and fewer lines than those that they replace.
func checkLoss(old, text string) error {
	line := newRewriting(old, text).lossy(true)
	if line == "" {
		return nil
	}
	return refuse(CodeInvalidArgument, "The line `%s` of the draft is not in the range, and the draft has fewer lines than it replaces. "+
		"If it stands for lines that stay, write `# ... existing code ...` in its place. "+
		"If it is a comment, leave it out here and add it by a draft of its own. Nothing was changed.", line)
}

// takenFor lists placeholders of a draft for an error.
func takenFor(draft []string, kept map[int]bool) string {
	var named []string
	for _, at := range slices.Sorted(maps.Keys(kept))[:min(len(kept), 3)] {
		named = append(named, fmt.Sprintf("`%s` (line %d)", trimSpace(draft[at]), at+1))
	}
	return " Taken for lines that stay: " + strings.Join(named, ", ") + "."
}

// stretched returns the changes that a draft with placeholders makes to the lines of view from start to end.
func stretched(view string, start, end int, draft []string, kept map[int]bool) ([]change, error) {
	window := slices.Collect(strings.Lines(view[start:end]))
	var stretches []stretch
	var run []string
	cut := func() {
		blank := func(line string) bool { return trimSpace(line) == "" }
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
	for at, line := range draft {
		if kept[at] {
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
	first := slices.IndexFunc(draft, func(line string) bool { return trimSpace(line) != "" })
	if err := anchor(window, stretches, above, !kept[first], open); err != nil {
		err.Message += takenFor(draft, kept)
		return nil, err
	}
	offsets := make([]int, len(window)+1)
	offsets[0] = start
	for i, line := range window {
		offsets[i+1] = offsets[i] + len(line)
	}
	changes, same := make([]change, len(stretches)), true
	for i, s := range stretches {
		from, to := offsets[s.first], offsets[s.last+1]
		changes[i] = change{from, to, s.text(view[from:to])}
		if err := checkLoss(view[from:to], changes[i].text); err != nil {
			return nil, err
		}
		same = same && changes[i].text == view[from:to]
	}
	if same {
		return nil, refuse(CodeNoChange, "The draft changes nothing.%s", takenFor(draft, kept))
	}
	return changes, nil
}

// text returns the stretch with the indentation of the lines that it replaces.
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

// anchor finds the lines of the window at which the stretches begin and end. above is the number of lines before the
// window. If begins or ends is set, the draft has no placeholder before the first or after the last stretch.
func anchor(window []string, stretches []stretch, above int, begins, ends bool) *Error {
	if len(stretches) > len(window) {
		return refuse(CodeNoMatch, "The draft has %d stretches between placeholders, and the range has %d lines. Each stretch must begin "+
			"with another line of the range. Nothing was changed.", len(stretches), len(window))
	}
	inner := mapped(window, trimSpace)
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
	// Drop candidates too early for the lines before, or too late for the lines after.
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

// anchorLine is a line of a draft that must occur in the window.
type anchorLine struct {
	line string
	same bool  // it is the line of the anchor before, too
	all  []int // its positions in the window
	at   []int // its possible positions, given its neighbours
	edge bool  // it must be the first or the last line of the window
}

// newAnchor finds a line in the window: exactly, else without surrounding white space, as in inner.
func newAnchor(window, inner []string, line string, same bool) anchorLine {
	a := anchorLine{line: trimSpace(line), same: same}
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

// only keeps one line of the window as a candidate.
func (a *anchorLine) only(line int) {
	a.edge = true
	a.at = slices.DeleteFunc(a.at, func(at int) bool { return at != line })
}

// after drops candidates that are not after a line and returns the first one left.
func (a *anchorLine) after(least int) int {
	a.at = slices.DeleteFunc(a.at, func(at int) bool { return at < least || at == least && !a.same })
	if len(a.at) == 0 {
		return least
	}
	return a.at[0]
}

// before drops candidates that are not before a line and returns the last one left.
func (a *anchorLine) before(most int, same bool) int {
	a.at = slices.DeleteFunc(a.at, func(at int) bool { return at > most || at == most && !same })
	if len(a.at) == 0 {
		return most
	}
	return a.at[len(a.at)-1]
}

func (a *anchorLine) check(above int) *Error {
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
