package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// patch writes changes as git writes them. Where they are for a person, nothing in them acts on a terminal; otherwise
// lines are as they are in the files, so that 'git apply' takes them.
type patch struct {
	to     io.Writer
	style  output.Style
	person bool
	err    error // of the first write that failed
}

func (w *patch) line(color, text string) {
	if w.err != nil {
		return
	}
	if w.person {
		text = output.Clean(text)
	}
	_, w.err = fmt.Fprintln(w.to, w.style.Paint(color, text))
}

// A section is all changes of one file.
type section struct {
	api.ChangedPath

	path, from string
	renamed    bool
}

// sections are changes by file: a rename and the change of its target are one, and directories that exist only for
// the files in them are left out, as with git.
func sections(c *api.Changes) (list []section) {
	at, parents := map[string]int{}, map[string]bool{}
	for _, change := range c.Paths {
		path, _ := change.Names()
		for i := range path {
			if path[i] == '/' {
				parents[path[:i]] = true
			}
		}
	}
	for _, change := range c.Paths {
		path, from := change.Names()
		i, seen := at[path]
		switch {
		case (change.Op == opCreated || change.Op == opDeleted) && parents[path] && change.Lines == nil:
			continue
		case seen && change.Op == opRenamed:
			list[i].from, list[i].renamed = from, true
			continue
		case seen && list[i].renamed:
			list[i].ChangedPath = change
			continue
		}
		at[path] = len(list)
		list = append(list, section{change, path, from, change.Op == opRenamed})
	}
	return list
}

// Kinds of changes.
const (
	opCreated  = "created"
	opModified = "modified"
	opDeleted  = "deleted"
	opRenamed  = "renamed"
	opMeta     = "meta"
)

// kind is the kind of a change. Another word of a server is not shown, since it begins a line.
func (s *section) kind() string {
	if slices.Contains([]string{opCreated, opModified, opDeleted, opRenamed, opMeta}, s.Op) {
		return s.Op
	}
	return "changed"
}

// changes writes all of them.
func (w *patch) changes(c *api.Changes) error {
	for _, s := range sections(c) {
		w.section(s, c.Truncated)
	}
	return w.err
}

// The modes that git knows of files. A directory has none, nor has a FIFO, socket or device.
const (
	modeFile    = "100644"
	modeProgram = "100755"
	modeLink    = "120000"
)

// gitMode is a type and mode as git writes it; "" for types without a mode in git. That of an earlier
// server is not known, and taken for a file's.
func gitMode(mode string) string {
	n, err := strconv.ParseUint(mode, 8, 32)
	switch kind := n &^ 0o7777; {
	case err != nil, kind == 0o100000 && n&0o100 == 0:
		return modeFile
	case kind == 0o100000:
		return modeProgram
	case kind == 0o120000:
		return modeLink
	}
	return ""
}

// modes are those before and after; "" where git has no file.
func (s *section) modes() (was, now string) {
	if s.Op != opCreated {
		was = gitMode(s.OldMode)
	}
	if s.Op != opDeleted {
		now = gitMode(s.Mode)
	}
	return was, now
}

// files are git's entries for a section: if the type of a file changed, the end of one and the beginning
// of another one.
func (s *section) files() []section {
	was, now := s.modes()
	if s.Op != opModified || s.renamed || (was == modeLink) == (now == modeLink) && (was == "") == (now == "") {
		return []section{*s}
	}
	gone, come := *s, *s
	gone.Op, come.Op = opDeleted, opCreated
	gone.Diff, come.Diff = s.Diff, ""
	if i := strings.Index("\n"+s.Diff, "\n@@ -0,0 "); i >= 0 {
		gone.Diff, come.Diff = s.Diff[:i], s.Diff[i:]
	}
	switch "" {
	case now:
		return []section{gone}
	case was:
		return []section{come}
	}
	return []section{gone, come}
}

func (w *patch) section(s section, truncated bool) {
	for _, file := range s.files() {
		w.file(file, truncated)
	}
}

func (w *patch) file(s section, truncated bool) {
	before, after := gitName("a/"+cmp.Or(s.from, s.path)), gitName("b/"+s.path)
	was, now := s.modes()
	isFile := was != "" || now != ""
	remains := s.Op != opCreated && s.Op != opDeleted
	otherMode := remains && was != now && isFile
	whole := !remains && s.Lines != nil
	unseen := !whole && s.Diff == "" && s.Op != opRenamed && s.Op != opMeta
	if !isFile || !whole && !s.renamed && !otherMode && s.Diff == "" { // not in the form of a header: 'git apply' would take it for an empty file
		w.named(s, truncated)
		return
	}
	w.line(output.Bold, "diff --git "+before+" "+after)
	switch {
	case s.Op == opCreated:
		w.line(output.Bold, "new file mode "+now)
		before = "/dev/null"
	case s.Op == opDeleted:
		w.line(output.Bold, "deleted file mode "+was)
		after = "/dev/null"
	case otherMode:
		w.line(output.Bold, "old mode "+was)
		w.line(output.Bold, "new mode "+now)
	}
	if s.renamed {
		if s.Op != opModified {
			w.line(output.Bold, "similarity index 100%")
		}
		w.line(output.Bold, "rename from "+gitName(s.from))
		w.line(output.Bold, "rename to "+gitName(s.path))
	}
	if unseen {
		w.named(s, truncated)
	}
	if s.Diff == "" {
		return
	}
	w.line(output.Bold, "--- "+before+w.nameEnd(before))
	w.line(output.Bold, "+++ "+after+w.nameEnd(after))
	for text := range strings.SplitSeq(strings.TrimSuffix(s.Diff, "\n"), "\n") {
		w.hunkLine(text)
	}
}

// named writes a change of which git has no header, or whose lines are not known.
func (w *patch) named(s section, truncated bool) {
	name := gitName(s.path)
	if s.renamed {
		name = gitName(s.from) + " to " + name
	}
	w.line(output.Bold, s.kind()+" "+name+": "+noLines(s.ChangedPath, truncated))
}

// nameEnd is the tab that git writes behind a name with blanks, whose end it takes for a time otherwise.
func (w *patch) nameEnd(name string) string {
	if w.person || !strings.Contains(name, " ") {
		return ""
	}
	return "\t"
}

func (w *patch) hunkLine(text string) {
	sign := byte(' ')
	if text != "" {
		sign = text[0]
	}
	switch sign {
	case '+':
		w.line(output.Green, text)
	case '-':
		w.line(output.Red, text)
	case '@':
		w.line(output.Cyan, text)
	case ' ', '\\':
		w.line("", text)
	default: // no diff has it: it must not look like a message of this program
		w.line("", " "+text)
	}
}

// noLines says why there are no lines of a change.
func noLines(c api.ChangedPath, truncated bool) string {
	switch is := cmp.Or(c.Mode, c.OldMode); {
	case strings.HasPrefix(is, "04"):
		return "a directory"
	case is != "" && gitMode(is) == "":
		return "no file with lines"
	case c.Content == "pending":
		return "its contents are still to be kept"
	case c.Content == "lost":
		return "its contents were not kept"
	case c.Content == "large":
		return "it is too large for its lines to be kept"
	case c.Op == opMeta:
		return "mode, owner, attributes or time"
	case truncated:
		return "its lines are left out, or it is no text file"
	}
	return "empty, or no text file"
}

// gitName quotes a path as git does, in C's way where it has characters that are not to be seen.
func gitName(path string) string {
	unusual := func(r rune) bool { return r == '"' || r == '\\' || !unicode.IsGraphic(r) }
	if utf8.ValidString(path) && strings.IndexFunc(path, unusual) < 0 {
		return path
	}
	var b strings.Builder
	b.WriteByte('"')
	for len(path) > 0 {
		r, size := utf8.DecodeRuneInString(path)
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r >= '\a' && r <= '\r':
			b.WriteByte('\\')
			b.WriteByte("abtnvfr"[r-'\a'])
		case unusual(r) || r == utf8.RuneError && size == 1:
			for i := range size {
				fmt.Fprintf(&b, `\%03o`, path[i])
			}
		default:
			b.WriteRune(r)
		}
		path = path[size:]
	}
	b.WriteByte('"')
	return b.String()
}

const (
	statWidth = 80
	statGraph = 10 // the least room for signs
)

// stat writes a line for each file, with the numbers of its lines, and the sums.
func (w *patch) stat(c *api.Changes) error {
	list := sections(c)
	width, most, longest := cmp.Or(w.style.Width, statWidth), 0, 0
	names := make([]string, len(list))
	for i, s := range list {
		if names[i] = gitName(s.path); s.renamed {
			names[i] = gitName(s.from) + " => " + names[i]
		}
		longest = max(longest, output.TextWidth(names[i]))
		if s.Lines != nil {
			most = max(most, s.Lines[0]+s.Lines[1])
		}
	}
	digits := len(fmt.Sprint(most))
	graph := max(width-longest-digits-5, statGraph)
	added, removed := 0, 0
	for i, s := range list {
		name := names[i] + strings.Repeat(" ", longest-output.TextWidth(names[i]))
		if s.Lines == nil {
			w.text(" " + name + " | " + s.kind())
			continue
		}
		plus, minus := s.Lines[0], s.Lines[1]
		added, removed = added+plus, removed+minus
		if most > graph { // what is there has a sign at least
			plus, minus = (plus*graph+most-1)/most, (minus*graph+most-1)/most
		}
		text := fmt.Sprintf(" %s | %*d %s%s", name, digits, s.Lines[0]+s.Lines[1],
			w.style.Paint(output.Green, strings.Repeat("+", plus)), w.style.Paint(output.Red, strings.Repeat("-", minus)))
		w.text(strings.TrimRight(text, " "))
	}
	if len(list) > 0 {
		w.text(fmt.Sprintf(" %s changed, %s(+), %s(-)", count(len(list), "file", "files"), count(added, "insertion", "insertions"), count(removed, "deletion", "deletions")))
	}
	return w.err
}

// text writes a line that is harmless.
func (w *patch) text(line string) {
	if w.err == nil {
		_, w.err = fmt.Fprintln(w.to, line)
	}
}

// count is a number of things in words.
func count(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}
