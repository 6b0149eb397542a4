// Package gitignore matches the names of files with the rules of gitignore(5).
package gitignore

import (
	"strings"
	"unsafe"

	"github.com/bmatcuk/doublestar/v4"
)

// Rules are those of one file. The last rule that matches decides.
type Rules []Rule

// MaxBytes is a bound for the sizes of all rules that a caller has at a time: hostile directories have many files.
const MaxBytes = 16 << 20

// Parse reads a file, and returns about how many bytes of memory its rules take, and those of the text, which takes time. A line
// that is no pattern has no rule. It returns no rules where size would be above room.
func Parse(text string, room int) (rules Rules, size int) {
	size = len(text)
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		if r, ok := parseRule(line); ok {
			size += 2*int(unsafe.Sizeof(r)) + len(r.Pattern) + len(r.glob) // twice: a slice grows
			rules = append(rules, r)
		}
		if size > room {
			return nil, 0
		}
	}
	return rules, size
}

// maxWork is how many bytes are compared, at worst, before a caller may end that: some milliseconds.
const maxWork = 1 << 20

// Last returns the last rule that matches an entry of a directory, or nil. dir is the path of that directory below the
// one that has the file with the rules, "" for the same. It gives up and returns nil once late, which is called now and then, is
// true; nil means that it takes its time.
func (rs Rules) Last(dir, name string, isDir bool, late func() bool) *Rule {
	path, work := "", 0
	for i := len(rs) - 1; i >= 0; i-- {
		r := &rs[i]
		if r.onlyDirs && !isDir {
			continue
		}
		if r.anchored && path == "" {
			if path = name; dir != "" {
				path = dir + "/" + name
			}
		}
		if r.matches(path, name) {
			return r
		}
		if work += 1 + len(r.glob)*(len(path)+len(name)); late != nil && work > maxWork {
			if work = 0; late() {
				return nil
			}
		}
	}
	return nil
}

// Rule is one line of a file.
type Rule struct {
	// Pattern is the line.
	Pattern string
	// Keeps is true for a rule with an exclamation mark: paths that match are not ignored.
	Keeps bool
	// onlyDirs is for a rule with a slash at the end.
	onlyDirs bool
	// anchored rules match the path below their directory, other rules match
	// the name.
	anchored bool
	// text is a whole name or, with suffix, the end of one. glob is the pattern
	// of other rules.
	text, glob string
	suffix     bool
}

func (r *Rule) matches(rel, name string) bool {
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

// parseRule reads one line.
func parseRule(line string) (r Rule, ok bool) {
	line = trimSpaces(strings.TrimSuffix(line, "\r"))
	if strings.HasPrefix(line, "#") {
		return Rule{}, false
	}
	if len(line) > maxLine {
		return Rule{}, false
	}
	line = strings.Clone(line) // a part would keep the whole text in memory
	r.Pattern = line
	line, r.Keeps = strings.CutPrefix(line, "!")
	line, r.onlyDirs = strings.CutSuffix(line, "/")
	r.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" || !ValidPattern(escapeBraces(line)) {
		return Rule{}, false
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

// longest bounds a pattern, in bytes, and maxLine a line, with an exclamation mark and slashes.
const longest, maxLine = 1024, longest + 3

// ValidPattern reports whether a pattern can be matched in bounded time: each
// choice in braces doubles the number of ways to match.
func ValidPattern(pattern string) bool {
	const mostChoices = 8
	return pattern != "" && len(pattern) <= longest &&
		strings.Count(pattern, "{")-strings.Count(pattern, `\{`) <= mostChoices &&
		strings.Count(pattern, ",") <= 8*mostChoices && doublestar.ValidatePattern(pattern)
}
