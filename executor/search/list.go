package search

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/bmatcuk/doublestar/v4"
)

// Entry is one thing in a directory.
type Entry struct {
	Name string
	Dir  bool
	// Size is in bytes; of regular files alone.
	Size int64
	// Link is what a symbolic link leads to, "" for others.
	Link string
}

// Listing is what is in a directory.
type Listing struct {
	Dir     string
	Entries []Entry
	// Ignored is how many were left out; Total how many were not, of which
	// Entries are the first.
	Ignored, Total int
}

// List lists a directory: directories first, then by name. Relative paths start
// from dir; skip are patterns of names to leave out; at most limit entries are
// returned. The error is of type *Error.
func (s *Searcher) List(ctx context.Context, dir, path string, skip []string, noIgnore bool, limit int) (l Listing, err error) {
	l.Dir = absolute(dir, path)
	for _, pattern := range skip {
		if !validPattern(pattern) {
			return Listing{}, badPattern(pattern)
		}
	}
	err = s.cfg.As(func() error {
		if err := directory(l.Dir); err != nil {
			return err
		}
		entries, err := read(l.Dir)
		if err != nil {
			return pathError(l.Dir, err)
		}
		var ig *ignore
		if !noIgnore {
			ig = newIgnore(l.Dir)
			ig.enter(l.Dir)
		}
		slices.SortStableFunc(entries, dirsFirst)
		for _, e := range entries {
			switch {
			case e.Name() == ".git" && !noIgnore || ig.skips(l.Dir, e.Name(), e.IsDir()) || matchesAny(skip, e.Name()):
				l.Ignored++
			case l.Total < limit && ctx.Err() == nil:
				l.Entries = append(l.Entries, describe(l.Dir, e))
				l.Total++
			default:
				l.Total++
			}
		}
		return nil
	})
	return l, err
}

// read returns what is in a directory, by name; of a huge one, a part.
func read(path string) ([]fs.DirEntry, error) {
	const most = 200_000 // 30 MB
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	entries, err := dir.ReadDir(most)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

func dirsFirst(a, b fs.DirEntry) int {
	rank := func(e fs.DirEntry) int {
		if e.IsDir() {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
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
