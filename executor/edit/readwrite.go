package edit

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/actiond/actiond/internal/files"
)

// BinaryFile is the text by which clients recognise a binary file (docs/reference/openhands-protocol.md, section 5.1).
const BinaryFile = "ERROR_BINARY_FILE"

// Read is the default read: the text of a file without numbers, its line ends as line feeds, the lines from start to
// end, counted from 0, end not included; start 0 and end -1 are the whole file. A relative path is taken from dir.
//
// Read returns images, PDF and video files, recognised by their names, as data URLs, and refuses invalid UTF-8. It
// returns an *Error on failure. In both cases Result.Path is the absolute path.
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
	f, err := e.loadPlain(p)
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

// loadPlain loads a regular file of any content.
func (e *Editor) loadPlain(p place) (*file, error) {
	f, err := e.load(p, e.maxRead)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, tooLarge(p, e.maxRead)
	case errors.Is(err, files.ErrNotRegular):
		return nil, notRegular(p)
	case err != nil:
		return nil, unreadable(p.shown, err)
	}
	return f, nil
}

// readLines returns the lines from start to end as the reference counts them. Inside the file it keeps two oddities
// that clients expect: a range is never empty, and the last line comes with the line before it. A range beyond the end
// is empty, and one that crosses the end stops there.
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

// Write is the default write: it replaces the lines from start to end, counted from 0, end excluded, by the lines of
// content, each with a line end. Start 0 and end -1 replace the whole file, start -1 appends. A relative path is taken
// from dir. A missing file is created with mode 0664, together with its directories.
//
// The diff of a large change names the changed lines without their text, which the caller has just sent.
//
// An existing file keeps its byte order mark and its line ends, and must be UTF-8. Write returns an *Error on failure;
// the file is then unchanged. In both cases Result.Path is the absolute path and Result.Text is empty.
func (e *Editor) Write(path, dir, content string, start, end int) (Result, error) {
	return e.WriteIf("", path, dir, content, start, end)
}

// WriteIf is [Editor.Write] for a file with the given hash, "" for any; otherwise it fails with CodeConflict.
func (e *Editor) WriteIf(want, path, dir, content string, start, end int) (Result, error) {
	return e.write(Command{Path: path, Dir: dir, IfSHA256: want}, content, start, end)
}

// WriteUnrecorded is WriteIf without an entry in the undo history. It is for clients whose editor knows its own edits
// only (docs/reference/openhands-protocol.md, section 5).
func (e *Editor) WriteUnrecorded(want, path, dir, content string, start, end int) (Result, error) {
	return e.write(Command{Path: path, Dir: dir, IfSHA256: want, unrecorded: true}, content, start, end)
}

// WriteExact is WriteIf that writes content as it is: it adds no line end, and converts none. Lines are replaced by
// content, and of a whole file nothing stays. The diff is one that patch accepts, unless it is so large that its text
// is left out.
func (e *Editor) WriteExact(want, path, dir, content string, start, end int) (Result, error) {
	return e.write(Command{Path: path, Dir: dir, IfSHA256: want, exact: true}, content, start, end)
}

func (e *Editor) write(c Command, content string, start, end int) (Result, error) {
	c.slash = strings.HasSuffix(c.Path, "/")
	c.Path = absolutePath(c.Dir, c.Path)
	r, err := e.writeAt(c, content, start, end)
	r.Path = c.Path
	return r, err
}

func (e *Editor) writeAt(c Command, content string, start, end int) (Result, error) {
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
	if !p.exists() {
		end := "\n"
		if c.exact {
			end = ""
		}
		data := []byte(content + end)
		r, err := e.createFile(p, data, creation{mode: 0o664, exact: true})
		switch {
		case err != nil:
			return Result{}, err
		case c.exact:
			r.Diff = patchDiff(noFile, shown, "", textOf(data), maxWriteDiff)
		default:
			r.Diff = writeDiff(shown, "", lineFeeds(textOf(data)))
		}
		return r, nil
	}
	f, err := e.loadPlain(p)
	if err != nil {
		return Result{}, err
	}
	if whole := c.exact && start == 0 && end == -1; !whole && !utf8.Valid(f.data) {
		return Result{}, refuse(CodeUnsupported, "File could not be decoded as utf-8: %s", shown)
	}
	if c.exact {
		return e.writeExact(p, f, content, start, end)
	}
	mark := 0
	if bytes.HasPrefix(f.data, []byte("\ufeff")) {
		mark = len("\ufeff")
		content = strings.TrimPrefix(content, "\ufeff")
	}
	t := newText(f.data, mark, utf8Charset, textOf(f.data[mark:]))
	quiet := func(diff, view string) string { return "" }
	if start == 0 && end == -1 && !t.crs { // what splice returns, with one copy instead of two
		if int64(len(t.raw)+len(content)) >= e.maxRead { // with the line end
			return Result{}, becomesTooLarge(p, e.maxRead)
		}
		raw := []byte(string(f.data[:mark]) + content + "\n")
		return e.applied(p, f, t, raw, lineFeeds(textOf(raw[mark:])), writeDiff, quiet)
	}
	return e.apply(p, f, t, []change{t.lineRange(start, end, content+"\n")}, writeDiff, quiet)
}

// writeExact replaces a range of lines, or everything, by content as it is.
func (e *Editor) writeExact(p place, f *file, content string, start, end int) (Result, error) {
	if start != 0 || end != -1 {
		t := newText(f.data, 0, utf8Charset, textOf(f.data))
		change := t.lineRange(start, end, content)
		at := t.offsets(change.start, change.end)
		content = t.body[:at[0]] + content + t.body[at[1]:]
	}
	if int64(len(content)) > e.maxRead {
		return Result{}, becomesTooLarge(p, e.maxRead)
	}
	r, err := e.replaceFile(p, f, []byte(content), f.info.Mode())
	if err != nil {
		return Result{}, err
	}
	r.Diff = patchDiff(p.shown, p.shown, patchText(f.data), content, maxWriteDiff)
	return r, nil
}

// lineRange is the change that [Editor.Write] makes to a file.
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
