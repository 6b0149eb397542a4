package edit

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"
)

// BinaryFile is the word by which clients know that a file is no text (openhands.md, section 5.1).
const BinaryFile = "ERROR_BINARY_FILE"

// Read is the default read: the text of a file without numbers, its line ends as line feeds, the lines from start to end,
// counted from 0, end not included; start 0 and end -1 are the whole file. A relative path is taken from dir.
//
// Images, PDF and video files, by their names, are answered as data URLs. What is not UTF-8 is refused. It returns an
// *Error where it fails. In both cases Result.Path is the absolute path.
func (e *Editor) Read(path, dir string, start, end int) (Result, error) {
	shown := absolutePath(dir, path)
	r, err := e.read(shown, dir, start, end)
	r.Path = shown
	return r, err
}

func (e *Editor) read(shown, dir string, start, end int) (Result, error) {
	p, leave, err := e.enter(shown)
	defer leave()
	switch {
	case err != nil:
		return Result{}, err
	case !p.exists():
		return Result{}, refuse(CodeFileNotFound, "File not found: %s. Your current working directory is %s.", shown, dir)
	case p.isDir():
		return Result{}, refuse(CodeIsDirectory, "Path is a directory: %s. You can only read files", shown)
	}
	f, err := e.loadPlain(p, shown)
	if err != nil {
		return Result{}, err
	}
	r := Result{Existed: true, SHA256: string(hashOf(f.data))}
	if media := mediaType(shown); media != "" {
		r.Text = dataURL(media, f.data)
		return r, nil
	}
	t, err := decode(f.data)
	if err != nil {
		return Result{}, refuse(CodeBinary, BinaryFile)
	}
	if t.charset.coding != nil || !utf8.ValidString(t.body) {
		return Result{}, refuse(CodeUnsupported, "File could not be decoded as utf-8: %s.", shown)
	}
	// A byte order mark is part of the text here, as in the reference.
	r.Text = readLines(string(f.data[:t.mark])+t.view, start, end)
	return r, nil
}

// loadPlain loads a file for the default read and write, which name it as shown.
func (e *Editor) loadPlain(p place, shown string) (*file, error) {
	f, err := e.load(p, e.maxRead)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, tooLarge(p, e.maxRead)
	case errors.Is(err, errNotRegular):
		return nil, notRegular(p)
	case err != nil:
		return nil, unreadable(shown, err)
	}
	return f, nil
}

// readLines returns the lines from start to end as the reference counts them. Inside the file that has oddities which
// clients have learnt to live with: a range is never empty, and the last line comes with the one before. Outside it has
// none: nothing is behind the end, and what reaches over it ends there.
func readLines(view string, start, end int) string {
	count := lineCount(view)
	start = max(start, 0)
	switch {
	case start >= count:
		return ""
	case end == -1, end > count:
		return view[lineStart(view, start):]
	}
	start = max(0, min(start, count-2))
	end = max(start+1, end)
	return snippet(view, start+1, end)
}

// Write is the default write: every line of content, and a line end after each, in the place of the lines from start to
// end, counted from 0, end not included; start 0 and end -1 replace the whole file, start -1 appends. A relative path is
// taken from dir. A file that is not there is made with mode 0664, and the directories above it too.
//
// The diff of a large change shows which lines changed and leaves out what they are: the caller has just sent them.
//
// An existing file keeps its byte order mark and its line ends, and must be UTF-8. Write returns an *Error where it fails;
// the file is then as it was. In both cases Result.Path is the absolute path, and there is no text.
func (e *Editor) Write(path, dir, content string, start, end int) (Result, error) {
	return e.WriteIf("", path, dir, content, start, end)
}

// WriteIf is Write for a file that must have a hash, "" for any; else it fails with CodeConflict.
func (e *Editor) WriteIf(want, path, dir, content string, start, end int) (Result, error) {
	shown := absolutePath(dir, path)
	r, err := e.write(Command{Path: shown, IfSHA256: want}, content, start, end)
	r.Path = shown
	return r, err
}

func (e *Editor) write(c Command, content string, start, end int) (Result, error) {
	shown := c.Path
	if _, err := c.check(); err != nil {
		return Result{}, err
	}
	if !utf8.ValidString(content) {
		return Result{}, refuse(CodeInvalidArgument, "Parameter `content` is not valid UTF-8.")
	}
	p, leave, err := e.enterFor(c)
	defer leave()
	switch {
	case err != nil:
		return Result{}, err
	case p.isDir():
		return Result{}, refuse(CodeIsDirectory, "Path is a directory: %s. You can only write to files", shown)
	case start < -1 || end < -1 || start == -1 && end != -1 || end != -1 && start > end:
		return Result{}, refuse(CodeInvalidRange, "Invalid range for writing to %s: start=%d, end=%d. Lines are counted from 0, "+
			"start <= end, end is not included and -1 means to the end; start -1 appends.", shown, start, end)
	}
	content += "\n"
	if !p.exists() {
		r, err := e.createFile(p, []byte(content), birth{mode: 0o664, exact: true})
		if err != nil {
			return Result{}, err
		}
		r.Diff = writeDiff(shown, "", lineFeeds(content))
		return r, nil
	}
	f, err := e.loadPlain(p, shown)
	if err != nil {
		return Result{}, err
	}
	if !utf8.Valid(f.data) {
		return Result{}, refuse(CodeUnsupported, "File could not be decoded as utf-8: %s", shown)
	}
	mark := 0
	if bytes.HasPrefix(f.data, []byte("\ufeff")) {
		mark = len("\ufeff")
		content = strings.TrimPrefix(content, "\ufeff")
	}
	t := newText(f.data, mark, utf8Charset, string(f.data[mark:]))
	r, _, err := e.apply(p, f, t, []change{t.lineRange(start, end, content)}, writeDiff)
	return r, err
}

// lineRange is the change that Write makes to a file.
func (t *text) lineRange(start, end int, content string) change {
	c := change{0, len(t.view), content}
	if start == -1 {
		c.start = len(t.view)
	} else if start > 0 {
		c.start = lineStart(t.view, start)
	}
	if end != -1 {
		c.end = lineStart(t.view, end)
	}
	return c
}
