package gitignore_test

import (
	"testing"

	"github.com/actiond/actiond/executor/internal/gitignore"
)

// The last rule that matches decides. That rules match as git's is a test of package search.
func TestLast(t *testing.T) {
	t.Parallel()
	rules := gitignore.Parse("*.log\n/top\na/b\nbuild/\n!keep.log\n\n# comment\n")
	tests := []struct {
		dir, name string
		isDir     bool
		want      string
		keeps     bool
	}{
		{"", "x.log", false, "*.log", false},
		{"deep/down", "x.log", false, "*.log", false},
		{"", "keep.log", false, "!keep.log", true},
		{"", "top", false, "/top", false},
		{"a", "top", false, "", false},
		{"a", "b", false, "a/b", false},
		{"x/a", "b", false, "", false},
		{"x", "build", true, "build/", false},
		{"x", "build", false, "", false},
	}
	for _, test := range tests {
		got := gitignore.Rule{}
		if r := rules.Last(test.dir, test.name, test.isDir); r != nil {
			got = *r
		}
		if got.Pattern != test.want || got.Keeps != test.keeps {
			t.Errorf("%s in %q: got %q, want %q", test.name, test.dir, got.Pattern, test.want)
		}
	}
}
