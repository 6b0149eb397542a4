package search_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/search"
)

// FuzzLines compares the quick way to find lines with the plain one, and a
// match with the text that is said to be in it.
func FuzzLines(f *testing.F) {
	for _, s := range [][2]string{
		{"a", "a\nb\n"},
		{"^$", "\n\na"},
		{"a$", "a\r\na"},
		{`\n`, "a\nb"},
		{`a\s+b`, "a\nb\na b"},
		{`\Aa|b\z`, "a\nb"},
		{"[^x]", "x\n\nx"},
		{"(?i)k", "\u212a"},
		{"", "a"},
		{"x*", ""},
		{"(ab)+c", "ababc"},
		{"\xff", "\xff"},
		{"(?s)a.b", "a\nb"},
		{"(?m)^a$", "b\na\nb"},
	} {
		f.Add(s[0], false, []byte(s[1]))
		f.Add(s[0], true, []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, pattern string, ignoreCase bool, text []byte) {
		fast, slow, err := search.LinesOf(t.Context(), pattern, ignoreCase, text)
		if err != nil {
			return
		}
		if !slices.Equal(fast, slow) {
			t.Fatalf("%q in %q: got lines %v, one by one %v", pattern, text, fast, slow)
		}
		literal, err := search.LiteralOf(t.Context(), pattern)
		if err != nil || strings.Contains(pattern, "(?") {
			return
		}
		for _, match := range regexp.MustCompile(pattern).FindAllString(string(text), -1) {
			if !strings.Contains(match, literal) {
				t.Fatalf("%q matches %q without %q", pattern, match, literal)
			}
		}
	})
}

// FuzzGlob tries patterns and rules: none may break the search.
func FuzzGlob(f *testing.F) {
	for _, s := range [][2]string{
		{"**/*", "*.o"}, {"a/{b,c}/*", "!a"}, {"[", "["}, {`a\`, `a\`}, {"/", "/"}, {"{{a,b},c}", "**/"}, {"**/**/**", "***"}, {"[^a]", "[!a]"},
	} {
		f.Add(s[0], s[1], false)
		f.Add(s[0], s[1], true)
	}
	root := tree(f, "a/b/c.txt", "a/c/d.o", "b.txt", "é", "keep/.gitignore=x")
	s := search.New(search.Config{})
	f.Fuzz(func(t *testing.T, pattern, rule string, ignoreCase bool) {
		if strings.HasPrefix(pattern, "/") || strings.Contains(pattern, "..") {
			return // outside of the tree there may be anything
		}
		dir := tree(t, "a/b/c.txt", "x.o", ".gitignore="+rule)
		for _, root := range []string{root, dir} {
			files, err := s.Glob(t.Context(), search.GlobQuery{Dir: root, Pattern: pattern, IgnoreCase: ignoreCase, Limit: 3})
			if err == nil && (len(files.Paths) > 3 || files.Total < len(files.Paths)) {
				t.Fatalf("got %+v", files)
			}
			for _, p := range files.Paths {
				if !strings.HasPrefix(p, root+"/") {
					t.Fatalf("%q found %q outside of %q", pattern, p, root)
				}
			}
		}
	})
}
