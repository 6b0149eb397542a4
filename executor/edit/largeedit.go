package edit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/tempfile"
)

const (
	// largeBuffer is how much of a large file is in memory at a time.
	largeBuffer = 1 << 20
	// maxLargeText bounds old_str of a large file.
	maxLargeText = 64 << 10
	// reach is how many bytes around an edit of a large file are read for the answer.
	reach = 16 << 10

	// What lseek(2) looks for.
	seekData = 3
	seekHole = 4
)

// part is what an undo entry says of the edit of a large file, whose replaced bytes alone are kept.
type part struct {
	at, length int64 // of the new bytes
	line       int   // where they begin, from 1
	was        hash  // the version of the file before
	now        hash  // after it was undone
}

// large is a file that is too large to be loaded.
type large struct {
	*whole
	size int64
	eol  string
	mark int64 // the length of a byte order mark
	utf8 bool  // as far as the beginning shows
}

// splicing replaces bytes of a large file.
type splicing struct {
	at, old int64 // the replaced bytes
	line    int   // where they begin, from 1
	lines   int   // line feeds in them
	text    []byte
}

// isLarge reports whether a command is an edit that only editLarge can make, or must refuse with its cost.
func (e *Editor) isLarge(p place, c Command) bool {
	return c.AllowLarge != nil && c.Edits == nil && p.exists() && p.info.Mode().IsRegular() && p.info.Size() > e.limit(p.dialect)
}

// editLarge edits a file of any size in constant memory: find finds the place, and the file is written anew beside the old one.
// The undo history keeps the replaced bytes.
func (e *Editor) editLarge(p place, c Command, find func(*large) (splicing, error)) (Result, error) {
	if !*c.AllowLarge {
		limit := e.limit(p.dialect)
		return Result{}, refuse(CodeTooLarge, "File validation failed for %s: File is too large (%.1fMB). Maximum allowed size is %dMB. "+
			"To edit it, the server would write its %d bytes once more, beside the old ones. Set `allow_large` to true to do that.",
			p.shown, float64(p.info.Size())/(1<<20), limit>>20, onDisk(p.info))
	}
	l, err := e.openLarge(p)
	if err != nil {
		return Result{}, err
	}
	defer l.close()
	if err := l.checkText(); err != nil {
		return Result{}, err
	}
	s, err := find(l)
	if err != nil {
		if _, known := errors.AsType[*Error](err); known {
			return Result{}, err
		}
		return Result{}, unreadable(p.shown, err)
	}
	if s.at == 0 {
		s.at, s.old = l.mark, max(0, s.old-l.mark)
	}
	if !l.utf8 && !isASCII(s.text) {
		return Result{}, refuse(CodeNotEncodable, "The file %s is not UTF-8 at its beginning, and too large to find out its encoding: "+
			"only ASCII can be added. Nothing was changed.", p.shown)
	}
	en := &entry{mode: l.file.info.Mode(), part: &part{at: s.at, length: int64(len(s.text)), line: s.line, was: versionOf(l.file.info)}}
	var unkept error
	if s.old > e.maxEdit {
		unkept = fmt.Errorf("it replaced %d bytes, and at most %d are kept", s.old, e.maxEdit)
	} else if en.data, err = l.bytes(s.at, s.old); err != nil {
		return Result{}, unreadable(p.shown, err)
	}
	en.before = hashOf(en.data)
	r, view, first, err := l.splice(s, en.mode, &en.after)
	if err != nil {
		return Result{}, err
	}
	if unkept != nil {
		e.history.forget(p.real)
		r.HistoryErr = unkept
	} else {
		r.HistoryErr = e.record(p, en)
	}
	r.Text = fmt.Sprintf("The file %s has been edited. ", p.shown) + p.dialect.numbered("a snippet of "+p.shown, view, first) + reviewReplace
	return r, nil
}

// onDisk returns how many bytes of a file are stored: holes are not.
func onDisk(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(info.Size(), stat.Blocks*512)
	}
	return info.Size()
}

// openLarge opens a file to be edited in parts. The caller must close it.
func (e *Editor) openLarge(p place) (*large, error) {
	l := &large{whole: &whole{e: e, place: p}}
	err := e.as(func() error { return l.open(true) })
	switch {
	case err != nil:
		err = unwritable(p.shown, err)
	case l.read == nil:
		err = unreadable(p.shown, l.unkept)
	case l.file.keepsInode():
		err = refuse(CodeUnsupported, "The file %s has other names or extended attributes, which a new file would lose. "+
			"Edit it with a command that writes it in place. Nothing was changed.", p.shown)
	case l.file.info.Size() > e.maxScan:
		err = e.tooLong(p)
	case p.want != "":
		if err = l.hash(); err != nil {
			err = unreadable(p.shown, err)
		} else if l.sum != p.want {
			err = stale(p, l.sum)
		}
	}
	if err != nil {
		l.close()
		return nil, err
	}
	l.size = l.file.info.Size()
	return l, nil
}

// checkText looks at the beginning of the file. It refuses what is not text, or text that is not a superset of ASCII.
func (l *large) checkText() error {
	head, err := l.bytes(0, min(l.size, 64<<10))
	if err != nil {
		return unreadable(l.shown, err)
	}
	for _, m := range marks {
		if !bytes.HasPrefix(head, []byte(m.bytes)) {
			continue
		}
		if m.charset.coding != nil {
			return refuse(CodeUnsupported, "The file %s is written in %s. A file of this size must be written in UTF-8 or a superset of ASCII "+
				"to be edited. Nothing was changed.", l.shown, m.charset.name)
		}
		l.mark = int64(len(m.bytes))
		break
	}
	whole := head
	for len(whole) > 0 && len(head)-len(whole) < utf8.UTFMax && !utf8.Valid(whole) { // the last character may be cut
		whole = whole[:len(whole)-1]
	}
	l.utf8 = utf8.Valid(whole)
	if start := head[:min(len(head), 8<<10)]; isBinary(start, l.utf8) {
		return l.e.notText(l.place)
	}
	if l.eol = "\n"; dominantEnd(string(head)) == "\r\n" {
		l.eol = "\r\n"
	}
	return nil
}

// bytes reads a part of the file.
func (l *large) bytes(at, n int64) ([]byte, error) {
	b := make([]byte, n)
	if _, err := l.read.ReadAt(b, at); err != nil && !(errors.Is(err, io.EOF) && n == 0) {
		return nil, shrunk(err)
	}
	return b, nil
}

// shrunk returns errChanged for the end of a file that was longer.
func shrunk(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errChanged
	}
	return err
}

// stored calls do for each stored part of a file from one offset up to another: not for holes, where the file system has them.
func stored(f *os.File, from, to int64, do func(from, to int64) error) error {
	for from < to {
		start, err := f.Seek(from, seekData)
		switch {
		case errors.Is(err, unix.ENXIO):
			return nil
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTSUP):
			return do(from, to)
		case err != nil:
			return err
		case start >= to:
			return nil
		}
		end, err := f.Seek(start, seekHole)
		if err != nil {
			return err
		}
		end = min(end, to)
		if err := do(start, end); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// errEnough ends a search.
var errEnough = errors.New("enough")

// each calls do with the stored text of a part of the file, in pieces that share the last keep bytes of one with the beginning of
// the next one. last says that what follows is a hole or the end. do returns how much of the piece is done.
func (l *large) each(from, to int64, keep int, do func(text []byte, at int64, last bool) (done int, err error)) error {
	buf := make([]byte, largeBuffer+keep)
	err := stored(l.read, from, to, func(from, to int64) error {
		for kept := 0; from < to; {
			n, err := l.read.ReadAt(buf[kept:min(int64(len(buf)), int64(kept)+to-from)], from)
			if n == 0 {
				return shrunk(err)
			}
			from += int64(n)
			text := buf[:kept+n]
			done, err := do(text, from-int64(len(text)), from == to)
			if err != nil {
				return err
			}
			kept = copy(buf, text[done:])
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// lineStarts returns the offsets of two lines, counted from 0 and in order, or -1 for one behind the end, and the number of line
// feeds up to where the search ended.
func (l *large) lineStarts(a, b int) (atA, atB int64, feeds int, err error) {
	atA, atB = -1, -1
	if a == 0 {
		atA = 0
	}
	if b == 0 {
		atB = 0
	}
	if atA == 0 && atB == 0 {
		return atA, atB, 0, nil
	}
	err = l.each(0, l.size, 0, func(text []byte, at int64, _ bool) (int, error) {
		if n := bytes.Count(text, []byte("\n")); feeds+n < a || atA >= 0 && feeds+n < b {
			feeds += n
			return len(text), nil
		}
		for i := 0; ; {
			next := bytes.IndexByte(text[i:], '\n')
			if next < 0 {
				return len(text), nil
			}
			i += next + 1
			feeds++
			if feeds == a {
				atA = at + int64(i)
			}
			if feeds == b {
				atB = at + int64(i)
			}
			if atA >= 0 && atB >= 0 {
				return len(text), errEnough
			}
		}
	})
	return atA, atB, feeds, err
}

// endsOpen reports whether the last line has no line end.
func (l *large) endsOpen() (bool, error) {
	last, err := l.bytes(l.size-1, 1)
	return err == nil && last[0] != '\n', err
}

// findText finds the only place of a text, in the lines that the command names. Its line ends match line feeds, or CRLFs, of the file.
func (l *large) findText(c Command, r Replacement) (splicing, error) {
	old, replacement := r.Old, r.New
	if len(old) > maxLargeText {
		return splicing{}, refuse(CodeTooLarge, "Parameter `old_str` has %d bytes. At most %d are searched for in a file of this size.", len(old), maxLargeText)
	}
	if old == "" {
		return splicing{}, missing("old_str", "str_replace")
	}
	from, to, line, name, err := l.searched(c)
	if err != nil {
		return splicing{}, err
	}
	old = lineFeeds(old)
	forms := [][]byte{[]byte(old)}
	if strings.Contains(old, "\n") {
		forms = append(forms, []byte(bareFeeds(old, "\r\n")))
	}
	longest := len(forms[len(forms)-1])
	s := splicing{text: []byte(bareFeeds(lineFeeds(replacement), l.eol)), lines: strings.Count(old, "\n")}
	count, before := 0, byte(0) // before is the byte before the text
	var lines []int
	err = l.each(from, to, longest, func(text []byte, at int64, last bool) (int, error) {
		end, done := len(text), 0
		if !last {
			end = max(0, len(text)-longest+1)
		}
		for {
			from, length := l.firstOf(text, done, before, forms)
			if from < 0 || from >= end {
				break
			}
			count++
			line += bytes.Count(text[done:from], []byte("\n"))
			if len(lines) < maxListedLines && (len(lines) == 0 || lines[len(lines)-1] != line) {
				lines = append(lines, line)
			}
			if count == 1 {
				s.at, s.old, s.line = at+int64(from), int64(length), line
			}
			if line += s.lines; count == maxListedLines {
				return len(text), errEnough
			}
			done = from + length
		}
		if done < end {
			line += bytes.Count(text[done:end], []byte("\n"))
			done = end
		}
		switch {
		case last: // a hole is full of zeros
			before = 0
		case done > 0:
			before = text[done-1]
		}
		return done, nil
	})
	switch {
	case err != nil:
		return s, err
	case count == 0:
		return s, refuse(CodeNoMatch, "No replacement was performed, old_str `%s` did not appear verbatim in %s.", old, name)
	case count > 1:
		return s, refuse(CodeMultipleMatches, "No replacement was performed. Multiple occurrences of old_str `%s` in lines %s. "+
			"Please ensure it is unique.", old, list(lines))
	}
	return s, nil
}

// searched returns the part of the file in which str_replace searches, its first line and its name for messages.
func (l *large) searched(c Command) (from, to int64, line int, name string, err error) {
	first, last, err := c.lines()
	if err != nil {
		return 0, 0, 0, "", err
	}
	behind := last
	if last == -1 {
		behind = first - 1
	}
	from, to, feeds, err := l.lineStarts(first-1, behind)
	if err != nil {
		return 0, 0, 0, "", err
	}
	if from < 0 || last > feeds+1 {
		return 0, 0, 0, "", noSuchLines(first, last, feeds+1)
	}
	if last == -1 || to < 0 {
		to = l.size
	}
	return from, to, first, rangeName(first, last, l.shown), nil
}

// firstOf returns the first place of one of several forms of a text, -1 for none. A form that begins with a line feed does not
// match within a CRLF.
func (l *large) firstOf(text []byte, from int, before byte, forms [][]byte) (at, length int) {
	at = -1
	for _, form := range forms {
		for begin := from; ; {
			found := bytes.Index(text[begin:], form)
			if found < 0 {
				break
			}
			found += begin
			previous := before
			if found > 0 {
				previous = text[found-1]
			}
			if form[0] == '\n' && previous == '\r' {
				begin = found + 1
				continue
			}
			if at < 0 || found < at {
				at, length = found, len(form)
			}
			break
		}
	}
	return at, length
}

// findLine finds where insert adds its lines.
func (l *large) findLine(c Command, after int) (splicing, error) {
	wanted := after
	if after < 0 || int64(after) > l.size {
		wanted = int(l.size) + 1 // behind every line
	}
	at, _, feeds, err := l.lineStarts(wanted, wanted)
	if err != nil {
		return splicing{}, err
	}
	s := splicing{at: at, line: after + 1, text: []byte(bareFeeds(lineFeeds(*c.NewStr)+"\n", l.eol))}
	if at >= 0 {
		return s, nil
	}
	open, err := l.endsOpen()
	if err != nil {
		return s, err
	}
	count := feeds
	if open {
		count++
	}
	if !open || after != count {
		return s, invalid(CodeInvalidRange, "insert_line", *c.InsertLine, fmt.Sprintf(
			"It should be within the range of allowed values: [0, %d]", count))
	}
	s.at, s.line, s.text = l.size, after, append([]byte(l.eol), s.text...) // the last line has no line end yet
	return s, nil
}

// findWindow finds the lines that write replaces.
func (l *large) findWindow(c Command) (splicing, error) {
	first, last := c.Start, c.End
	if first == 0 {
		first = 1
	}
	if last == 0 {
		last = -1
	}
	if first < -1 || first > -1 && (last < -1 || last != -1 && first > last) {
		return splicing{}, refuse(CodeInvalidRange, "Invalid range for editing: start=%d, end=%d. start must be >= 1 and end >= start, "+
			"end == -1 (to edit till the end of the file), or start == -1 (append to the end of the file).", first, last)
	}
	a, b := first-1, last
	if first == -1 {
		a = int(l.size) + 1 // behind every line
	}
	if last == -1 {
		b = int(l.size) + 1
	}
	start, end, feeds, err := l.lineStarts(a, b)
	if err != nil {
		return splicing{}, err
	}
	total := feeds + 1
	if end < 0 {
		end = l.size
	}
	if first == -1 {
		start, first = l.size, total
	} else if start < 0 || last > total {
		return splicing{}, refuse(CodeInvalidRange, "Invalid range for editing: start=%d, end=%d, total lines=%d. start and end must be <= %d "+
			"(total lines of the edited file), or start == -1 (append to the end of the file).", first, last, total, total)
	}
	open, err := l.endsOpen()
	if err != nil {
		return splicing{}, err
	}
	content := lineFeeds(*c.Content)
	if content != "" {
		if start == l.size && open {
			content = "\n" + content
		}
		if !strings.HasSuffix(content, "\n") && (end < l.size || !open) {
			content += "\n"
		}
	}
	s := splicing{at: start, old: end - start, line: first, text: []byte(bareFeeds(content, l.eol))}
	if last == -1 {
		last = total
	}
	if s.old > 0 {
		s.lines = last - first + 1
	}
	return s, nil
}

// splice writes the file anew with other bytes, and returns the lines around them and the number of the first one. after gets the
// version of the new file.
func (l *large) splice(s splicing, mode fs.FileMode, after *hash) (r Result, view string, first int, err error) {
	above, below, err := l.around(s)
	if err != nil {
		return r, "", 0, unreadable(l.shown, err)
	}
	first = s.line - strings.Count(above, "\n")
	view = lineFeeds(above + string(s.text[:min(len(s.text), maxShown)]))
	if len(s.text) <= maxShown {
		view = lineFeeds(above + string(s.text) + below)
	}
	r = Result{Existed: true, Diff: header(l.shown) + hunk{0, s.lines, 0, strings.Count(string(s.text), "\n")}.header(s.line-1) +
		fmt.Sprintf("\n[text left out: %d bytes removed, %d added]", s.old, len(s.text))}
	if s.old+int64(len(s.text)) <= maxWriteDiff {
		old, err := l.bytes(s.at, s.old)
		if err != nil {
			return r, "", 0, unreadable(l.shown, err)
		}
		r.Diff = diffBelow(first-1, l.shown, lineFeeds(above+string(old)+below), lineFeeds(above+string(s.text)+below))
	}
	if err := l.e.as(func() error { return l.rewriteWith(s, mode, after) }); err != nil {
		return r, "", 0, unwritable(l.shown, err)
	}
	return r, strings.TrimSuffix(cutLines(view), "\n"), first, nil
}

// cutLines shortens long lines.
func cutLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if len(line) > maxLargeLine {
			lines[i] = strings.ToValidUTF8(line[:maxLargeLine], "") + "... [truncated]"
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), "\x00", `\x00`)
}

// around returns the text of some lines before and after a place, which begins at the start of a line, unless that is far.
func (l *large) around(s splicing) (above, below string, err error) {
	from := max(0, s.at-reach)
	b, err := l.bytes(from, s.at-from)
	if err != nil {
		return "", "", err
	}
	a, err := l.bytes(s.at+s.old, min(reach, l.size-s.at-s.old))
	if err != nil {
		return "", "", err
	}
	start := len(b)
	for range snippetContext + 1 {
		if start = bytes.LastIndexByte(b[:start], '\n'); start < 0 {
			break
		}
	}
	if start++; start == 0 && from > 0 { // not at the beginning of a line
		start = bytes.IndexByte(b, '\n') + 1
	}
	end := 0
	for range snippetContext + 1 {
		next := bytes.IndexByte(a[end:], '\n')
		if next < 0 {
			end = len(a)
			break
		}
		end += next + 1
	}
	return string(b[start:]), string(a[:end]), nil
}

// rewriteWith puts a new file with other bytes in the place of the old one. It runs inside as.
func (l *large) rewriteWith(s splicing, mode fs.FileMode, after *hash) error {
	t, err := l.e.newTemp(filepath.Dir(l.real), 0o600)
	if err != nil {
		return err
	}
	defer t.Discard()
	shift, sparse := int64(len(s.text))-s.old, onDisk(l.file.info) < l.size
	err = copyStored(t.File.File, l.read, 0, s.at, 0, sparse)
	if err == nil {
		_, err = t.WriteAt(s.text, s.at)
	}
	if err == nil {
		err = copyStored(t.File.File, l.read, s.at+s.old, l.size, shift, sparse)
	}
	if err == nil {
		err = t.Truncate(l.size + shift) // it may end in a hole
	}
	if err == nil {
		err = l.e.flush(t.File.File)
	}
	if err != nil {
		return err
	}
	// The kernel's time is coarse: a change right after this one might get the same.
	_ = os.Chtimes(fdPath(t.File.File), time.Time{}, time.Now())
	info, err := t.Stat()
	if err != nil {
		return err
	}
	*after = versionOf(info)
	if err := tempfile.Give(t.File.File, int(l.file.stat.Uid), int(l.file.stat.Gid)); err != nil {
		return err
	}
	if err := t.Chmod(mode & tempfile.ModeBits); err != nil {
		return err
	}
	if err := l.file.unchanged(); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return t.Rename(l.real)
}

// copyStored copies a part of a file to another one, shifted, and leaves holes where it has holes. The kernel copies, and shares
// blocks where the file system can. Of a sparse file, zeros are left out too: not every file system says where the holes are.
func copyStored(to, from *os.File, start, end, shift int64, sparse bool) error {
	return stored(from, start, end, func(start, end int64) error {
		if sparse {
			return copyNonZero(to, from, start, end, shift)
		}
		if _, err := from.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := to.Seek(start+shift, io.SeekStart); err != nil {
			return err
		}
		_, err := io.CopyN(to, from, end-start)
		return shrunk(err)
	})
}

func copyNonZero(to, from *os.File, start, end, shift int64) error {
	buf, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for start < end {
		n, err := from.ReadAt(buf[:min(int64(len(buf)), end-start)], start)
		if n == 0 {
			return shrunk(err)
		}
		if !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := to.WriteAt(buf[:n], start+shift); err != nil {
				return err
			}
		}
		start += int64(n)
	}
	return nil
}

// restorePart undoes an edit of a large file.
func (e *Editor) restorePart(p place, en *entry) (Result, error) {
	l, err := e.openLarge(p)
	if err != nil {
		return Result{}, err
	}
	defer l.close()
	if versionOf(l.file.info) != en.after {
		return Result{}, changedSince(p)
	}
	added, err := l.bytes(en.part.at, min(en.part.length, e.maxEdit))
	if err != nil {
		return Result{}, unreadable(p.shown, err)
	}
	s := splicing{at: en.part.at, old: en.part.length, line: en.part.line, text: en.data, lines: bytes.Count(added, []byte("\n"))}
	r, view, first, err := l.splice(s, en.mode, &en.part.now)
	if err != nil {
		return Result{}, err
	}
	r.Text = fmt.Sprintf("Last edit to %s undone successfully. ", p.shown) + p.dialect.numbered("a snippet of "+p.shown, view, first)
	return r, nil
}

// moved notes that the version of a file, which its last entry left, came back as another one: by undoing the edit after it.
func (h *history) moved(path string, was, now hash) {
	en, s, err := h.top(path)
	if err != nil || en == nil || en.part == nil || en.after != was {
		return
	}
	en.after = now
	if s.inMem == nil {
		_ = h.write(entryName(historyKey(path), s), en) // otherwise undo refuses
	}
}
