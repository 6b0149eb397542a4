package edit_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// The diff of a large write says which lines changed and not what they are.
func TestWriteDiffOfLargeChange(t *testing.T) {
	t.Parallel()
	e, err := edit.New(edit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "f")
	names := "--- " + path + "\n+++ " + path
	write := func(content, want string) {
		t.Helper()
		r, err := e.Write(path, "/", content, 0, -1)
		if err != nil || r.Diff != want {
			t.Errorf("got %.200q, %v; want %q", r.Diff, err, want)
		}
	}
	const line = "0123456789012345678901234567890123456789012345678901234567890123" // 64 bytes and a line feed
	write(strings.Repeat(line+"\n", 8000), names+"\n@@ -0,0 +1,8001 @@\n[text left out: 0 bytes removed, 520001 added]")
	write(strings.Repeat(line+"\n", 4000)+"x\n"+strings.Repeat(line+"\n", 3999), names+"\n@@ -4001 +4001 @@\n-"+line+"\n+x")
	write(strings.Repeat(line[1:]+"\n", 7999), names+fmt.Sprintf("\n@@ -1,%d +1,%d @@\n[text left out: %d bytes removed, %d added]", 8000, 7999, 519936, 511935))
}

// An exact write leaves the bytes that were sent, and patch makes the same file
// of the old one by its diff.
func TestWriteExact(t *testing.T) {
	t.Parallel()
	five := "l1\nl2\nl3\nl4\nl5\n"
	for _, tt := range []struct {
		name       string
		before     string // "-" for no file
		content    string
		start, end int
		want, diff string // the diff without its names
	}{
		{"new", "-", "a", 0, -1, "a", "@@ -0,0 +1 @@\n+a\n\\ No newline at end of file"},
		{"new with a line end", "-", "a\nb\n", 0, -1, "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b"},
		{"new empty", "-", "", 0, -1, "", ""},
		{"emptied", five, "", 0, -1, "", "@@ -1,5 +0,0 @@\n-l1\n-l2\n-l3\n-l4\n-l5"},
		{"the same", "a\n", "a\n", 0, -1, "a\n", ""},
		{"line end lost", "a\nb\n", "a\nb", 0, -1, "a\nb", "@@ -2 +2 @@\n-b\n+b\n\\ No newline at end of file"},
		{"line end won", "a\nb", "a\nb\n", 0, -1, "a\nb\n", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+b"},
		{"blanks and tabs", "a \n\tb\t\n", "a  \n\tb\n", 0, -1, "a  \n\tb\n", "@@ -1,2 +1,2 @@\n-a \n-\tb\t\n+a  \n+\tb"},
		{"crlf to lf", "a\r\nb\r\n", "a\nb\n", 0, -1, "a\nb\n", "@@ -1,2 +1,2 @@\n-a\r\n-b\r\n+a\n+b"},
		{"mark goes", "\ufeffa\n", "a\n", 0, -1, "a\n", "@@ -1 +1 @@\n-\ufeffa\n+a"},
		{"from UTF-16", "\xff\xfea\x00", "b", 0, -1, "b", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file"},
		{"lines", five, "X\nY\n", 1, 3, "l1\nX\nY\nl4\nl5\n", "@@ -2,2 +2,2 @@\n-l2\n-l3\n+X\n+Y"},
		{"lines of crlf", "a\r\nb\r\nc\r\n", "X\n", 1, 2, "a\r\nX\nc\r\n", "@@ -2 +2 @@\n-b\r\n+X"},
		{"line joined", five, "X", 1, 2, "l1\nXl3\nl4\nl5\n", "@@ -2,2 +2 @@\n-l2\n-l3\n+Xl3"},
		{"appended", "a", "b\n", -1, -1, "ab\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+ab"},
		{"inserted", five, "X\n", 2, 2, "l1\nl2\nX\nl3\nl4\nl5\n", "@@ -2,0 +3 @@\n+X"},
		{"far apart", five, "L1\nl2\nl3\nl4\n", 0, -1, "L1\nl2\nl3\nl4\n", "@@ -1 +1 @@\n-l1\n+L1\n@@ -5 +4,0 @@\n-l5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			from := "/dev/null"
			if tt.before != "-" {
				b.write("a b", tt.before, 0o755)
				from = b.path("a b") + "\t"
			}
			r, err := b.WriteExact("", "a b", b.dir, tt.content, tt.start, tt.end)
			if err != nil || r.HistoryErr != nil {
				t.Fatal(err, r.HistoryErr)
			}
			diff := tt.diff
			if diff != "" {
				diff = "--- " + from + "\n+++ " + b.path("a b") + "\t\n" + diff
			}
			r.Before, r.After = "", "" // the test of the whole texts has these
			if want := (edit.Result{Path: b.path("a b"), Diff: diff, SHA256: sha(tt.want), Existed: tt.before != "-"}); r != want {
				t.Errorf("got %+v, want %+v", r, want)
			}
			if got := b.content("a b"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if diff == "" || strings.Contains(tt.before, "\x00") { // the patch has characters and not their bytes
				return
			}
			if tt.want == "" { // patch --posix removes what it empties
				return
			}
			before := tt.before
			if before == "-" {
				before = ""
			}
			applies(t, b, before, tt.want, diff)
			b.undo("a b")
			if tt.before != "-" && b.content("a b") != tt.before {
				t.Errorf("after undo: got %q, want %q", b.content("a b"), tt.before)
			}
		})
	}
}

// The diff of a file with an unusual name is a patch of that file.
func TestWriteExactNames(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git to apply with")
	}
	for _, name := range []string{"a\nb", "a\tb", "a\"b\\\nc d", "+++ x\n@@ -1 +1 @@", "ä\x7f"} {
		b := newBench(t)
		b.write(name, "old\n", 0o644)
		r, err := b.WriteExact("", name, b.dir, "new\n", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		b.write(name, "old\n", 0o644)
		patch := exec.CommandContext(t.Context(), "git", "apply", "--unidiff-zero", "--unsafe-paths", "-p0", "-")
		patch.Dir, patch.Stdin = "/", strings.NewReader(r.Diff+"\n")
		if out, err := patch.CombinedOutput(); err != nil || b.content(name) != "new\n" {
			t.Errorf("%q: %v: %s, by\n%s", name, err, out, r.Diff)
		}
	}
}

// An exact write keeps to the same limits as any.
func TestWriteExactRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.MaxReadSize = 1 << 20 })
	b.write("text", "a\nb\n", 0o644)
	b.write("latin", "caf\xe9\n", 0o644)
	for _, tt := range []struct {
		want, path, content string
		code                edit.Code
	}{
		{"", "text", strings.Repeat("x", 1<<20+1), edit.CodeTooLarge},
		{"", "latin", "x", edit.CodeUnsupported},
		{strings.Repeat("0", 64), "text", "x", edit.CodeConflict},
		{"", "text", "\xff", edit.CodeInvalidArgument},
	} {
		end := -1
		if tt.path == "latin" {
			end = 1 // a whole file may be in any encoding
		}
		_, err := b.WriteExact(tt.want, tt.path, b.dir, tt.content, 0, end)
		wantCode(t, err, tt.code)
	}
	if got := b.content("text") + b.content("latin"); got != "a\nb\ncaf\xe9\n" {
		t.Errorf("the files changed: %q", got)
	}
}
