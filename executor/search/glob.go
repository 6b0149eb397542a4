package search

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/actiond/actiond/executor/internal/gitignore"
)

// GlobQuery describes the files to find.
type GlobQuery struct {
	// Dir is the absolute directory that relative paths start from. Path is the
	// directory to search; empty means Dir.
	Dir, Path string
	// Pattern matches paths below Path. An absolute pattern contains its own
	// directory.
	Pattern string
	// IgnoreCase matches letters of both cases.
	IgnoreCase bool
	// NoIgnore finds ignored files too.
	NoIgnore bool
	// Limit is the most files to return, at least 1.
	Limit int
}

// Files is the result of a search for files.
type Files struct {
	// Dir is the directory that was searched.
	Dir string
	// Paths are absolute, the newest first.
	Paths []string
	// Total is the number of matching files. With Cut, a bound ended the
	// search, and Total is the number found until then.
	Total int
	Cut   bool
	// IsDir says that nothing matches, and the pattern is the path of a directory.
	IsDir bool
}

// Glob finds files by a pattern of their paths. An error of type *Error says
// that nothing was searched. ctx bounds the search; Glob returns the files
// found until then.
func (s *Searcher) Glob(ctx context.Context, q GlobQuery) (files Files, err error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	asked := absolute(absolute(q.Dir, q.Path), q.Pattern)
	if err := s.cfg.User.Do(func() error { q.Pattern = q.literal(); return nil }); err != nil {
		return Files{}, err
	}
	root, pattern, err := q.split()
	if err != nil {
		return Files{}, err
	}
	err = s.cfg.User.Do(func() error {
		newest := newestFiles{limit: q.Limit}
		w := walk{ended: ctx.Err, depth: depthOf(pattern), wants: matcher(pattern, q.IgnoreCase), found: newest.add}
		if err := directory(root); err != nil {
			return err
		}
		if !q.NoIgnore {
			w.ignore = newIgnore(root, w.ended)
		}
		err := w.run(root)
		files = Files{Dir: root, Paths: newest.paths(), Total: newest.total, Cut: w.cut}
		files.IsDir = files.Total == 0 && directory(asked) == nil
		return err
	})
	return files, err
}

// literal returns the pattern with the brackets and braces escaped in its first directories, and in its
// name, if they exist with these in their names, such as src/app/[id].
func (q GlobQuery) literal() string {
	parts := strings.Split(q.Pattern, "/")
	path := absolute(q.Dir, q.Path)
	if filepath.IsAbs(q.Pattern) {
		path = "/"
	}
	for i, part := range parts {
		path = filepath.Join(path, part)
		if strings.ContainsAny(part, `*?\`) {
			break
		}
		if _, err := os.Lstat(path); err != nil {
			break
		}
		parts[i] = brackets.Replace(part)
	}
	return strings.Join(parts, "/")
}

var brackets = strings.NewReplacer("[", `\[`, "]", `\]`, "{", `\{`, "}", `\}`)

// split returns the directory to start in, and the pattern below it.
func (q GlobQuery) split() (root, pattern string, err error) {
	root, pattern = absolute(q.Dir, q.Path), q.Pattern
	pattern = strings.TrimPrefix(pattern, "./")
	if !gitignore.ValidPattern(pattern) {
		return "", "", badPattern(q.Pattern)
	}
	if filepath.IsAbs(pattern) || !q.IgnoreCase {
		// The directories before the first star need no search.
		var base string
		base, pattern = doublestar.SplitPattern(pattern)
		root = absolute(root, base)
	}
	if pattern == "" || slices.Contains(strings.Split(pattern, "/"), "..") {
		return "", "", badPattern(q.Pattern)
	}
	return root, pattern, nil
}

func badPattern(pattern string) error {
	return refuse("invalid_argument", `The pattern %q is not valid. Use * for any part of a name, ** for any directories, ? for a character, [a-z], {a,b}.`, pattern)
}

// depthOf returns the number of directory levels that a pattern can reach, 0
// for any.
func depthOf(pattern string) int {
	if strings.Contains(pattern, "**") || strings.Contains(pattern, "{") {
		return 0
	}
	return 1 + strings.Count(pattern, "/")
}

// matcher returns a function that matches paths below the root.
func matcher(pattern string, ignoreCase bool) func(rel string) bool {
	if ignoreCase {
		pattern = strings.ToLower(pattern)
		return func(rel string) bool { return doublestar.MatchUnvalidated(pattern, strings.ToLower(rel)) }
	}
	// The most common pattern matches a suffix.
	if end, ok := strings.CutPrefix(pattern, "**/*"); ok && !strings.ContainsAny(end, `*?[{\/`) {
		return func(rel string) bool { return strings.HasSuffix(rel, end) }
	}
	return func(rel string) bool { return doublestar.MatchUnvalidated(pattern, rel) }
}

// newestFiles keeps the newest files in bounded memory.
type newestFiles struct {
	limit int
	total int
	files []file
}

func (n *newestFiles) add(f file) {
	n.total++
	n.files = append(n.files, f)
	if len(n.files) >= 4096+2*n.limit {
		n.shrink()
	}
}

func (n *newestFiles) shrink() {
	slices.SortFunc(n.files, newer)
	n.files = n.files[:min(len(n.files), n.limit)]
}

func (n *newestFiles) paths() []string {
	n.shrink()
	paths := make([]string, len(n.files))
	for i, f := range n.files {
		paths[i] = f.path
	}
	return paths
}
