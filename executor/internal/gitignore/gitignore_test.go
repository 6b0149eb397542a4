package gitignore_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/internal/gitignore"
)

// The last rule that matches decides. That rules match as git's is a test of package search.
func TestLast(t *testing.T) {
	t.Parallel()
	rules, _ := gitignore.Parse("*.log\n/top\na/b\nbuild/\n!keep.log\n\n# comment\n", 1<<20)
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
		if r := rules.Last(test.dir, test.name, test.isDir, nil); r != nil {
			got = *r
		}
		if got.Pattern != test.want || got.Keeps != test.keeps {
			t.Errorf("%s in %q: got %q, want %q", test.name, test.dir, got.Pattern, test.want)
		}
	}
}

// Rules keep no part of a long text in memory, have a bound, and a matching of many ends in time.
func TestBounds(t *testing.T) {
	t.Parallel()
	const room = 1 << 20
	comment := "#" + strings.Repeat("c", room/2) + "\n"
	var all []gitignore.Rules
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 40 {
		rules, size := gitignore.Parse(comment+strings.Repeat("x", i+1)+"\n*y\n?z\n", room)
		if len(rules) != 3 || size < len(comment) {
			t.Fatalf("got %d rules of %d bytes", len(rules), size)
		}
		all = append(all, rules)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4*room { // of 20
		t.Errorf("the rules of %d files take %d bytes", len(all), grown)
	}
	for _, text := range []string{comment + comment, strings.Repeat("x\n", room/64)} {
		if rules, size := gitignore.Parse(text, room); rules != nil || size != 0 {
			t.Errorf("got %d rules of %d bytes", len(rules), size)
		}
	}
	name := strings.Repeat("n", 255)
	rules, _ := gitignore.Parse(strings.Repeat("*"+name[:126]+"?q\n", 1000), room)
	looks := 0
	if r := rules.Last("", name, false, func() bool { looks++; return looks == 3 }); len(rules) != 1000 || r != nil || looks != 3 {
		t.Errorf("got %v after %d looks of %d rules", r, looks, len(rules))
	}
}
