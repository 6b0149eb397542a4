package search

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/actiond/actiond/executor/internal/gitignore"
)

// Entry is an entry of a directory.
type Entry struct {
	Name string
	Dir  bool
	// Size is the size of a regular file in bytes.
	Size int64
	// Link is the target of a symbolic link, "" for other entries.
	Link string
}

// Listing is the content of a directory.
type Listing struct {
	Dir     string
	Entries []Entry
	// Ignored is the number of entries that were left out, Total the number of
	// the others. Entries are the first of those.
	Ignored, Total int
	// Cut says that ctx ended the listing, so there may be more.
	Cut bool
}

// List lists a directory: directories first, then by name. Relative paths start
// from dir; skip are patterns of names to leave out; List returns at most limit
// entries. The error is of type *Error.
func (s *Searcher) List(
	ctx context.Context, dir, path string, skip []string, noIgnore bool, limit int,
) (l Listing, err error) {
	l.Dir = absolute(dir, path)
	for _, pattern := range skip {
		if !gitignore.ValidPattern(pattern) {
			return Listing{}, badPattern(pattern)
		}
	}
	err = s.cfg.User.Do(func() error {
		if err := directory(l.Dir); err != nil {
			return err
		}
		dir, err := openDir(l.Dir)
		if err != nil {
			return pathError(l.Dir, err)
		}
		defer func() { _ = dir.Close() }()
		var ig *ignore
		if !noIgnore {
			ig = newIgnore(l.Dir, ctx.Err)
			ig.enter(l.Dir)
		}
		first := firstEntries{limit: limit}
		for {
			if l.Cut = ctx.Err() != nil; l.Cut {
				break
			}
			entries, err := dir.ReadDir(portion)
			for _, e := range entries {
				if e.Name() == ".git" && !noIgnore || ig.skips(l.Dir, e.Name(), e.IsDir()) || matchesAny(skip, e.Name()) {
					l.Ignored++
					continue
				}
				l.Total++
				first.add(e)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return pathError(l.Dir, err)
			}
		}
		for _, e := range first.sorted() {
			l.Entries = append(l.Entries, describe(l.Dir, e))
		}
		return nil
	})
	return l, err
}

// firstEntries keeps the first entries of a directory in bounded memory:
// directories first, then by name.
type firstEntries struct {
	limit   int
	entries []fs.DirEntry
}

func (f *firstEntries) add(e fs.DirEntry) {
	if f.entries = append(f.entries, e); len(f.entries) >= 2*f.limit+portion {
		f.entries = f.sorted()
	}
}

func (f *firstEntries) sorted() []fs.DirEntry {
	slices.SortFunc(f.entries, func(a, b fs.DirEntry) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name(), b.Name()))
	})
	f.entries = f.entries[:min(len(f.entries), f.limit)]
	return f.entries
}

func rank(e fs.DirEntry) int {
	if e.IsDir() {
		return 0
	}
	return 1
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return doublestar.MatchUnvalidated(p, name) })
}

func describe(dir string, e fs.DirEntry) Entry {
	entry := Entry{Name: e.Name(), Dir: e.IsDir()}
	if e.Type() == fs.ModeSymlink {
		entry.Link, _ = os.Readlink(join(dir, e.Name()))
	} else if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
		entry.Size = info.Size()
	}
	return entry
}
