package search_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/search"
	"github.com/actiond/actiond/internal/testhelp"
)

// largeTree is enough text for ripgrep to be started: two megabytes, with
// everything in it on which programs may disagree.
func largeTree(tb testing.TB) string {
	tb.Helper()
	root := tree(tb, "plain.txt=func main() {\n\tprintln(\"needle\")\n}\n", "upper.txt=NEEDLE needle Needle\n", "crlf.txt=needle\r\nend needle\r\n",
		"latin.txt=caf\xe9 needle\xe9\n", "nul.txt=needle\x00\n", "kelvin.txt=nee\u212adle \u017fk\n", "utf16.txt=\xff\xfen\x00e\x00e\x00d\x00l\x00e\x00",
		"bom.txt=\ufeffneedle\n", "-dash.txt=needle", ".hidden/.x=needle", "sp ace/nl\n.txt=needle", "ignored.txt=needle", ".gitignore=ignored.txt")
	filler := strings.Repeat("all work and no play makes jack a dull boy\n", 24_000)
	for i := range 2 {
		name := filepath.Join(root, fmt.Sprintf("filler%02d.txt", i))
		testhelp.WriteFile(tb, name, filler, 0o644)
	}
	return root
}

// With ripgrep and without it, the same is found.
func TestRipgrepFindsTheSame(t *testing.T) {
	t.Parallel()
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("no ripgrep in this image")
	}
	root := largeTree(t)
	for _, pattern := range []string{
		"needle", "^needle", "needle$", `needle\b`, `\bneedle`, "n.edle", "(?i)needle", "nee(d|k)le", "ne{2}dle", "(needle)+", "(needle)*x?", "jack|needle",
		"dull boy$", "zzz", `caf.`, "\u212a", "k", "ſk", `func \w+\(`, `println\("needle"\)`, "needle\\s", "[n]eedle", "(?s)needle.end", "nothing like it",
	} {
		for _, ignoreCase := range []bool{false, true} {
			q := search.GrepQuery{Dir: root, Pattern: pattern, IgnoreCase: ignoreCase, Limit: 1000}
			want, err := search.New(search.Config{}).Grep(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			got, err := search.New(search.Config{Ripgrep: rg}).Grep(t.Context(), q)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q, ignoring case %v: got %+v, %v, want %+v", pattern, ignoreCase, got, err, want)
			}
		}
	}
}

// Of a file that the query names, the answer says why it was not searched, also where
// ripgrep finds nothing in it.
func TestNamedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fake, file := filepath.Join(dir, "rg"), filepath.Join(dir, "nul")
	testhelp.WriteProgram(t, fake, "#!/bin/sh\nexit 1\n")
	testhelp.WriteFile(t, file, strings.Repeat("n\x00", 1<<20), 0o600)
	s := search.New(search.Config{Ripgrep: fake})
	if got, err := s.Grep(t.Context(), search.GrepQuery{Path: file, Pattern: "needle", Limit: 1}); err != nil || !got.NotText {
		t.Errorf("zero bytes: got %+v, %v, want that it is not text", got, err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	memory := fmt.Sprintf("/proc/%d/mem", cmd.Process.Pid) // begins with a page that does not exist
	if got, err := s.Grep(t.Context(), search.GrepQuery{Path: memory, Pattern: "needle", Limit: 1}); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a file that fails: got %+v, %v", got, err)
	}
}

// Whatever the program of that name does, what is found stays bounded and right
// or is a part of it.
func TestRipgrepMayBeAnything(t *testing.T) {
	t.Parallel()
	root := largeTree(t)
	want, err := search.New(search.Config{}).Grep(t.Context(), search.GrepQuery{Dir: root, Pattern: "needle", Limit: 1000})
	if err != nil || want.Count == 0 {
		t.Fatalf("got %+v, %v", want, err)
	}
	tests := []struct{ name, script string }{
		{"fails", "exit 2"},
		{"is killed", "kill -9 $$"},
		{"prints without end", "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done"},
		{"leaves a child with its output", "sleep 1000 & echo $! >$0.child; exit 2"},
		{"prints other names", `for i in 1 2 3; do printf '/etc/passwd\0'; done; for a; do printf '%s\0' "$a"; done`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fake := filepath.Join(t.TempDir(), "rg")
			testhelp.WriteProgram(t, fake, "#!/bin/sh\n"+tt.script+"\n")
			got, err := search.New(search.Config{Ripgrep: fake}).Grep(t.Context(), search.GrepQuery{Dir: root, Pattern: "needle", Limit: 1000})
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
			text, _ := os.ReadFile(fake + ".child")
			pid := strings.TrimSpace(string(text))
			testhelp.Eventually(t, func() bool { return pid == "" || !lives(pid) }, "child %s ends", pid)
		})
	}
	t.Run("hangs", func(t *testing.T) {
		t.Parallel()
		fake := filepath.Join(t.TempDir(), "rg")
		testhelp.WriteProgram(t, fake, "#!/bin/sh\nsleep 1000 & wait\n")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := search.New(search.Config{Ripgrep: fake}).Grep(ctx, search.GrepQuery{Dir: root, Pattern: "needle", Limit: 1000})
		if err != nil || !got.Cut {
			t.Errorf("got %+v, %v, want it cut", got, err)
		}
	})
}

// lives reports whether a process has not ended.
func lives(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// The text that ripgrep looks for is in every match.
func TestLiteral(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"needle": "needle", "ne+dle": "dle", "(needle)+": "needle", "(needle)*": "", "(needle){0,2}": "", "(needle){2}": "needle", "a|b": "", "foo(bar|baz)quux": "quux",
		`func \w+Handler`: "Handler", "x?yz": "yz", "[a-z]+": "", `\bint\b`: "int", "(?i)Straße": "STRASSE",
	} {
		got, err := search.LiteralOf(t.Context(), pattern)
		if pattern == "(?i)Straße" { // which form it is in does not matter
			got, want = strings.ToLower(got), "straße"
		}
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", pattern, got, err, want)
		}
	}
}
