package search

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxIgnored bounds the time that the rules for one path are matched for.
const maxIgnored = time.Second

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
	begun, dir := time.Now(), "/"
	late := func() bool { return time.Since(begun) > maxIgnored }
	ig := &ignore{files: []string{".geminiignore"}, late: late}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, name := range parts {
		if _, err := os.Lstat(join(dir, ".git")); err == nil {
			ig = &ignore{files: ignoreFiles, late: late}
		}
		ig.enter(dir)
		if ig.skips(dir, name, i+1 < len(parts)) {
			return true
		}
		dir = join(dir, name)
	}
	return false
}
