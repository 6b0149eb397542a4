//go:build linux

package files

import (
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Entry is a name in a directory that is listed.
type Entry struct {
	// Name is the path below the listed directory.
	Name string
	// Stat is nil where the entry could not be looked at, for the reason Err.
	Stat *unix.Stat_t
	// Target is the text of a symbolic link.
	Target string
	// Err is why the entry could not be looked at, or why a directory could not be
	// listed in a recursive listing.
	Err error
}

// Modified returns the time of the last change of the content; zero where it is not known.
func (e *Entry) Modified() time.Time {
	if e.Stat == nil {
		return time.Time{}
	}
	return time.Unix(e.Stat.Mtim.Unix())
}

// Listing lists a directory in pages. It follows no link below the directory. Memory is bounded
// by the page, however many names there are.
type Listing struct {
	// Dir is open for reading.
	Dir *os.File
	// Recursive lists the entries of the directories below, too.
	Recursive bool
	// After is the last path of the page before, "" for the first page.
	After string
	// Limit bounds the entries of the page, and Bytes that of their names and targets; one
	// entry is always taken.
	Limit, Bytes int
	// Ended returns the error that ends the work; nil never ends it.
	Ended func() error

	entries []Entry
	bytes   int
	levels  []listed // outermost first
	last    string
}

// listed are the names of a directory that follow.
type listed struct {
	entries []Entry
	more    bool // there are names behind these
}

var errVanished = errors.New("removed meanwhile")

// Page returns the entries behind l.After, ordered by the components of their paths, and the
// path from which the next page begins; "" for the last page. A page may have fewer entries
// than the limit.
func (l *Listing) Page() (entries []Entry, next string, err error) {
	if err := l.resume(); err != nil {
		return nil, "", err
	}
	for len(l.levels) > 0 {
		level := &l.levels[len(l.levels)-1]
		if len(level.entries) == 0 {
			if level.more {
				return l.entries, l.last, nil
			}
			l.levels = l.levels[:len(l.levels)-1]
			continue
		}
		e := level.entries[0]
		size := len(e.Name) + len(e.Target)
		if len(l.entries) >= l.Limit || len(l.entries) > 0 && l.bytes+size > l.Bytes {
			return l.entries, l.last, nil
		}
		level.entries = level.entries[1:]
		l.last = e.Name
		if errors.Is(e.Err, errVanished) {
			continue
		}
		l.bytes += size
		l.entries = append(l.entries, e)
		if !l.Recursive || e.Stat == nil || e.Stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		var below listed
		var err error = unix.ENAMETOOLONG
		if len(e.Name) < unix.PathMax {
			below, err = l.below(e.Name, "", l.Limit-len(l.entries))
		}
		if l.ended(err) {
			return nil, "", err
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // it was there when it was looked at
		}
		l.entries[len(l.entries)-1].Err = err
		l.push(below)
	}
	return l.entries, "", nil
}

// resume finds the entries that follow the last page: those of the directories on the way to its last
// entry, innermost first.
func (l *Listing) resume() error {
	var parts []string
	if l.After != "" {
		parts = strings.Split(l.After, "/")
	}
	if l.last = l.After; !l.Recursive {
		parts = parts[:min(1, len(parts))]
	}
	left := l.Limit
	for depth := len(parts); depth >= 0; depth-- {
		if depth == len(parts) && depth > 0 && !l.Recursive {
			continue
		}
		after := ""
		if depth < len(parts) {
			after = parts[depth]
		}
		level, err := l.below(path.Join(parts[:depth]...), after, left)
		reported := after == "" && (errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENAMETOOLONG)) // with its name
		if l.ended(err) || err != nil && (depth == 0 || !replaced(err) && !reported) {
			return err // its other names would be missing
		}
		left -= len(level.entries)
		l.levels = append(l.levels, level)
	}
	slices.Reverse(l.levels)
	return nil
}

// replaced reports whether err says that a directory was removed meanwhile, or is another file now.
func replaced(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

func (l *Listing) ended(err error) bool {
	_, ended := errors.AsType[*endedError](err)
	return ended
}

// endedError is an error of Ended.
type endedError struct{ error }

func (e *endedError) Unwrap() error { return e.error }

// push adds a level. Entries behind it that do not fit into the page are dropped.
func (l *Listing) push(level listed) {
	l.levels = append(l.levels, level)
	left := l.Limit - len(l.entries)
	for i := len(l.levels) - 1; i >= 0; i-- {
		at := &l.levels[i]
		if len(at.entries) > left {
			at.entries, at.more = slices.Clone(at.entries[:left]), true
		}
		left -= len(at.entries)
	}
}

// below returns the first names behind after in a directory, at most so many.
func (l *Listing) below(dir, after string, most int) (listed, error) {
	f, err := l.open(dir)
	if err != nil {
		return listed{}, err
	}
	defer f.Close()
	names, more, err := l.smallest(f, after, most)
	if err != nil {
		return listed{}, err
	}
	level := listed{entries: make([]Entry, 0, len(names)), more: more}
	for _, name := range names {
		level.entries = append(level.entries, look(f, dir, name))
	}
	return level, nil
}

// open opens a directory below, through no link. The listed directory itself is opened anew,
// because a descriptor has one position.
func (l *Listing) open(dir string) (*os.File, error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK
	if dir == "" {
		return OpenAt(l.Dir, ".", flags)
	}
	at := l.Dir
	if hasOpenat2() {
		fd, err := openResolved(int(at.Fd()), dir, flags|unix.O_CLOEXEC, unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: dir, Err: err}
		}
		at = os.NewFile(uintptr(fd), dir)
	} else {
		for name := range strings.SplitSeq(dir, "/") {
			next, err := openChild(at, name)
			if at != l.Dir {
				_ = at.Close() // it was only looked through
			}
			if err != nil {
				return nil, err
			}
			at = next
		}
	}
	if err := Check(at, flags); err != nil {
		_ = at.Close()
		return nil, err
	}
	return at, nil
}

// smallest returns the first names behind after, sorted, at most so many, and whether there are
// more. It holds twice as many.
func (l *Listing) smallest(dir *os.File, after string, most int) (names []string, more bool, err error) {
	trim := func() {
		slices.Sort(names)
		if len(names) > most {
			names, more = names[:most], true
		}
	}
	bound := ""
	for {
		if l.Ended != nil {
			if err := l.Ended(); err != nil {
				return nil, false, &endedError{err}
			}
		}
		portion, err := dir.Readdirnames(512)
		for _, name := range portion {
			switch {
			case name <= after:
			case bound != "" && name >= bound:
				more = true
			default:
				names = append(names, name)
			}
			if len(names) > 2*most {
				trim()
				if most == 0 {
					return nil, true, nil
				}
				bound = names[most-1]
			}
		}
		if errors.Is(err, io.EOF) {
			trim()
			return names, more, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
}

func look(f *os.File, dir, name string) Entry {
	e := Entry{Name: path.Join(dir, name)}
	var stat unix.Stat_t
	if e.Err = unix.Fstatat(int(f.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); e.Err != nil {
		if errors.Is(e.Err, fs.ErrNotExist) {
			e.Err = errVanished
		}
		return e
	}
	e.Stat = &stat
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		target := make([]byte, unix.PathMax)
		var n int
		if n, e.Err = unix.Readlinkat(int(f.Fd()), name, target); e.Err == nil {
			e.Target = string(target[:n])
		} else if errors.Is(e.Err, fs.ErrNotExist) {
			e.Err = errVanished
		}
	}
	return e
}

// maxCursor bounds the path in a cursor, in bytes: that of a directory, and a name.
const maxCursor = unix.PathMax + 256

// EncodeCursor returns the text for a path at which a listing goes on; "" for "".
func EncodeCursor(last string) string { return base64.RawURLEncoding.EncodeToString([]byte(last)) }

// DecodeCursor returns the path in a cursor, which leads nowhere but below the directory.
func DecodeCursor(text string) (last string, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if last = string(data); err != nil || len(last) > maxCursor || strings.Contains(last, "\x00") {
		return "", false
	}
	if last == "" {
		return "", true
	}
	for part := range strings.SplitSeq(last, "/") {
		if part == "" || part == "." || part == ".." {
			return "", false
		}
	}
	return last, true
}
