package search

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/actiond/actiond/executor/internal/gitignore"
	"github.com/actiond/actiond/internal/files"
)

// ignoreFiles are read in each directory. The last matching rule decides, in
// this order; rules of deeper directories come later.
var ignoreFiles = []string{".git/info/exclude", ".gitignore", ".ignore", ".geminiignore"}

// maxIgnoreFile bounds an ignore file, in bytes. The longest known ones have
// some thousand lines.
const maxIgnoreFile = 1 << 20

// ignore decides which files to leave out, by the rules of gitignore(5). A nil
// ignore leaves out none.
type ignore struct {
	levels []level
	size   int         // of their rules
	files  []string    // the names of those that are read in each directory
	late   func() bool // the time for rules is over
}

// level holds the rules that a directory adds.
type level struct {
	dir   string // absolute
	rules gitignore.Rules
}

// newIgnore returns the rules for root: those of the directories above it, up
// to the top of its repository. Outside a repository no rules of directories
// above apply. No more rules are matched once ended returns an error.
func newIgnore(root string, ended func() error) *ignore {
	ig := &ignore{files: ignoreFiles, late: func() bool { return ended() != nil }}
	var above []string
	for dir := root; ; dir = filepath.Dir(dir) {
		if dir != root {
			above = append(above, dir)
		}
		if _, err := os.Lstat(join(dir, ".git")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return ig
		}
	}
	for _, dir := range slices.Backward(above) {
		ig.enter(dir)
	}
	return ig
}

// enter adds the rules of a directory; leave removes them.
func (ig *ignore) enter(dir string) (leave func()) {
	if ig == nil {
		return func() {}
	}
	n, size := len(ig.levels), ig.size
	var rules gitignore.Rules
	for _, name := range ig.files {
		more, bytes := readRules(join(dir, name), gitignore.MaxBytes-ig.size)
		rules, ig.size = append(rules, more...), ig.size+bytes
	}
	if len(rules) > 0 {
		ig.levels = append(ig.levels, level{dir, rules})
	}
	return func() { ig.levels, ig.size = ig.levels[:n], size }
}

// skips reports whether to leave out an entry of a directory.
func (ig *ignore) skips(dir, name string, isDir bool) bool {
	if ig == nil {
		return false
	}
	for i := len(ig.levels) - 1; i >= 0; i-- {
		l := &ig.levels[i]
		below := strings.TrimPrefix(strings.TrimPrefix(dir, l.dir), "/")
		if r := l.rules.Last(below, name, isDir, ig.late); r != nil {
			return !r.Keeps
		}
	}
	return false
}

// readRules reads an ignore file, and returns their size. A missing file has no rules, as has one without room.
func readRules(path string, room int) (rules gitignore.Rules, size int) {
	f, err := files.OpenNonBlocking(path)
	if err != nil {
		return nil, 0
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(files.NonBlockingReader(f), maxIgnoreFile))
	if err != nil {
		return nil, 0
	}
	return gitignore.Parse(string(data), room)
}
