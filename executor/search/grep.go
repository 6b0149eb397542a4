package search

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/gitignore"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/regex"
)

const (
	// maxWhole is the largest file that is searched as one text, in bytes. Of a
	// larger one, parts of whole lines are searched one after the other.
	maxWhole = 4 << 20
	// maxLine is the size of such a part, and the most bytes of a line that are
	// searched in it.
	maxLine = 1 << 20
)

// GrepQuery describes the lines to find.
type GrepQuery struct {
	// Dir is the absolute directory that relative paths start from. Path is the
	// directory or file to search; empty means Dir.
	Dir, Path string
	// Pattern is a regular expression (RE2) for one line, or a text if Fixed is
	// set.
	Pattern string
	Fixed   bool
	// Include is a pattern of paths below the directory, or of names if it has
	// no slash. Exclude is a regular expression for lines to leave out. Both
	// may be empty.
	Include, Exclude string
	// IgnoreCase matches letters of both cases; NoIgnore searches ignored files
	// too; NamesOnly returns files without lines.
	IgnoreCase, NoIgnore, NamesOnly bool
	// Limit is the most lines to return, or files with NamesOnly, at least 1.
	// FileLimit is the most lines of one file, 0 for all.
	Limit, FileLimit int
	// Around returns, for a number of matches, how many lines before and after
	// each to add.
	Around func(matches int) (before, after int)
}

// Line is a line of a file.
type Line struct {
	// Number counts from 1.
	Number int
	Text   string
	// Match is false for a line before or after a match.
	Match bool
}

// FileLines are the lines of one file.
type FileLines struct {
	Path  string
	Lines []Line
}

// Matches is the result of a search for lines.
type Matches struct {
	// Dir is the directory or file that was searched.
	Dir string
	// Files have matches, the newest first; with NamesOnly they have no lines.
	Files []FileLines
	// Count is the number of matching lines, or of files with NamesOnly.
	Count int
	// More says that the limit was reached, Cut that a bound ended the search.
	// Long is the number of lines of which only the first maxLine bytes were
	// searched.
	More, Cut bool
	Long      int
	// NotText says that Dir is a file with a zero byte, of which at most the part before
	// that was searched.
	NotText bool
	// Never says that a part of the pattern has a line end, and so matches no line.
	Never bool
}

// Grep finds lines. An error of type *Error says that nothing was searched. ctx
// bounds the search; Grep returns the lines found until then.
func (s *Searcher) Grep(ctx context.Context, q GrepQuery) (Matches, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	g, err := newGrep(ctx, q)
	if err != nil {
		return Matches{}, err
	}
	if err := s.cfg.User.Do(g.collect); err != nil {
		return Matches{}, err
	}
	for g.next() {
		batch := s.narrow(ctx, g.batch, g.literal)
		if err := s.cfg.User.Do(func() error { g.search(batch); return nil }); err != nil {
			return Matches{}, err
		}
	}
	if err := s.cfg.User.Do(func() error { g.context(); return nil }); err != nil {
		return Matches{}, err
	}
	if g.unread != nil {
		return Matches{}, pathError(g.matches.Dir, g.unread)
	}
	return g.matches, nil
}

// grep is one search.
type grep struct {
	ended   func() error // returns why the search is over, nil while it is not
	query   GrepQuery
	line    *regexp.Regexp // one line matches
	text    *regexp.Regexp // a line of a text matches; nil if each line must be checked
	exclude *regexp.Regexp
	others  bool   // searches the files that Include does not match
	literal string // in every matching line, in any case
	files   []file // to be searched, the newest first
	batch   []file
	matches Matches
	unread  error  // why the file that the query names could not be read
	buf     []byte // of the file that was read
	lower   []byte // of its text in lower case
}

func newGrep(ctx context.Context, q GrepQuery) (*grep, error) {
	g := &grep{ended: ctx.Err, query: q, matches: Matches{Dir: absolute(q.Dir, q.Path)}}
	pattern := q.Pattern
	if q.Fixed {
		pattern = regexp.QuoteMeta(pattern)
	}
	if q.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	var err error
	if g.line, err = compile(pattern); err != nil {
		return nil, err
	}
	parsed, err := syntax.Parse("(?m)"+pattern, syntax.Perl)
	if err != nil {
		return nil, err // after compile accepted it
	}
	parsed = withinLines(parsed)
	if !hasTextEnds(parsed) {
		if g.text, err = regex.CompileTree(parsed); err != nil {
			return nil, refusal(pattern, err)
		}
	}
	g.literal = literal(parsed)
	if q.Exclude != "" {
		if g.exclude, err = compile(q.Exclude); err != nil {
			return nil, err
		}
	}
	g.query.Include = strings.TrimPrefix(q.Include, "./")
	if strings.Contains(q.Include, ",") && !strings.ContainsAny(q.Include, "{[") {
		g.query.Include = "{" + strings.ReplaceAll(q.Include, " ", "") + "}"
	}
	g.query.Include, g.others = strings.CutPrefix(g.query.Include, "!")
	g.matches.Never = hasOp(parsed, syntax.OpNoMatch)
	if q.Include != "" && !gitignore.ValidPattern(g.query.Include) {
		return nil, badPattern(q.Include)
	}
	return g, nil
}

func compile(text string) (*regexp.Regexp, error) {
	re, err := regex.Compile(text)
	if err != nil {
		return nil, refusal(text, err)
	}
	return re, nil
}

// refusal makes a refusal of an error of [regex.Compile].
func refusal(text string, err error) error {
	switch {
	case errors.Is(err, regex.ErrLong):
		return refuse("invalid_argument", "The regular expression is longer than %d bytes.", regex.MaxLen)
	case errors.Is(err, regex.ErrCostly):
		return refuse("invalid_argument", "The regular expression %q repeats too much.", text)
	default:
		return refuse("invalid_argument", "The regular expression %q is not valid: %v. Use RE2's syntax, without lookaround and back-references; escape ( [ { . * + ? with a backslash to find these characters.", text, err)
	}
}

func hasOp(re *syntax.Regexp, op syntax.Op) bool {
	return re.Op == op || slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return hasOp(sub, op) })
}

// hasTextEnds reports whether an expression matches the beginning or the end of
// the text, and not of a line.
func hasTextEnds(re *syntax.Regexp) bool {
	return hasOp(re, syntax.OpBeginText) || hasOp(re, syntax.OpEndText)
}

// withinLines returns an expression that matches the same in a line, and never
// beyond its end. Otherwise each match might extend to the end of the file, and
// a search take quadratic time.
func withinLines(re *syntax.Regexp) *syntax.Regexp {
	for i, sub := range re.Sub {
		re.Sub[i] = withinLines(sub)
	}
	switch re.Op {
	case syntax.OpAnyChar:
		re.Op = syntax.OpAnyCharNotNL
	case syntax.OpLiteral:
		if slices.Contains(re.Rune, '\n') {
			return &syntax.Regexp{Op: syntax.OpNoMatch}
		}
	case syntax.OpCharClass:
		var ranges []rune
		for i := 0; i < len(re.Rune); i += 2 {
			lo, hi := re.Rune[i], re.Rune[i+1]
			if lo > '\n' || hi < '\n' {
				ranges = append(ranges, lo, hi)
				continue
			}
			if lo < '\n' {
				ranges = append(ranges, lo, '\n'-1)
			}
			if hi > '\n' {
				ranges = append(ranges, '\n'+1, hi)
			}
		}
		if len(ranges) == 0 {
			return &syntax.Regexp{Op: syntax.OpNoMatch}
		}
		re.Rune = ranges
	default:
	}
	return re
}

// literal returns the longest text that every match contains, in any case; ""
// if none is known.
func literal(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCapture, syntax.OpPlus:
		return literal(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return literal(re.Sub[0])
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if l := literal(sub); len(l) > len(longest) {
				longest = l
			}
		}
		return longest
	default:
	}
	return ""
}

// collect finds the files to search.
func (g *grep) collect() error {
	root := g.matches.Dir
	info, err := os.Stat(root)
	if err != nil {
		return pathError(root, err)
	}
	w, paths := walk{ended: g.ended}, 0
	w.found = func(f file) {
		g.files = append(g.files, f)
		paths += len(f.path)
		w.cut = w.cut || len(g.files) >= maxFiles || paths >= maxPaths
	}
	if info.Mode().IsRegular() {
		w.found(file{path: root, size: info.Size()})
		return nil
	}
	if g.query.Include != "" {
		include := g.query.Include
		if !strings.Contains(include, "/") {
			include = "**/" + include
		}
		w.wants = matcher(include, false)
		if included := w.wants; g.others {
			w.wants = func(rel string) bool { return !included(rel) }
		}
	}
	if !g.query.NoIgnore {
		w.ignore = newIgnore(root, w.ended)
	}
	err = w.run(root)
	g.matches.Cut = w.cut
	slices.SortFunc(g.files, newer)
	return err
}

// next takes the next batch of files; false when the search is over.
func (g *grep) next() bool {
	switch {
	case g.matches.Count >= g.query.Limit:
		g.matches.More = g.matches.More || len(g.files) > 0
		return false
	case g.ended() != nil:
		g.matches.Cut = g.matches.Cut || len(g.files) > 0
		return false
	}
	n := batchSize(g.files)
	g.batch, g.files = g.files[:n], g.files[n:]
	return n > 0
}

// search searches files until the limit is reached.
func (g *grep) search(files []file) {
	for i, f := range files {
		if g.ended() != nil {
			g.matches.Cut = true
			return
		}
		if g.matches.Count >= g.query.Limit {
			g.matches.More = g.matches.More || i < len(files)
			return
		}
		if lines := g.linesOf(f.path); len(lines) > 0 {
			g.matches.Files = append(g.matches.Files, FileLines{Path: f.path, Lines: lines})
		}
	}
}

// parts calls do with the text of a file, until do returns false: with all of it up
// to maxWhole bytes, and else with parts of whole lines, one after the other. A file
// with a zero byte is not text; of one that is read in parts, the lines before the
// part with that byte count. The text is valid during the call.
func (g *grep) parts(path string, do func(text []byte) bool) {
	named, flags := path == g.matches.Dir, os.O_RDONLY|unix.O_NONBLOCK
	if !named { // a walk follows no links
		flags |= unix.O_NOFOLLOW
	}
	f, err := files.Open(path, flags, 0)
	defer func() {
		if named && g.unread == nil {
			g.unread = err
		}
	}()
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	r := files.NonBlockingReader(f)
	if info.Size() > maxWhole {
		if !g.eachPart(r, do) && named {
			g.matches.NotText = true
		}
		return
	}
	b := bytes.NewBuffer(g.buf[:0])
	b.Grow(int(info.Size()) + bytes.MinRead)
	if _, err = b.ReadFrom(io.LimitReader(r, maxWhole)); err != nil {
		return
	}
	if g.buf = plain(b.Bytes()); bytes.IndexByte(g.buf, 0) >= 0 {
		g.matches.NotText = named // a walk leaves such files out in silence
		return
	}
	do(g.buf)
}

// plain returns a text without its byte order mark, and UTF-16 with a mark as UTF-8.
func plain(text []byte) []byte {
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case bytes.HasPrefix(text, []byte("\xfe\xff")):
		order = binary.BigEndian
	case !bytes.HasPrefix(text, []byte("\xff\xfe")):
		return bytes.TrimPrefix(text, []byte("\ufeff"))
	}
	units := make([]uint16, 0, len(text)/2)
	for i := 2; i+1 < len(text); i += 2 {
		units = append(units, order.Uint16(text[i:]))
	}
	return []byte(string(utf16.Decode(units)))
}

// eachPart is parts for a large file, and returns whether the part that was read is text.
func (g *grep) eachPart(r io.Reader, do func(text []byte) bool) bool {
	buf := make([]byte, maxLine+1) // room for the end of a line that is cut
	kept, skips := 0, false        // skips the rest of a line
	for g.ended() == nil {
		n, err := io.ReadFull(r, buf[kept:maxLine])
		text := buf[:kept+n]
		if bytes.IndexByte(text[kept:], 0) >= 0 {
			return false
		}
		if skips {
			end := bytes.IndexByte(text, '\n')
			if end < 0 && err == nil {
				continue
			}
			kept, skips = copy(buf, text[end+1:]), end < 0
			if err == nil {
				continue
			}
			text = buf[:kept]
		}
		end := bytes.LastIndexByte(text, '\n') + 1
		switch {
		case err != nil: // the end of the file, or as much of it as can be read
			if !skips {
				do(text)
			}
			return true
		case end == 0:
			g.matches.Long++
			buf[maxLine] = '\n'
			end, skips = maxLine+1, true
		}
		if !do(buf[:end]) {
			return true
		}
		kept = copy(buf, buf[min(end, maxLine):maxLine])
	}
	g.matches.Cut = true
	return true
}

// linesOf returns matching lines of a file, up to the limits.
func (g *grep) linesOf(path string) []Line {
	s := lineSearch{grep: g, limit: g.query.Limit - g.matches.Count}
	if g.query.FileLimit > 0 {
		s.limit = min(s.limit, g.query.FileLimit)
	}
	if g.query.NamesOnly {
		s.limit = 1
	}
	g.parts(path, s.add)
	g.matches.Count += len(s.found)
	return s.found
}

// lineSearch is the search in one file.
type lineSearch struct {
	*grep
	limit int
	found []Line
	above int // the lines of the parts before
}

// add searches the next part of the file. It returns false when the search is over.
func (g *lineSearch) add(text []byte) bool {
	above := g.above
	g.above += bytes.Count(text, []byte("\n"))
	if !g.mayMatch(text) {
		return true
	}
	number, counted := above+1, 0
	whole := g.text != nil && bytes.IndexByte(text, '\r') < 0
	for pos := 0; pos < len(text); {
		if g.ended() != nil {
			g.matches.Cut = true
			return false
		}
		if whole {
			part := text[pos:partEnd(text, pos)]
			at := g.text.FindIndex(part)
			if at == nil {
				pos += len(part)
				continue
			}
			pos += bytes.LastIndexByte(part[:at[0]], '\n') + 1
		}
		line, end := lineAt(text, pos)
		if pos < len(text) && g.line.Match(line) && (g.exclude == nil || !g.exclude.Match(line)) {
			if len(g.found) == g.limit {
				g.matches.More = g.matches.More || !g.query.NamesOnly
				return false
			}
			number += bytes.Count(text[counted:pos], []byte("\n"))
			counted = pos
			g.found = append(g.found, Line{Number: number, Text: g.around(line), Match: true})
			if g.query.NamesOnly {
				return false
			}
		}
		pos = end
	}
	return true
}

// mayMatch rules out texts without the literal of every match: most texts, and
// much faster than an expression does.
func (g *grep) mayMatch(text []byte) bool {
	if len(g.literal) < shortest || !plainCase(g.literal) {
		return true
	}
	// Two letters beyond ASCII are the other case of one in it.
	if bytes.Contains(text, []byte("\u212a")) || bytes.Contains(text, []byte("\u017f")) {
		return true
	}
	g.lower = append(g.lower[:0], text...)
	for i, c := range g.lower {
		if 'A' <= c && c <= 'Z' {
			g.lower[i] = c + 'a' - 'A'
		}
	}
	return bytes.Contains(g.lower, []byte(strings.ToLower(g.literal)))
}

// partEnd returns the end of the part of a text that begins at pos: the end of
// a line, after about as much text as can be searched between two checks of the
// time.
func partEnd(text []byte, pos int) int {
	const size = 256 << 10
	if len(text)-pos <= size {
		return len(text)
	}
	if n := bytes.IndexByte(text[pos+size:], '\n'); n >= 0 {
		return pos + size + n + 1
	}
	return len(text)
}

// lineAt returns the line that begins at pos, without its end, and the
// beginning of the next one.
func lineAt(text []byte, pos int) (line []byte, next int) {
	line, next = text[pos:], len(text)
	if n := bytes.IndexByte(line, '\n'); n >= 0 {
		line, next = line[:n], pos+n+1
	}
	return bytes.TrimSuffix(line, []byte("\r")), next
}

// around returns a line, or of a long one the part with the match.
func (g *grep) around(line []byte) string {
	const most, before = 2000, 200
	at := g.line.FindIndex(line)
	if len(line) <= most || at[1] <= most {
		return clip(line)
	}
	start := max(0, at[0]-before)
	return "[cut] ..." + clip(line[start:])
}

// clip shortens a line and marks bytes that are not text.
func clip(line []byte) string {
	const most = 2000
	more := ""
	if len(line) > most {
		line, more = line[:most], "... [cut]"
	}
	return strings.ToValidUTF8(string(line), "�") + more
}

// context adds the lines around the matches, whose number is known now.
func (g *grep) context() {
	if g.query.NamesOnly || g.query.Around == nil {
		return
	}
	before, after := g.query.Around(g.matches.Count)
	if before == 0 && after == 0 {
		return
	}
	cut, long := g.matches.Cut, g.matches.Long
	defer func() { g.matches.Cut, g.matches.Long = cut, long }() // the files are read again
	for i := range g.matches.Files {
		f := &g.matches.Files[i]
		s := surroundings{lines: f.Lines, before: before, after: after}
		g.parts(f.Path, func(text []byte) bool { return g.ended() == nil && s.add(text) })
		if g.ended() == nil && len(s.out) > 0 {
			f.Lines = s.out
		}
	}
}

// surroundings collects lines of a file with the lines around them, each once.
type surroundings struct {
	lines         []Line // the first of which are done
	before, after int
	number        int
	out           []Line
}

// add takes the next part of the file. It returns false when the rest of the file is
// not needed.
func (s *surroundings) add(text []byte) bool {
	for pos := 0; pos < len(text); {
		line, next := lineAt(text, pos)
		s.number++
		for len(s.lines) > 0 && s.number > s.lines[0].Number+s.after {
			s.lines = s.lines[1:]
		}
		if len(s.lines) == 0 {
			return false
		}
		if s.number >= s.lines[0].Number-s.before {
			shown := Line{Number: s.number}
			if i := slices.IndexFunc(s.lines, func(l Line) bool { return l.Number == s.number }); i >= 0 {
				shown = s.lines[i]
			} else {
				shown.Text = clip(line)
			}
			s.out = append(s.out, shown)
		}
		pos = next
	}
	return true
}
