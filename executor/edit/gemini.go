package edit

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/linediff"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/lazyregexp"
)

const (
	// maxGeminiRead and maxGeminiSVG are the sizes in bytes of the largest files that Gemini's read_file shows.
	maxGeminiRead = 20 << 20
	maxGeminiSVG  = 1 << 20
	// maxGeminiLines bounds the lines it shows at once, maxGeminiLine the characters of each.
	maxGeminiLines = 2000
	maxGeminiLine  = 2000
	// excerptContext is the number of context lines around a change in an excerpt.
	excerptContext = 5
	// maxSearchedDirs bounds the search for a file by the end of its path.
	maxSearchedDirs = 50
)

// gemini runs Gemini's replace.
func (e *Editor) gemini(p place, c Command) (Result, error) {
	if c.Name != "replace" {
		return Result{}, refuse(CodeInvalidArgument, "Unknown command %q. The dialect gemini only has replace.", c.Name)
	}
	edits := c.replacements()
	for _, r := range edits {
		if err := checkGemini(r, c.Edits != nil); err != nil {
			return Result{}, err
		}
	}
	switch {
	case p.isDir():
		return Result{}, refuse(CodeIsDirectory, "Path is a directory, not a file: %s", p.shown)
	case edits[0].Old == "" && p.exists():
		return Result{}, refuse(CodeAlreadyExists, "File already exists, cannot create: %s", p.shown)
	case edits[0].Old == "":
		r, err := e.newFile(p, edits[0].New)
		r.Text = fmt.Sprintf("Created new file: %s with provided content. Here is the updated code:\n%s", p.shown,
			edits[0].New)
		return r, err
	case !p.exists():
		return Result{}, refuse(CodeFileNotFound, "File not found: %s. Use an empty old_string to create a new file.",
			p.shown)
	}
	f, t, err := e.open(p)
	if err == nil {
		err = t.refuseWide(p)
	}
	if err != nil {
		return Result{}, err
	}
	if c.Edits != nil {
		return e.applyEach(p, f, t, edits, func(view string, r Replacement) ([]change, error) {
			m, err := findGemini(p, view, r, c.Fuzzy)
			return m.changes, err
		})
	}
	m, err := findGemini(p, t.view, edits[0], c.Fuzzy)
	if err != nil {
		return Result{}, err
	}
	at, then := linesOf(t.view, m.changes), afterwards(t.view, m.changes)
	return e.apply(p, f, t, m.changes, lineDiff, func(_, view string) string {
		return fmt.Sprintf("Successfully modified file: %s (%d replacements). Applied %s match at %s. Here is the updated code:\n%s",
			p.shown, len(at), m.strategy, lineRanges(at), excerpt(view, then))
	})
}

// checkGemini validates a replacement without looking at the file.
func checkGemini(r Replacement, several bool) error {
	switch {
	case r.Expected != nil && (*r.Expected < 1 || *r.Expected > maxReplacements):
		return refuse(CodeInvalidArgument, "expected_replacements must be between 1 and %d, got %d", maxReplacements,
			*r.Expected)
	case several && r.Old == "":
		return refuse(CodeInvalidArgument, "old_string must not be empty where there are several edits")
	}
	for placeholder := range omissions(r.New) {
		if !omissions(r.Old)[placeholder] {
			return refuse(CodeInvalidArgument, "`new_string` contains an omission placeholder (for example 'rest of methods ...'). "+
				"Provide exact literal replacement text.")
		}
	}
	if line := newRewriting(r.Old, r.New).lossy(false); line != "" {
		return refuse(CodeInvalidArgument, "The line `%s` of `new_string` seems to stand for lines of `old_string`, which would be lost. "+
			"Provide exact literal replacement text, or write the line without dots or brackets if it is meant as text.", line)
	}
	return nil
}

var omitted = lazyregexp.New(`^(?:rest of(?: methods?| code)?|unchanged (?:code|methods?))$`)

// omissions returns the placeholder lines of a text in a normal form. A placeholder is an optional //, optional
// parentheses, words for the missing text, and dots.
func omissions(text string) map[string]bool {
	found := map[string]bool{}
	if !strings.Contains(text, "...") {
		return found
	}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "//"))
		if inner, ok := strings.CutPrefix(line, "("); ok && strings.HasSuffix(inner, ")") {
			line = strings.TrimSpace(strings.TrimSuffix(inner, ")"))
		}
		what, rest, dots := strings.Cut(line, "...")
		what = strings.ToLower(strings.Join(strings.Fields(what), " "))
		if dots && strings.Trim(rest, ". \t\r") == "" && omitted().MatchString(what) {
			found[what] = true
		}
	}
	return found
}

// lineRange is a first and a last line, counted from 1.
type lineRange struct{ first, last int }

// linesOf returns the lines that changes replace.
func linesOf(view string, changes []change) []lineRange {
	ranges := make([]lineRange, 0, len(changes))
	line, seen := 1, 0
	for _, c := range changes {
		line += strings.Count(view[seen:c.start], "\n")
		seen = c.start
		ranges = append(ranges, lineRange{line, line + strings.Count(strings.TrimSuffix(view[c.start:c.end], "\n"), "\n")})
	}
	return ranges
}

// afterwards returns the lines of the new texts in the new view.
func afterwards(view string, changes []change) []lineRange {
	ranges := linesOf(view, changes)
	moved := 0
	for i, c := range changes {
		text := lineFeeds(c.text)
		first := ranges[i].first + moved
		ranges[i] = lineRange{first, first + strings.Count(strings.TrimSuffix(text, "\n"), "\n")}
		moved += strings.Count(text, "\n") - strings.Count(view[c.start:c.end], "\n")
	}
	return ranges
}

// lineRanges formats ranges for people: "line 3", "lines 3-5", "lines 3, 7-9".
func lineRanges(ranges []lineRange) string {
	word, parts := "line ", make([]string, 0, maxListedMatches)
	if len(ranges) > 1 || ranges[0].last > ranges[0].first {
		word = "lines "
	}
	for i, r := range ranges {
		if i == maxListedMatches {
			return word + strings.Join(parts, ", ") + fmt.Sprintf(" and %d more", len(ranges)-i)
		}
		part := strconv.Itoa(r.first)
		if r.last > r.first {
			part += "-" + strconv.Itoa(r.last)
		}
		parts = append(parts, part)
	}
	return word + strings.Join(parts, ", ")
}

// excerpt shows ranges of lines with context, and dots for omitted lines.
func excerpt(view string, ranges []lineRange) string {
	var out strings.Builder
	rest, shown := view, 0 // rest is the text after the line shown
	for _, r := range ranges {
		first, last := max(r.first-excerptContext, shown+1), r.last+excerptContext
		if out.Len() > maxShown || last < first {
			continue
		}
		if first > shown+1 {
			out.WriteString("...\n")
		}
		rest = rest[lineStart(rest, first-shown-1):]
		end := lineStart(rest, last-first+1)
		out.WriteString(rest[:end])
		rest, shown = rest[end:], last
	}
	if strings.Trim(rest, "\n") != "" {
		if !strings.HasSuffix(out.String(), "\n") {
			out.WriteByte('\n')
		}
		out.WriteString("...")
	}
	return clipped(printable(out.String()))
}

// Overwrite is Gemini's write_file: it replaces the whole content of a file, or creates the file. A file keeps its
// encoding and byte order mark, and its line ends if it has CRLFs. A relative path is taken from
// dir; want is the hash that the file must have, "" for any. Overwrite returns an *Error on failure; the file is then
// unchanged.
func (e *Editor) Overwrite(path, dir, content, want string) (Result, error) {
	c := Command{Dialect: Gemini, Path: cleanPath(e.findName(dir, path, true)), Content: &content, IfSHA256: want, slash: strings.HasSuffix(path, "/")}
	r, err := e.overwriteAll(c)
	r.Path = c.Path
	return r, err
}

func (e *Editor) overwriteAll(c Command) (Result, error) {
	content := *c.Content
	if _, err := c.check(); err != nil {
		return Result{}, err
	}
	if len(omissions(content)) > 0 {
		return Result{}, refuse(CodeInvalidArgument, "`content` contains an omission placeholder (for example 'rest of methods ...'). "+
			"Provide all of the file.")
	}
	p, leave, err := e.enterFor(c)
	defer leave()
	switch {
	case err != nil:
		return Result{}, err
	case p.isDir():
		return Result{}, refuse(CodeIsDirectory, "Path is a directory, not a file: %s", p.shown)
	case !p.exists():
		r, err := e.newFile(p, content)
		if err == nil {
			r.Diff = patchDiff(noFile, p.shown, "", content, maxWriteDiff)
		}
		r.Text = fmt.Sprintf("Successfully created and wrote to new file: %s. Here is the updated code:\n%s", p.shown,
			clipped(content))
		return r, err
	}
	f, err := e.loadPlain(p)
	if err != nil {
		return Result{}, err
	}
	before, raw, note := replaced(f.data, content)
	err = checkWhole(before, content)
	if err != nil {
		return Result{}, err
	}
	r, err := e.replaceFile(p, f, raw, f.info.Mode())
	if err != nil {
		return Result{}, err
	}
	after := lineFeeds(content)
	r.Diff = writeDiff(p.shown, before, after)
	r.Text = fmt.Sprintf("Successfully overwrote file: %s. Here is the updated code:\n%s%s", p.shown,
		excerpt(after, between(before, after)), note)
	return r, nil
}

const (
	geminiPart = "--- FILE CONTENT (truncated) ---"
	geminiCut  = "... [truncated]"
)

// checkWhole refuses a new content of a file that is a part of the old one: as a tool showed it, or with a line that
// stands for others.
func checkWhole(before, content string) error {
	for _, notice := range []string{geminiPart, geminiCut, fileClipped} {
		if strings.Contains(content, notice) && !strings.Contains(before, notice) {
			return refuse(CodeInvalidArgument, "The content has the notice of a tool that showed a part of the file: `%s`. What it left out would be lost. "+
				"Read the rest of the file first, or change the part with an edit. Nothing was changed.", notice)
		}
	}
	if line := newRewriting(before, content).lossy(false); line != "" {
		return refuse(CodeInvalidArgument, "The line `%s` of `content` seems to stand for lines of the file, which would be lost. "+
			"Provide all of the file, or write the line without dots or brackets if it is meant as text. Nothing was changed.", line)
	}
	return nil
}

// replaced encodes new content with the byte order mark, the encoding and the line ends of the old one, unless the new
// content declares an encoding. It also returns the old view, and a note where the encoding lacks a character, so that
// the content is UTF-8.
func replaced(old []byte, content string) (view string, raw []byte, note string) {
	t, err := decode(old)
	if err != nil {
		return "", []byte(content), "" // the old content is binary: it has no encoding to keep
	}
	if strings.Contains(t.body, "\r\n") {
		content = bareFeeds(content, "\r\n")
	}
	if t.mark == 0 && t.charset.coding == nil {
		return t.view, []byte(content), ""
	}
	if c, ok := declared([]byte(content)); ok && t.mark == 0 {
		t.charset = c
	}
	coded, err := t.charset.encode(strings.TrimPrefix(content, "\ufeff"))
	if err != nil {
		return t.view, []byte(content), "\n[The file was in " + t.charset.name + ", which lacks a character of the content. It is in UTF-8 now.]"
	}
	return t.view, append(slices.Clone(old[:t.mark]), coded...), ""
}

// between returns the lines in which a text differs from an older one.
func between(before, after string) []lineRange {
	_, rest, above := linediff.Cut(before, after)
	first := above + 1
	return []lineRange{{first, max(first, above+lineCount(rest))}}
}

// Lines selects the part of a file that [Editor.ReadLines] shows. A nil number was not given.
type Lines struct {
	// Start and End are the first and the last line, counted from 1.
	Start, End *int
	// Offset is the number of lines left out above, and Limit how many are shown.
	Offset, Limit *int
	// Ignored reports whether a file must not be shown; nil shows all.
	Ignored func(path string) bool
}

// ReadLines is Gemini's read_file: the text of a file without numbers, up to 2,000 lines of up to 2,000 characters
// each, with a note that names the rest and how to ask for it. It returns images, PDF, audio and video files as data
// URLs. A relative path is taken from dir; a missing file is searched below dir. ReadLines returns an *Error on
// failure.
func (e *Editor) ReadLines(path, dir string, l Lines) (Result, error) {
	path = cleanPath(e.findName(dir, path, false))
	r, err := e.readLines(path, l)
	r.Path = path
	return r, err
}

func (e *Editor) readLines(path string, l Lines) (Result, error) {
	if err := l.check(); err != nil {
		return Result{}, err
	}
	p, leave, err := e.enterFor(Command{Dialect: Gemini, Path: path})
	defer leave()
	switch {
	case err != nil:
		return Result{}, err
	case p.err != nil:
		return Result{}, unreadable(path, p.err)
	case !p.exists():
		return Result{}, refuse(CodeFileNotFound, "File not found: %s", path)
	case p.isDir():
		return Result{}, refuse(CodeIsDirectory, "Could not read file because the provided path is a directory, not a file: %s. "+
			"Use list_directory.", path)
	case l.Ignored != nil && l.Ignored(path):
		return Result{}, refuse(CodePathNotAllowed, "File path '%s' is ignored by configured ignore patterns.", path)
	case p.info.Size() > maxGeminiRead:
		return Result{}, refuse(CodeTooLarge, "File size exceeds the 20MB limit: %s", path)
	}
	f, err := e.loadPlain(p)
	if err != nil {
		return Result{}, err
	}
	r := Result{Existed: true, SHA256: string(hashOf(f.data))}
	name := filepath.Base(path)
	if media := inlineType(name); media != "" {
		r.Text = dataURL(media, f.data)
		return r, nil
	}
	if len(f.data) > maxGeminiSVG && strings.EqualFold(filepath.Ext(name), ".svg") {
		r.Text = "Cannot display content of SVG file larger than 1MB: " + name
		return r, nil
	}
	t, err := decode(f.data)
	if err != nil {
		r.Text = "Cannot display content of binary file: " + name
		return r, nil
	}
	r.Text, err = l.show(printable(strings.ReplaceAll(t.body, "\r\n", "\n")))
	return r, err
}

func (l Lines) check() error {
	below := func(n *int, least int) bool { return n != nil && *n < least }
	switch {
	case below(l.Start, 1):
		return refuse(CodeInvalidRange, "start_line must be >= 1, got %d", *l.Start)
	case below(l.End, 1):
		return refuse(CodeInvalidRange, "end_line must be >= 1, got %d", *l.End)
	case l.Start != nil && l.End != nil && *l.Start > *l.End:
		return refuse(CodeInvalidRange, "start_line cannot be greater than end_line: %d, %d", *l.Start, *l.End)
	case below(l.Offset, 0):
		return refuse(CodeInvalidRange, "offset must be >= 0, got %d", *l.Offset)
	case below(l.Limit, 1):
		return refuse(CodeInvalidRange, "limit must be > 0, got %d", *l.Limit)
	case (l.Start != nil || l.End != nil) && (l.Offset != nil || l.Limit != nil):
		return refuse(CodeInvalidArgument, "start_line and end_line cannot be combined with offset and limit: give one pair or the other")
	}
	return nil
}

// show returns the selected lines of a text.
func (l Lines) show(body string) (string, error) {
	total, first := strings.Count(body, "\n")+1, 0
	last := total
	switch {
	case l.Start != nil:
		first = *l.Start - 1
	case l.Offset != nil:
		first = *l.Offset
	}
	if first >= total {
		return "", refuse(CodeInvalidRange, "Nothing to show: the file has %d lines, and line %d was asked for.", total,
			first+1)
	}
	if l.End != nil {
		last = min(last, *l.End)
	}
	if l.Limit != nil {
		last = min(last, first+min(*l.Limit, total))
	}
	last = min(last, first+maxGeminiLines)
	part := snippet(body, first+1, last)
	if last < total {
		part = strings.TrimSuffix(part, "\n")
	}
	lines, cut := strings.Split(part, "\n"), false
	for i, line := range lines {
		if utf8.RuneCountInString(line) > maxGeminiLine {
			lines[i], cut = string([]rune(line)[:maxGeminiLine])+geminiCut, true
		}
	}
	text := strings.Join(lines, "\n")
	if first == 0 && last == total && !cut {
		return text, nil
	}
	names, next := "'start_line' and 'end_line'", fmt.Sprintf("start_line: %d", last+1)
	if l.Offset != nil || l.Limit != nil {
		names, next = "'offset' and 'limit'", fmt.Sprintf("offset: %d", last)
	}
	return fmt.Sprintf("\nIMPORTANT: The file content has been truncated.\nStatus: Showing lines %d-%d of %d total lines.\n"+
		"Action: To read more of the file, you can use the %s parameters in a subsequent 'read_file' call. "+
		"For example, to read the next section of the file, use %s.\n\n%s\n%s",
		first+1, last, total, names, next, geminiPart, text), nil
}

// findName makes a path of Gemini's tools absolute: relative ones are taken from dir. Models copy the notation @file of
// the command line, so a leading @ is dropped if no file has the name with it. A missing file that is not to be created
// is searched below dir by the end of its path, and used if it is the only one.
func (e *Editor) findName(dir, path string, creates bool) string {
	path = strings.ReplaceAll(path, "\x00", "")
	found := filepath.Join("/", path)
	_ = e.as(func() error { // opening the file reports missing rights
		if filepath.IsAbs(path) {
			return nil
		}
		found = filepath.Join(dir, path)
		plain, marked := strings.CutPrefix(path, "@")
		if exists(found) || path == "" || creates && !marked {
			return nil
		}
		if marked && plain != "" {
			path, found = plain, filepath.Join(dir, plain)
			if filepath.IsAbs(plain) {
				found = filepath.Clean(plain)
			}
		}
		if creates || exists(found) || !filepath.IsLocal(path) {
			return nil
		}
		if only := findBelow(dir, filepath.Clean(path)); only != "" {
			found = only
		}
		return nil
	})
	return found
}

// findBelow finds the only file below a directory whose path ends in the given one, "" for none or several. It looks at
// maxSearchedDirs directories, near ones first, and of these the most recently changed ones first. It enters neither
// hidden directories nor symbolic links nor /proc, /sys and /dev.
func findBelow(dir, path string) string {
	only := ""
	level := []string{dir}
	for seen := 0; len(level) > 0; {
		var next []string
		for _, d := range level {
			if seen++; seen > maxSearchedDirs {
				return only
			}
			candidate := filepath.Join(d, path)
			if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() {
				if only != "" {
					return ""
				}
				only = candidate
			}
			if room := maxSearchedDirs - len(next); room > 0 {
				below := subdirectories(d)
				next = append(next, below[:min(room, len(below))]...)
			}
		}
		level = next
	}
	return only
}

// subdirectories lists the directories that findBelow enters.
func subdirectories(dir string) []string {
	d, err := files.Open(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer d.Close()
	var infos []fs.FileInfo
	for err == nil {
		var entries []fs.DirEntry
		entries, err = d.ReadDir(portion)
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			switch {
			case !entry.IsDir(), strings.HasPrefix(entry.Name(), "."), entry.Name() == "node_modules":
			case path == "/proc" || path == "/sys" || path == "/dev":
			default:
				if info, err := entry.Info(); err == nil {
					infos = append(infos, info)
				}
			}
		}
		slices.SortStableFunc(infos, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
		infos = infos[:min(len(infos), maxSearchedDirs)]
	}
	var paths []string
	for _, info := range infos {
		paths = append(paths, filepath.Join(dir, info.Name()))
	}
	return paths
}
