package search

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

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
}

// level holds the rules that a directory adds.
type level struct {
	dir   string // absolute
	rules []rule
}

// newIgnore returns the rules for root: those of the directories above it, up
// to the top of its repository. Outside a repository no rules of directories
// above apply.
func newIgnore(root string) *ignore {
	ig := &ignore{}
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
	n := len(ig.levels)
	var rules []rule
	for _, name := range ignoreFiles {
		rules = append(rules, readRules(join(dir, name))...)
	}
	if len(rules) > 0 {
		ig.levels = append(ig.levels, level{dir, rules})
	}
	return func() { ig.levels = ig.levels[:n] }
}

// skips reports whether to leave out an entry of a directory.
func (ig *ignore) skips(dir, name string, isDir bool) bool {
	if ig == nil {
		return false
	}
	for i := len(ig.levels) - 1; i >= 0; i-- {
		l := &ig.levels[i]
		rel := ""
		for j := len(l.rules) - 1; j >= 0; j-- {
			r := &l.rules[j]
			if r.onlyDirs && !isDir {
				continue
			}
			if r.anchored && rel == "" {
				rel = strings.TrimPrefix(strings.TrimPrefix(join(dir, name), l.dir), "/")
			}
			if r.matches(rel, name) {
				return !r.keeps
			}
		}
	}
	return false
}

// rule is one line of an ignore file.
type rule struct {
	// keeps is for a rule with an exclamation mark, onlyDirs for one with a
	// slash at the end.
	keeps, onlyDirs bool
	// anchored rules match the path below their directory, other rules match
	// the name.
	anchored bool
	// text is a whole name or, with suffix, the end of one. glob is the pattern
	// of other rules.
	text, glob string
	suffix     bool
}

func (r *rule) matches(rel, name string) bool {
	s := name
	if r.anchored {
		s = rel
	}
	switch {
	case r.glob != "":
		return doublestar.MatchUnvalidated(r.glob, s)
	case r.suffix:
		return strings.HasSuffix(s, r.text)
	}
	return s == r.text
}

// readRules reads an ignore file. A missing file has no rules.
func readRules(path string) []rule {
	f, err := files.OpenNonBlocking(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	r, err := files.NonBlockingReader(f)
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r, maxIgnoreFile))
	if err != nil {
		return nil
	}
	var rules []rule
	for line := range strings.SplitSeq(strings.TrimPrefix(string(data), "\ufeff"), "\n") {
		if r, ok := parseRule(line); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

// parseRule reads one line.
func parseRule(line string) (r rule, ok bool) {
	line = trimSpaces(strings.TrimSuffix(line, "\r"))
	if strings.HasPrefix(line, "#") {
		return rule{}, false
	}
	line, r.keeps = strings.CutPrefix(line, "!")
	line, r.onlyDirs = strings.CutSuffix(line, "/")
	r.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" || !validPattern(escapeBraces(line)) {
		return rule{}, false
	}
	if !strings.ContainsAny(line, `*?[\`) {
		r.text = line
		return r, true
	}
	if end, ok := strings.CutPrefix(line, "*"); ok && !r.anchored && !strings.ContainsAny(end, `*?[\`) {
		r.text, r.suffix = end, true
		return r, true
	}
	if strings.HasSuffix(line, "/**") { // the contents, and not the directory
		line += "/*"
	}
	r.glob = escapeBraces(line)
	return r, true
}

// trimSpaces removes trailing spaces, except after a backslash.
func trimSpaces(line string) string {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	return line
}

// escapeBraces escapes braces, which have no meaning in git.
func escapeBraces(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			b.WriteString(pattern[i : i+2])
			i++
			continue
		case c == '{' || c == '}':
			b.WriteByte('\\')
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}
