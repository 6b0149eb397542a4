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
