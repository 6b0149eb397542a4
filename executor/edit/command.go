package edit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/actiond/actiond/internal/files"
)

// Command is one editor command, as the client sent it. A nil pointer is a missing parameter.
type Command struct {
	// Dialect selects rules and messages. Strands has neither replace nor write, Gemini only replace.
	Dialect Dialect
	// Name is view, create, str_replace, insert, undo_edit, replace, write, copy or move.
	Name string
	// Path must be absolute, except in the dialects Gemini and Actiond, where it may be relative to Dir.
	Path, Dir string
	// NewPath is where copy and move put the file; it must be absolute, and no file may exist there. Only the dialect
	// OpenHands has these commands.
	NewPath string
	// FileText is the content of the new file of create.
	FileText *string
	// OldStr is the text that str_replace and replace search for.
	OldStr *string
	// NewStr replaces it, nil deletes it. insert requires it: it is the text to insert.
	NewStr *string
	// InsertLine is the number of the line after which insert adds its text, 0 for the top, as the client sent it.
	InsertLine *string
	// ViewRange is the first and the last line that view shows, counted from 1; -1 is the end. Empty means everything.
	ViewRange []int
	// Markdown makes view show notebooks and tables as Markdown, images as data URLs, and the type of any other file that
	// is not text. View shows PDF as Markdown without it.
	Markdown bool
	// Expected is the number of matches that replace requires, from 1 to 100,000; nil means 1.
	Expected *int
	// AllowMultiple makes replace change all matches if Expected is nil.
	AllowMultiple bool
	// Fuzzy makes replace use the most similar lines if OldStr has no match. Only the dialect Gemini has it.
	Fuzzy bool
	// Regex makes str_replace search for OldStr as an expression of RE2, in which NewStr names groups as $1 and ${name}.
	// Expected and AllowMultiple count the matches. Only the dialect OpenHands has it.
	Regex bool
	// Edits are used by str_replace and replace instead of OldStr and NewStr: each works on the result of the previous
	// one, and either all are made or none.
	Edits []Replacement
	// Native makes the refusal of a file above the limit of its size name another way to edit it, and the diff a patch.
	// Dialects keep their words and forms.
	Native bool
	// IfSHA256 is the hexadecimal hash that the file must have, otherwise the command fails with CodeConflict; "" for any.
	IfSHA256 string
	// Content is the text of write.
	Content *string
	// Start and End are the first and the last line that write replaces, and of those in which str_replace searches,
	// counted from 1 as a whole view numbers them, so that the empty line after a final line end counts too. 0 means the
	// default: Start 1, End -1, which is the last line. Start -1 makes write append. Only the dialect OpenHands has them
	// for str_replace.
	Start, End int

	unrecorded bool // keep the change out of the undo history
	exact      bool // write Content as it is
	slash      bool // Path ended with one
	offsets    bool // the caller asks for lines by an offset and a limit, not by ViewRange
}

const (
	// maxReplacements bounds how many places one replace changes.
	maxReplacements = 100_000
	// maxEdits bounds how many replacements one command makes, each of which reads the whole text.
	maxEdits = 100
)

const (
	reviewReplace = "Review the changes and make sure they are as expected. Edit the file again if necessary."
	reviewInsert  = "Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). " +
		"Edit the file again if necessary."
)

// viewOnly lists the extensions of files that the reference shows and never edits. PDF alone is converted here.
var viewOnly = []string{".docx", ".xlsx", ".pptx", ".pdf", ".mp3", ".wav", ".m4a", ".flac"}

// Do runs an editor command. It returns an *Error if the command was refused or failed; the file is then unchanged. The
// checks run in the order of the reference.
func (e *Editor) Do(c Command) (Result, error) {
	c.slash = strings.HasSuffix(c.Path, "/")
	switch c.Dialect {
	case Gemini:
		c.Path = e.findName(c.Dir, c.Path, c.Name != "replace" || c.OldStr != nil && *c.OldStr == "")
	case Toolset, Actiond:
		c.Path = absolutePath(c.Dir, c.Path)
	}
	c.Path = cleanPath(c.Path)
	result, err := e.do(c)
	if err != nil {
		return Result{Path: c.Path}, err
	}
	result.Path = c.Path
	return result, nil
}

func (e *Editor) do(c Command) (Result, error) {
	line, err := c.check()
	if err != nil {
		return Result{}, err
	}
	if !strings.HasPrefix(c.Path, "/") {
		return Result{}, e.relativePath(c.Dialect, c.Path)
	}
	if c.Dialect == OpenHands && (c.Name == "copy" || c.Name == "move") {
		return e.transfer(c)
	}
	p, leave, err := e.enterFor(c)
	defer leave()
	if err != nil {
		return Result{}, err
	}
	switch c.Dialect {
	case Strands:
		return e.strands(p, c, line)
	case Gemini:
		return e.gemini(p, c)
	}
	if err := c.checkPlace(p); err != nil {
		return Result{}, err
	}
	r, err := e.carryOut(p, c, line)
	if c.Native && (c.Name == "str_replace" || c.Name == "insert" || c.Name == "write") {
		err = withAdvice(err, "Edit it in a shell, with a command such as sed -i, or split it into smaller files.")
	}
	return r, err
}

// carryOut executes a command that was checked on a file that is locked.
func (e *Editor) carryOut(p place, c Command, line int) (Result, error) {
	switch c.Name {
	case "view":
		return e.view(p, c)
	case "create":
		if c.FileText == nil {
			return Result{}, missing("file_text", c.Name)
		}
		return e.newFile(p, *c.FileText)
	case "str_replace":
		return e.strReplace(p, c)
	case "insert":
		return e.insert(p, c, line)
	case "undo_edit":
		return e.undo(p)
	case "replace":
		return e.replace(p, c)
	case "write":
		return e.writeLines(p, c)
	}
	return Result{}, refuse(CodeInvalidArgument, "Unrecognized command %s. The allowed commands for the oh_editor tool are: "+
		"view, create, str_replace, insert, undo_edit", c.Name)
}

// check validates the parameters without looking at the file and returns InsertLine as a number.
func (c Command) check() (insertLine int, err error) {
	for _, text := range []struct {
		name  string
		value *string
	}{{"file_text", c.FileText}, {"old_str", c.OldStr}, {"new_str", c.NewStr}, {"content", c.Content}} {
		if text.value != nil && !utf8.ValidString(*text.value) {
			return 0, refuse(CodeInvalidArgument, "Parameter `%s` is not valid UTF-8.", text.name)
		}
	}
	for _, r := range c.Edits {
		if !utf8.ValidString(r.Old) || !utf8.ValidString(r.New) {
			return 0, refuse(CodeInvalidArgument, "Parameter `edits` is not valid UTF-8.")
		}
	}
	if n, err := hex.DecodeString(c.IfSHA256); err != nil || len(n) != 0 && len(n) != sha256.Size {
		return 0, refuse(CodeInvalidArgument, "Invalid `if_sha256` parameter: %q. It should be 64 hexadecimal digits.",
			c.IfSHA256)
	}
	if err := c.checkUse(); err != nil {
		return 0, err
	}
	if c.InsertLine == nil {
		return 0, nil
	}
	insertLine, err = strconv.Atoi(trimSpace(*c.InsertLine))
	if errors.Is(err, strconv.ErrRange) { // insertLine is then the largest or smallest int, outside of every file
		return insertLine, nil
	}
	if err != nil {
		return 0, refuse(CodeInvalidArgument, "Invalid insert_line value: '%s'. Expected an integer.", *c.InsertLine)
	}
	return insertLine, nil
}

// checkUse refuses parameters that the command would ignore.
func (c Command) checkUse() error {
	switch {
	case len(c.Edits) > maxEdits:
		return refuse(CodeInvalidArgument, "Parameter `edits` has %d replacements. At most %d are allowed.", len(c.Edits),
			maxEdits)
	case c.Edits != nil && c.Name != "str_replace" && c.Name != "replace":
		return refuse(CodeInvalidArgument, "Parameter `edits` is for the commands str_replace and replace, not for %s.",
			c.Name)
	case c.Edits != nil && (len(c.Edits) == 0 || c.OldStr != nil || c.NewStr != nil || c.Expected != nil ||
		c.AllowMultiple):
		return refuse(CodeInvalidArgument, "Parameter `edits` must have at least one replacement, and replaces "+
			"old_str, new_str, expected_replacements and allow_multiple.")
	case c.NewPath != "" && c.Name != "copy" && c.Name != "move":
		return refuse(CodeInvalidArgument, "Parameter `new_path` is for the commands copy and move, not for %s.", c.Name)
	case c.Fuzzy && (c.Dialect != Gemini || c.Name != "replace"):
		return refuse(CodeInvalidArgument, "Parameter `fuzzy` is only valid for the command replace of the dialect gemini.")
	case c.Regex && (c.Dialect != OpenHands || c.Name != "str_replace" || c.Edits != nil):
		return refuse(CodeInvalidArgument, "Parameter `regex` is for the command str_replace without a dialect, and takes one old_str and new_str.")
	case c.ranged() && (c.Name == "replace" || c.Name == "str_replace" && (c.Dialect != OpenHands || c.Edits != nil)):
		return refuse(CodeInvalidArgument, "Parameters `start` and `end` are for the commands write and str_replace without a dialect, "+
			"and without `edits`.")
	case c.Name != "replace" && !c.Regex && slices.ContainsFunc(c.replacements(), Replacement.counts):
		return refuse(CodeInvalidArgument, "Parameters `expected_replacements` and `allow_multiple` are for the command replace, "+
			"and for str_replace with `regex`. The command %s takes one place.", c.Name)
	}
	return nil
}

// ranged reports whether a command names a range of lines that is not the whole file.
func (c Command) ranged() bool { return c.Start != 0 && c.Start != 1 || c.End != 0 && c.End != -1 }

func (e *Editor) relativePath(d Dialect, path string) *Error {
	hint := "The path should be an absolute path, starting with `/`."
	switch d {
	case OpenHandsV1:
		hint = "The path should be an absolute path."
	case Strands:
		meant := absolutePath(e.root, path)
		return refuse(CodePathNotAllowed, "The path %s is not an absolute path, it should start with `/`. Maybe you meant %s?", path, meant)
	}
	if e.root != "" {
		meant := absolutePath(e.root, path)
		p, leave, err := e.enter(meant)
		defer leave()
		if err == nil && p.exists() {
			hint += fmt.Sprintf(" Maybe you meant %s?", meant)
		}
	}
	return invalid(CodePathNotAllowed, "path", path, hint)
}

// checkPlace refuses a command that does not fit the file at its path.
func (c Command) checkPlace(p place) error {
	creates := c.Name == "create" || c.Name == "replace" || c.Name == "write"
	switch {
	case c.Name == "create" && p.exists():
		return alreadyExists(p.shown)
	case !creates && c.Name != "undo_edit" && !p.exists():
		return notFound(p.shown)
	case c.Name == "view":
		return nil
	case p.isDir() && c.Dialect == Actiond:
		return refuse(CodeIsDirectory, "The path %s is a directory. Give the path of a file.", p.shown)
	case p.isDir():
		return invalid(CodeIsDirectory, "path", p.shown, fmt.Sprintf(
			"The path %s is a directory and only the `view` command can be used on directories.", p.shown))
	}
	suffix := filepath.Ext(p.shown)
	if c.Dialect == OpenHands && c.Name != "undo_edit" && slices.Contains(viewOnly, strings.ToLower(suffix)) {
		return invalid(CodeUnsupported, "path", p.shown, fmt.Sprintf("The path %s points to a binary file (%s) "+
			"and only the `view` command can be used on supported binary files.", p.shown, suffix))
	}
	return nil
}

// open loads a file for the editor and decodes it.
func (e *Editor) open(p place) (*file, *text, error) {
	limit := e.limit(p.dialect)
	f, err := e.load(p, limit)
	switch {
	case errors.Is(err, errTooLarge):
		size := p.info.Size()
		return nil, nil, refuse(CodeTooLarge, "File validation failed for %s: File is too large (%.1fMB). Maximum allowed size is %dMB.",
			p.shown, float64(size)/(1<<20), limit>>20)
	case errors.Is(err, files.ErrNotRegular):
		return nil, nil, refuse(CodeNotRegular, "File validation failed for %s: It is a %s and not a regular file, "+
			"so it cannot be read or edited by this tool.", p.shown, kindOf(p.info.Mode()))
	case err != nil:
		return nil, nil, unreadable(p.shown, err)
	}
	t, err := decode(f.data)
	if err != nil {
		return nil, nil, refuse(CodeBinary, "File validation failed for %s: File appears to be binary "+
			"and this file type cannot be read or edited by this tool.", p.shown)
	}
	return f, t, nil
}

func (e *Editor) view(p place, c Command) (Result, error) {
	lines := c.ViewRange
	if p.isDir() {
		if len(lines) > 0 {
			return Result{}, invalid(CodeInvalidRange, "view_range", list(lines),
				"The `view_range` parameter is not allowed when `path` points to a directory.")
		}
		show := e.listing
		if p.dialect == OpenHandsV1 {
			show = e.tree
		}
		shown, err := show(p)
		if err != nil {
			return Result{}, unreadable(p.shown, err)
		}
		return Result{Text: shown, Existed: true}, nil
	}
	if c.converts() {
		return e.viewDocument(p, lines, c.offsets)
	}
	if media := inlineType(p.shown); (c.Markdown || p.dialect == OpenHandsV1 || p.dialect == Actiond) && strings.HasPrefix(media, "image/") {
		f, err := e.loadPlain(p)
		if err != nil {
			return Result{}, err
		}
		return Result{Text: dataURL(media, f.data), SHA256: string(hashOf(f.data)), Existed: true}, nil
	}
	if c.Markdown && p.info.Mode().IsRegular() && p.info.Size() > e.limit(p.dialect) {
		return e.viewLarge(p, lines)
	}
	f, t, err := e.open(p)
	if c.Markdown && codeIs(err, CodeBinary) {
		return Result{}, e.notText(p)
	}
	if err != nil {
		return Result{}, err
	}
	r := Result{SHA256: string(hashOf(f.data)), Existed: true}
	if len(lines) == 0 {
		r.Text = p.dialect.numbered(p.shown, t.view, 1)
		return r, nil
	}
	if r.Text, err = viewRange(p, t.view, lines); err != nil {
		return Result{}, err
	}
	return r, nil
}

func (e *Editor) newFile(p place, content string) (Result, error) {
	r, err := e.createFile(p, []byte(content), creation{mode: 0o666})
	if err != nil {
		return Result{}, err
	}
	r.After = lineFeeds(content)
	r.Diff = p.diff(unifiedDiff, nil, []byte(content), "", r.After)
	r.Text = "File created successfully at: " + p.shown
	return r, nil
}

// strReplace replaces one text by another, or makes several replacements.
func (e *Editor) strReplace(p place, c Command) (Result, error) {
	switch {
	case c.Edits == nil && c.OldStr == nil:
		return Result{}, missing("old_str", c.Name)
	case c.Edits == nil && c.NewStr == nil && c.Dialect == OpenHandsV1:
		return Result{}, missing("new_str", c.Name)
	}
	edits := c.replacements()
	if c.Regex {
		return e.regexReplace(p, c, edits[0])
	}
	for _, r := range edits {
		if r.Old == r.New {
			return Result{}, sameStrings(r.New)
		}
	}
	f, t, err := e.open(p)
	if err != nil {
		return Result{}, err
	}
	if c.Edits != nil {
		return e.applyEach(p, f, t, edits, func(view string, r Replacement) ([]change, error) {
			return once(p, scope{view, 0, len(view), p.shown}, r)
		})
	}
	part, err := c.searched(p, t.view)
	if err != nil {
		return Result{}, err
	}
	changes, err := once(p, part, edits[0])
	if err != nil {
		return Result{}, err
	}
	at, replacement := changes[0].start, changes[0].text
	line := 1 + strings.Count(t.view[:at], "\n")
	return e.apply(p, f, t, changes, unifiedDiff,
		func(_, view string) string { return replacedAt(p, view, line, replacement) })
}

// replacedAt returns the answer that shows a text which replaced another one on a line.
func replacedAt(p place, view string, line int, text string) string {
	first := max(0, line-snippetContext) + 1
	last := line + snippetContext + strings.Count(lineFeeds(text), "\n")
	return fmt.Sprintf("The file %s has been edited. ", p.shown) +
		p.dialect.numbered("a snippet of "+p.shown, snippet(view, first, last), first) + reviewReplace
}

// replacements returns Edits, or OldStr and NewStr as the only replacement.
func (c Command) replacements() []Replacement {
	if c.Edits != nil {
		return c.Edits
	}
	r := Replacement{Expected: c.Expected, AllowMultiple: c.AllowMultiple}
	if c.OldStr != nil {
		r.Old = *c.OldStr
	}
	if c.NewStr != nil {
		r.New = *c.NewStr
	}
	return []Replacement{r}
}

// scope is the part of a view in which a text is searched for.
type scope struct {
	view       string
	start, end int
	name       string // for messages
}

// searched returns the lines in which str_replace searches.
func (c Command) searched(p place, view string) (scope, error) {
	first, last, err := c.lines()
	if err != nil {
		return scope{}, err
	}
	if total := strings.Count(view, "\n") + 1; first > total || last > total {
		return scope{}, refuse(CodeInvalidRange, "Invalid range for searching: start=%d, end=%d. The file has %d lines.",
			first, last, total)
	}
	in := scope{view, lineStart(view, first-1), len(view), rangeName(first, last, p.shown)}
	if last != -1 {
		in.end = lineStart(view, last)
	}
	return in, nil
}

// lines returns the first and the last line in which str_replace searches, -1 for the last of the file.
func (c Command) lines() (first, last int, err error) {
	first, last = cmp.Or(c.Start, 1), cmp.Or(c.End, -1)
	if first < 1 || last != -1 && last < first {
		err = refuse(CodeInvalidRange, "Invalid range for searching: start=%d, end=%d. start must be at least 1, "+
			"and end at least start, or -1 for the end of the file.", first, last)
	}
	return first, last, err
}

func rangeName(first, last int, path string) string {
	switch {
	case first == 1 && last == -1:
		return path
	case last == -1:
		return fmt.Sprintf("the lines from %d of %s", first, path)
	}
	return fmt.Sprintf("the lines %d to %d of %s", first, last, path)
}

// once finds the only place of a replacement, as OpenHands' editors do.
func once(p place, in scope, r Replacement) ([]change, error) {
	text, old := in.view[in.start:in.end], lineFeeds(r.Old)
	count, lines := occurrences(text, old)
	if count == 0 {
		return onceStripped(p, in, old, r.New)
	}
	if count > 1 {
		above := strings.Count(in.view[:in.start], "\n")
		for i := range lines {
			lines[i] += above
		}
		return nil, severalMatches(p, in.view, old, lines, replaceEach(in.view, old, ""))
	}
	at := in.start + strings.Index(text, old)
	return []change{{at, at + len(old), r.New}}, nil
}

// onceStripped is once without the white space around a passage, which models often get wrong. The rest must match
// exactly once, and not inside a longer line or word.
func onceStripped(p place, in scope, old, replacement string) ([]change, error) {
	stripped := trimSpace(old)
	if stripped == "" {
		return nil, noMatch(in.view, old, in.name)
	}
	if p.dialect != OpenHandsV1 {
		replacement = trimSpace(replacement)
	}
	var found []change
	inside := 0
	for _, c := range replaceEach(in.view[in.start:in.end], stripped, replacement) {
		c.start, c.end = c.start+in.start, c.end+in.start
		if !fits(in.view, c.start, c.end, old) || p.dialect == OpenHandsV1 && indentsTwice(in.view, c, old) {
			inside = cmp.Or(inside, 1+strings.Count(in.view[:c.start], "\n"))
			continue
		}
		found = append(found, c)
	}
	switch {
	case len(found) == 0 && inside > 0:
		err := noMatch(in.view, stripped, in.name)
		err.Message += fmt.Sprintf("\nLine %d has it without the white space around it, but inside a longer line or word, or with other indentation.", inside)
		return nil, err
	case len(found) == 0:
		return nil, noMatch(in.view, stripped, in.name)
	case stripped == lineFeeds(replacement):
		return nil, sameStrings(replacement)
	case len(found) > 1:
		var lines []int
		for _, at := range linesOf(in.view, found[:min(len(found), maxListedLines)]) {
			if len(lines) == 0 || lines[len(lines)-1] != at.first {
				lines = append(lines, at.first)
			}
		}
		return nil, severalMatches(p, in.view, stripped, lines, found)
	}
	if p.dialect == OpenHandsV1 && strings.HasSuffix(replacement, "\n") {
		found[0].end = pastLine(in.view, found[0].end, old)
	}
	return found, nil
}

func severalMatches(p place, view, old string, lines []int, found []change) *Error {
	where := ""
	if p.dialect != OpenHands && old != "" { // clients compare OpenHands' recorded answer word by word; the empty text is everywhere
		where = whereabouts(view, found)
	}
	return refuse(CodeMultipleMatches, "No replacement was performed. Multiple occurrences of old_str `%s` in lines %s. "+
		"Please ensure it is unique.%s", old, list(lines), where)
}

// fits reports whether a text that was found without the white space around it may stand at view[start:end]: where a
// line end was left out, the line must begin or end, but for blanks; where other white space was, a word must.
func fits(view string, start, end int, old string) bool {
	inner := trimSpace(old)
	head, tail, _ := strings.Cut(old, inner)
	line := view[strings.LastIndexByte(view[:start], '\n')+1 : start]
	rest, _, _ := strings.Cut(view[end:], "\n")
	switch {
	case strings.Contains(head, "\n") && trimSpace(line) != "", strings.Contains(tail, "\n") && trimSpace(rest) != "":
		return false
	}
	return (head == "" || !joins(line, inner)) && (tail == "" || !joins(inner, rest))
}

// joins reports whether a word goes on from the end of a text to the beginning of another one.
func joins(a, b string) bool {
	isWord := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }
	last, _ := utf8.DecodeLastRuneInString(a)
	first, _ := utf8.DecodeRuneInString(b)
	return isWord(last) && isWord(first)
}

// indentsTwice reports whether a replacement with its own indentation would come behind that of the line.
func indentsTwice(view string, c change, old string) bool {
	line := view[strings.LastIndexByte(view[:c.start], '\n')+1 : c.start]
	return line != "" && trimSpace(line) == "" && indentation(c.text) != "" && indentation(old) != ""
}

// pastLine returns the offset after the line end behind a match of a text that ended in one and was searched without it.
func pastLine(view string, end int, old string) int {
	rest, _, ended := strings.Cut(view[end:], "\n")
	if ended && strings.HasSuffix(strings.TrimRight(old, " \t"), "\n") && trimSpace(rest) == "" {
		return end + len(rest) + 1
	}
	return end
}

// whereabouts returns a sentence that names the places of a text.
func whereabouts(view string, found []change) string {
	return "\nIt begins at (line:column) " + places(view, found, len(found)) + "."
}

func sameStrings(value string) *Error {
	return invalid(CodeNoChange, "new_str", value,
		"No replacement was performed. `new_str` and `old_str` must be different.")
}

func noMatch(view, old, path string) *Error {
	return refuse(CodeNoMatch, "No replacement was performed, old_str `%s` did not appear verbatim in %s.%s", old, path,
		hint(view, old))
}

func (e *Editor) insert(p place, c Command, after int) (Result, error) {
	if c.InsertLine == nil {
		return Result{}, missing("insert_line", c.Name)
	}
	if c.NewStr == nil {
		return Result{}, missing("new_str", c.Name)
	}
	f, t, err := e.open(p)
	if err != nil {
		return Result{}, err
	}
	count := lineCount(t.view)
	if after < 0 || after > count {
		return Result{}, invalid(CodeInvalidRange, "insert_line", *c.InsertLine, fmt.Sprintf(
			"It should be within the range of allowed values: [0, %d]", count))
	}
	at, added := lineStart(t.view, after), *c.NewStr+"\n"
	if at > 0 && t.view[at-1] != '\n' {
		added = "\n" + added // the last line has no line end yet
	}
	return e.apply(p, f, t, []change{{at, at, added}}, unifiedDiff, func(_, view string) string {
		return edited(p, view, after, strings.Count(lineFeeds(*c.NewStr), "\n")+1)
	})
}

// edited returns the answer that shows the lines inserted after a line.
func edited(p place, view string, after, added int) string {
	first := max(0, after-snippetContext) + 1
	last := min(lineCount(view), after+snippetContext+added)
	return fmt.Sprintf("The file %s has been edited. ", p.shown) +
		p.dialect.numbered("a snippet of the edited file", snippet(view, first, last), first) + reviewInsert
}

// replace is the exact replacement of GeminiEditor: the number of matches must be the expected one.
func (e *Editor) replace(p place, c Command) (Result, error) {
	edits := c.replacements()
	for _, r := range edits {
		switch {
		case r.Old == r.New:
			return Result{}, sameStrings(r.New)
		case r.Expected != nil && (*r.Expected < 1 || *r.Expected > maxReplacements):
			return Result{}, invalid(CodeInvalidArgument, "expected_replacements", strconv.Itoa(*r.Expected),
				fmt.Sprintf("It should be between 1 and %d.", maxReplacements))
		case r.Old == "" && (p.exists() || c.Edits != nil):
			return Result{}, refuse(CodeAlreadyExists,
				"Invalid `old_string` parameter: . old_string cannot be empty when the file already exists.")
		}
	}
	switch {
	case edits[0].Old == "":
		return e.newFile(p, edits[0].New)
	case !p.exists():
		return Result{}, refuse(CodeFileNotFound, "The file does not exist: %s", p.shown)
	}
	f, t, err := e.open(p)
	if err != nil {
		return Result{}, err
	}
	if c.Edits != nil {
		return e.applyEach(p, f, t, edits, counted)
	}
	changes, err := counted(t.view, edits[0])
	if err != nil {
		return Result{}, err
	}
	count := len(changes)
	return e.apply(p, f, t, changes, unifiedDiff, func(string, string) string {
		return fmt.Sprintf("Replaced %d occurrence(s) in %s.\nReview the changes and ensure they are as expected.", count,
			p.shown)
	})
}

// counted finds the expected number of places of a replacement.
func counted(view string, r Replacement) ([]change, error) {
	old, expected := lineFeeds(r.Old), r.expected()
	changes := replaceEach(view, old, r.New)
	switch count := strings.Count(view, old); {
	case count == 0:
		return nil, refuse(CodeNoMatch, "0 occurrences found%s", hint(view, old))
	case count > maxReplacements && (r.Expected == nil || *r.Expected == count):
		return nil, refuse(CodeMultipleMatches, "%d occurrences found. At most %d are replaced at once.", count,
			maxReplacements)
	case count == expected || r.AllowMultiple && r.Expected == nil:
		return changes, nil
	case count < expected:
		return nil, refuse(CodeNoMatch, "Expected %d occurrences but found %d", expected, count)
	default:
		return nil, refuse(CodeMultipleMatches, "Expected %d occurrences but found %d%s", expected, count,
			whereabouts(view, changes))
	}
}

// writeLines replaces whole lines by Content. The result ends in a line end if the file did or text follows.
func (e *Editor) writeLines(p place, c Command) (Result, error) {
	if c.Content == nil {
		return Result{}, missing("content", c.Name)
	}
	if !p.exists() {
		return e.newFile(p, *c.Content)
	}
	f, t, err := e.open(p)
	if err != nil {
		return Result{}, err
	}
	first, start, end, err := lineWindow(t.view, c.Start, c.End)
	if err != nil {
		return Result{}, err
	}
	content := *c.Content
	added := lineCount(lineFeeds(content))
	if content != "" {
		if start > 0 && t.view[start-1] != '\n' {
			content = "\n" + content
		}
		if !strings.HasSuffix(lineFeeds(content), "\n") && (end < len(t.view) || strings.HasSuffix(t.view, "\n")) {
			content += "\n"
		}
	}
	return e.apply(p, f, t, []change{{start, end, content}}, unifiedDiff,
		func(_, view string) string { return edited(p, view, first-1, added) })
}

// lineWindow returns the first line and the offsets of the range of write.
func lineWindow(view string, first, last int) (line, start, end int, err error) {
	if first == -1 {
		return lineCount(view) + 1, len(view), len(view), nil
	}
	return strictWindow(view, cmp.Or(first, 1), cmp.Or(last, -1))
}

// strictWindow is lineWindow without defaults and without appending.
func strictWindow(view string, first, last int) (line, start, end int, err error) {
	total := strings.Count(view, "\n") + 1
	if first < 1 || first > total || last != -1 && first > last {
		return 0, 0, 0, refuse(CodeInvalidRange, "Invalid range for editing: start=%d, end=%d, total lines=%d. start must be >= 1 and <=%d "+
			"(total lines of the edited file), start <= end, or start == -1 (append to the end of the file).", first, last, total, total)
	}
	if last < -1 || last > total {
		return 0, 0, 0, refuse(CodeInvalidRange, "Invalid range for editing: start=%d, end=%d, total lines=%d. end must be >= 1 and <= %d "+
			"(total lines of the edited file), end >= start, or end == -1 (to edit till the end of the file).", first, last, total, total)
	}
	start = lineStart(view, first-1)
	end = len(view)
	if last != -1 {
		end = lineStart(view, last)
	}
	return first, start, end, nil
}
