package search

import (
	"os"
	"path/filepath"
	"strings"
)

// Ignored reports whether rules exclude an absolute path: those of
// .geminiignore in each directory above it and, in a repository, those that a
// search of it obeys. A file that cannot be read has no rules.
func (s *Searcher) Ignored(path string) bool {
	ignored := false
	_ = s.cfg.User.Do(func() error { // the only error is that of changing the user, and then no file is read
		ignored = leftOut(filepath.Clean(path))
		return nil
	})
	return ignored
}

func leftOut(path string) bool {
	ig, dir := &ignore{}, "/"
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	inside := false // a repository
	for i, name := range parts {
		if _, err := os.Lstat(join(dir, ".git")); err == nil {
			ig, inside = &ignore{}, true
		}
		if inside {
			ig.enter(dir)
		} else if rules := readRules(join(dir, ".geminiignore")); len(rules) > 0 {
			ig.levels = append(ig.levels, level{dir, rules})
		}
		if ig.skips(dir, name, i+1 < len(parts)) {
			return true
		}
		dir = join(dir, name)
	}
	return false
}
