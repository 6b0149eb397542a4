package changes

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/linediff"
	"github.com/actiond/actiond/executor/internal/store"
)

const (
	// maxDiffed is the largest text that a diff is made of, in bytes.
	maxDiffed = 256 << 10
	// diffFiles and diffTime bound the files that are read, because they are not kept yet, and the time that diffs take.
	diffFiles = 50
	diffTime  = 50 * time.Millisecond
	// sureFiles is how many diffs are made on a busy machine too.
	sureFiles = 10
)

// Entry is a fact with what is known of the contents.
type Entry struct {
	Fact
	// Was and Now are the types and modes before and after, as in st_mode; 0 where there was or is no file.
	Was, Now uint32
	// Diff has the hunks of a unified diff of UTF-8 texts, or of the targets of symbolic links, without context lines and without
	// a file header; "" where no hunk can be told. Of a file that has another type by now, the lines before are removed, and then those
	// after are added.
	Diff           string
	Added, Removed int // lines
	// Read is true if both texts are known, so that Diff is complete.
	Read bool
	// Content is that of the file in the later state, of a deleted file that in the earlier one.
	Content Content
}

// Diff adds diffs to the facts of c, which compares the states a and b of t. Texts of b that are not kept yet are kept,
// if the file is still the same. Truncated reports whether one of the limits left out a diff: bytes of diffs in
// all, 64 KiB for 0; 50 files that are read; 50 ms, but for the first 10 files. Larger texts than 256 KiB have no diff. It
// fails where the store is broken.
func (t *Tracker) Diff(a, b *State, c *Changes, maxBytes int) (entries []Entry, truncated bool, err error) {
	d := &differ{t: t, room: cmp.Or(maxBytes, 64<<10), files: diffFiles, until: time.Now().Add(diffTime), sure: sureFiles}
	entries = make([]Entry, len(c.Facts))
	for i, f := range c.Facts {
		was, now := c.files[i].was, c.files[i].now
		if entries[i].Fact = f; was != nil {
			entries[i].Was = was.attr.mode
		}
		if now != nil {
			entries[i].Now = now.attr.mode
		}
	}
	for _, op := range []Op{Modified, Created, Deleted} { // the whole text of many files says less
		for i, f := range c.Facts {
			if f.Op != op {
				continue
			}
			if err := d.diff(&entries[i], c.files[i]); err != nil {
				return nil, false, err
			}
		}
	}
	for i, f := range c.Facts {
		switch files := c.files[i]; {
		case f.Op == Deleted && files.was.regular():
			entries[i].Content = t.content(files.was, false)
		case f.Op != Deleted && files.now.regular():
			entries[i].Content = t.content(files.now, t.present(b, f.Path, files.now))
		}
	}
	return entries, d.truncated, nil
}

type differ struct {
	t         *Tracker
	room      int // bytes of diffs
	files     int // that may be read
	until     time.Time
	sure      int // files whose diffs are made whatever the time
	truncated bool
}

func (d *differ) diff(e *Entry, files pairOf) error {
	was, now := files.was, files.now
	switch {
	case !was.diffed() && !now.diffed(), was.tooLarge() || now.tooLarge():
		return nil
	case d.room <= 0 || d.sure <= 0 && time.Now().After(d.until):
		d.truncated = true
		return nil
	}
	d.sure--
	after, ok, err := d.text(e.Path, now)
	if err != nil || !ok {
		return err
	}
	before, ok, err := d.text("", was)
	if err != nil || !ok {
		return err
	}
	var hunks []string
	for _, side := range sides(was, now, before, after) {
		if side[0] == side[1] {
			continue
		}
		x, y, above := linediff.CutLines(side[0], side[1])
		hunk, added, removed := linediff.Unified(x, y, above)
		hunks = append(hunks, hunk)
		e.Added, e.Removed = e.Added+added, e.Removed+removed
	}
	diff := strings.Join(hunks, "\n")
	if len(diff) > d.room {
		d.truncated = true
		e.Added, e.Removed = 0, 0
		return nil
	}
	d.room -= len(diff)
	e.Diff, e.Read = diff, true
	return nil
}

// sides are the texts to compare: where the type changed, as git does, the end of one file and the beginning of another one.
func sides(was, now *node, before, after string) [][2]string {
	if was != nil && now != nil && was.attr.kind() != now.attr.kind() {
		return [][2]string{{before, ""}, {"", after}}
	}
	return [][2]string{{before, after}}
}

// diffed reports whether a file is of a type that has lines.
func (n *node) diffed() bool { return n != nil && (n.regular() || n.attr.kind() == unix.S_IFLNK) }

func (n *node) tooLarge() bool { return n != nil && n.regular() && n.attr.size > maxDiffed }

// text returns the content of a file, "" for one that has no lines, if it can be had and is text. With a path, that of the later
// state, it may be read.
func (d *differ) text(path string, n *node) (text string, ok bool, err error) {
	switch {
	case !n.diffed():
		return "", true, nil
	case !n.regular():
		return n.extra().link, utf8.ValidString(n.extra().link), nil
	}
	data, err := d.t.kept(n)
	if errors.Is(err, store.ErrNotKept) && path != "" {
		if d.files == 0 {
			d.truncated = true
			return "", false, nil
		}
		d.files--
		data, err = d.t.keepNow(path, n)
	}
	if errors.Is(err, store.ErrNotKept) || errors.Is(err, store.ErrFull) {
		return "", false, nil
	}
	if err != nil || !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return "", false, err
	}
	return string(data), true, nil
}

// keepNow keeps a file of a state, if it is still the same, and returns its content. It fails with [store.ErrNotKept].
func (t *Tracker) keepNow(path string, n *node) ([]byte, error) {
	if t.cfg.Store == nil {
		return nil, store.ErrNotKept
	}
	t.mu.Lock()
	m, ok := t.find(path)
	t.mu.Unlock()
	if !ok {
		return nil, store.ErrNotKept
	}
	all, _, err := t.takePortion([]arrival{{m.d, n}})
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if err := t.keep(k); err != nil {
			return nil, err
		}
	}
	return t.kept(n)
}
