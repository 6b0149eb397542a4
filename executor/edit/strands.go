package edit

import (
	"fmt"
	"strings"
)

// strands runs a command of the Strands agents' editor. It matches line ends exactly, counts the empty text after a
// final line end as a line, and has no second, tolerant search. Unlike the original it keeps tabs and invalid UTF-8.
func (e *Editor) strands(p place, c Command, insertLine int) (Result, error) {
	switch {
	case c.Name == "create" && p.exists():
		return Result{}, refuse(CodeAlreadyExists,
			"File already exists at: %s. Cannot overwrite files using command `create`.", p.shown)
	case c.Name != "create" && c.Name != "undo_edit" && !p.exists():
		return Result{}, refuse(CodeFileNotFound, "The path %s does not exist. Please provide a valid path.", p.shown)
	case c.Name != "view" && p.isDir():
		return Result{}, refuse(CodeIsDirectory,
			"The path %s is a directory and only the `view` command can be used on directories", p.shown)
	}
	switch c.Name {
	case "view":
		return e.strandsView(p, c.ViewRange)
	case "create":
		if c.FileText == nil {
			return Result{}, missing("file_text", c.Name)
		}
		return e.newFile(p, *c.FileText)
	case "str_replace":
		return e.strandsReplace(p, c)
	case "insert":
		return e.strandsInsert(p, c, insertLine)
	case "undo_edit":
		return e.undo(p)
	}
	return Result{}, refuse(CodeInvalidArgument,
		"Unknown command %q. It should be one of view, create, str_replace, insert, undo_edit.", c.Name)
}

// openExact loads a file for matching with its line ends. It refuses UTF-16 and UTF-32, in which these editors find no
// text.
func (e *Editor) openExact(p place) (*file, *text, error) {
	f, t, err := e.open(p)
	if err != nil {
		return nil, nil, err
	}
	if err := t.refuseWide(p); err != nil {
		return nil, nil, err
	}
	return f, t.withEnds(), nil
}

func (t *text) refuseWide(p place) error {
	if t.mark > 0 && t.charset.coding != nil {
		return refuse(CodeNoMatch, "No replacement was performed: %s is written in %s, in which this tool finds nothing. "+
			"Edit it with a command, such as iconv and sed.", p.shown, t.charset.name)
	}
	return nil
}

func (e *Editor) strandsView(p place, lines []int) (Result, error) {
	if p.isDir() {
		if len(lines) > 0 {
			return Result{}, refuse(CodeInvalidRange,
				"The `view_range` parameter is not allowed when `path` points to a directory.")
		}
		shown, err := e.tree(p)
		if err != nil {
			return Result{}, unreadable(p.shown, err)
		}
		return Result{Text: shown, Existed: true}, nil
	}
	f, t, err := e.open(p)
	if err != nil {
		return Result{}, err
	}
	body, first := t.withEnds().view, 1
	if len(lines) > 0 {
		if body, err = strandsRange(body, lines); err != nil {
			return Result{}, err
		}
		first = lines[0]
	}
	return Result{Text: p.dialect.numbered(p.shown, body, first), SHA256: string(hashOf(f.data)), Existed: true}, nil
}

// strandsRange returns a range of lines of a text.
func strandsRange(body string, lines []int) (string, error) {
	if len(lines) != 2 {
		return "", refuse(CodeInvalidRange, "Invalid `view_range`: %s. It should be a list of two integers.", list(lines))
	}
	count, first, last := strings.Count(body, "\n")+1, lines[0], lines[1]
	invalid := func(format string, args ...any) error {
		return refuse(CodeInvalidRange, "Invalid `view_range`: %s. %s", list(lines), fmt.Sprintf(format, args...))
	}
	switch {
	case first < 1 || first > count:
		return "", invalid("Its first element `%d` should be within the range of lines of the file: [1, %d]", first, count)
	case last > count:
		return "", invalid("Its second element `%d` should be smaller than the number of lines in the file: `%d`", last,
			count)
	case last != -1 && last < first:
		return "", invalid("Its second element `%d` should be larger or equal than its first `%d`", last, first)
	case last == -1:
		last = count
	}
	return strandsSnippet(body, first, last), nil
}

func (e *Editor) strandsReplace(p place, c Command) (Result, error) {
	if c.Edits == nil && c.OldStr == nil {
		return Result{}, missing("old_str", c.Name)
	}
	edits := c.replacements()
	for _, r := range edits {
		if r.Old == r.New {
			return Result{}, refuse(CodeNoChange, "No replacement was performed: `old_str` and `new_str` are the same.")
		}
	}
	f, t, err := e.openExact(p)
	if err != nil {
		return Result{}, err
	}
	if c.Edits != nil {
		return e.applyEach(p, f, t, edits, func(view string, r Replacement) ([]change, error) { return onceExactly(p, view, r) })
	}
	changes, err := onceExactly(p, t.view, edits[0])
	if err != nil {
		return Result{}, err
	}
	line := 1 + strings.Count(t.view[:changes[0].start], "\n")
	added := strings.Count(edits[0].New, "\n")
	first := max(1, line-snippetContext)
	return e.apply(p, f, t, changes, lineDiff, func(_, view string) string {
		return fmt.Sprintf("The file %s has been edited. ", p.shown) +
			p.dialect.numbered("a snippet of "+p.shown, strandsSnippet(view, first, line+snippetContext+added),
				first) + reviewReplace
	})
}

// onceExactly finds the only place of a replacement, without tolerance.
func onceExactly(p place, view string, r Replacement) ([]change, error) {
	switch count, lines := occurrences(view, r.Old); {
	case count == 0:
		return nil, noMatch(view, r.Old, p.shown)
	case count > 1:
		return nil, severalMatches(p, view, r.Old, lines, replaceEach(view, r.Old, ""))
	}
	at := strings.Index(view, r.Old)
	return []change{{at, at + len(r.Old), r.New}}, nil
}

func (e *Editor) strandsInsert(p place, c Command, after int) (Result, error) {
	switch {
	case c.InsertLine == nil:
		return Result{}, missing("insert_line", c.Name)
	case c.NewStr == nil:
		return Result{}, missing("new_str", c.Name)
	}
	f, t, err := e.openExact(p)
	if err != nil {
		return Result{}, err
	}
	count := strings.Count(t.view, "\n") + 1
	if after < 0 || after > count {
		return Result{}, refuse(CodeInvalidRange, "Invalid `insert_line` parameter: %s. It should be within the range of lines of the file: [0, %d]",
			*c.InsertLine, count)
	}
	added := *c.NewStr
	at := lineStart(t.view, after)
	switch {
	case t.view == "":
	case after == count:
		added = "\n" + added
	default:
		added += "\n"
	}
	first := max(0, after-snippetContext) + 1
	last := after + snippetContext + strings.Count(*c.NewStr, "\n") + 1
	return e.apply(p, f, t, []change{{at, at, added}}, lineDiff, func(_, view string) string {
		return fmt.Sprintf("The file %s has been edited. ", p.shown) +
			p.dialect.numbered("a snippet of the edited file", strandsSnippet(view, first, last), first) + reviewInsert
	})
}

// strandsSnippet returns the lines first to last without the last line feed, so that an empty line at the end counts.
func strandsSnippet(view string, first, last int) string {
	shown := snippet(view, first, last)
	if strings.Count(view, "\n")+1 > last {
		return strings.TrimSuffix(shown, "\n")
	}
	return shown
}
