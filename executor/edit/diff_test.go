package edit_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/actiond/actiond/executor/edit"
)

// TestDiff compares with what Python's difflib.unified_diff(n=0) gives for texts split at line feeds.
func TestDiff(t *testing.T) {
	t.Parallel()
	filler := numberedLines("l", 3000)
	tests := []struct{ name, before, after, want string }{
		{"equal", "a\nb\n", "a\nb\n", ""},
		{"changed", "a\nb\nc", "a\nB\nc", "@@ -2 +2 @@\n-b\n+B"},
		{"added", "a\nb", "a\nx\ny\nb", "@@ -1,0 +2,2 @@\n+x\n+y"},
		{"removed", "a\nb\nc\n", "a\nc\n", "@@ -2 +1,0 @@\n-b"},
		{"at the top", "a\n", "x\na\n", "@@ -0,0 +1 @@\n+x"},
		{"at the end", "a\n", "a\nx\n", "@@ -1,0 +2 @@\n+x"},
		{"final newline", "a", "a\n", "@@ -1,0 +2 @@\n+"},
		{"from nothing", "", "a\n\nb\n", "@@ -0,0 +1 @@\n+a\n@@ -1,0 +3,2 @@\n+b\n+"},
		{"to nothing", "a\n\nb\n", "", "@@ -1 +0,0 @@\n-a\n@@ -3,2 +1,0 @@\n-b\n-"},
		{"trailing blanks are left out", "a\nb", "a\t \nb \u00a0\u2003", "@@ -1,2 +1,2 @@\n-a\n-b\n+a\n+b"},
		{"two places", "a\nb\nc\nd\ne", "A\nb\nc\nd\nE", "@@ -1 +1 @@\n-a\n+A\n@@ -5 +5 @@\n-e\n+E"},
		{"one more of the same, above", "x\nb\nc\nd", "x\nb\nb\nc\nd", "@@ -1,0 +2 @@\n+b"},
		{"one more of the same, below", "a\nb\nc\nb\nz", "a\nb\nc\nb\nb\nz", "@@ -4,0 +5 @@\n+b"},
		{"braces", "{\n}\n\n{\n}\n", "{\n}\n\n{\nx\n}\n\n{\n}\n", "@@ -1,0 +2,4 @@\n+}\n+\n+{\n+x"},
		{"turned around", "a\nb\nc", "c\nb\na", "@@ -0,0 +1,2 @@\n+c\n+b\n@@ -2,2 +3,0 @@\n-b\n-c"},
		{"broken bytes", "a\n\xffb", "a\n\xfeb", "@@ -2 +2 @@\n-\\xffb\n+\\xfeb"},
		{"large, changed", filler, strings.Replace(filler, "l 1500\n", "x\n", 1), "@@ -1500 +1500 @@\n-l 1500\n+x"},
		{"large, first and last", filler, "x\n" + strings.TrimSuffix(filler, "\n"), "@@ -0,0 +1 @@\n+x\n@@ -3001 +3001,0 @@\n-"},
		{"large, from nothing", "", filler, "@@ -0,0 +1,3000 @@\n+" + strings.ReplaceAll(strings.TrimSuffix(filler, "\n"), "\n", "\n+")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			want := test.want
			if want != "" {
				want = "--- p\n+++ p\n" + want
			}
			if got := edit.UnifiedDiff("p", test.before, test.after); got != want {
				t.Errorf("got\n%.2000s\nwant\n%.2000s", got, want)
			}
			if test.name != "broken bytes" { // shown as escapes, which are not the bytes
				checkDiff(t, test.before, test.after)
			}
		})
	}
}

// TestLineDiff pins where a shortest diff differs from difflib's, and that it is short.
func TestLineDiff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ before, after, want string }{
		"equal":           {"a\n", "a\n", ""},
		"changed":         {"a\nb\nc", "a\nB\nc", "--- p\n+++ p\n@@ -2 +2 @@\n-b\n+B"},
		"from nothing":    {"", "a\n", "--- p\n+++ p\n@@ -0,0 +1 @@\n+a"},
		"turned around":   {"a\nb\nc", "c\nb\na", "--- p\n+++ p\n@@ -1,2 +0,0 @@\n-a\n-b\n@@ -3,0 +2,2 @@\n+b\n+a"},
		"popular lines":   {strings.Repeat("}\n", 300) + "x\n", strings.Repeat("}\n", 300) + "y\n", "--- p\n+++ p\n@@ -301 +301 @@\n-x\n+y"},
		"two far changes": {"a\n" + numberedLines("l", 60_000) + "b\n", "A\n" + numberedLines("l", 60_000) + "B\n", "--- p\n+++ p\n@@ -1 +1 @@\n-a\n+A\n@@ -60002 +60002 @@\n-b\n+B"},
	} {
		if got := edit.LineDiff("p", test.before, test.after); got != test.want {
			t.Errorf("%s: got\n%.1000s\nwant\n%s", name, got, test.want)
		}
	}
}

// TestDiffEnds compares large texts that are unlike in ways that take long to compare. It ends because the work is
// bounded, and what it gives still leads from one to the other.
func TestDiffEnds(t *testing.T) {
	t.Parallel()
	const lines = 40000
	text := func(line func(i int) string) string {
		var b strings.Builder
		for i := range lines {
			b.WriteString(line(i) + "\n")
		}
		return b.String()
	}
	tests := []struct {
		name          string
		before, after func(i int) string
	}{
		{"nothing in common", strconv.Itoa, func(i int) string { return "x" + strconv.Itoa(i) }},
		{"another order", strconv.Itoa, func(i int) string { return strconv.Itoa(i * 7919 % lines) }},
		{"backwards", strconv.Itoa, func(i int) string { return strconv.Itoa(lines - i) }},
		{"few lines, often", func(i int) string { return strconv.Itoa(i * i % 7) }, func(i int) string { return strconv.Itoa(i * i % 11) }},
		{"everything twice", func(i int) string { return strconv.Itoa(i / 2) }, func(i int) string { return strconv.Itoa(i * 7919 % lines / 2) }},
		{"every tenth", strconv.Itoa, func(i int) string {
			if i%10 == 0 {
				return "changed"
			}
			return strconv.Itoa(i)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			checkDiff(t, text(test.before), text(test.after))
		})
	}
	if got := strings.Count(edit.UnifiedDiff("p", text(tests[5].before), text(tests[5].after)), "@@ -"); got != lines/10 {
		t.Errorf("every tenth line changed: got %d hunks, want %d", got, lines/10)
	}
}

// TestDiffOfManyLines compares texts of so many lines that they are not even split.
func TestDiffOfManyLines(t *testing.T) {
	t.Parallel()
	before := "same\n" + strings.Repeat("a\nb\n", 300_000) + "same\n"
	after := "same\n" + strings.Repeat("b\nc\n", 300_000) + "same\n"
	if got := strings.Count(edit.UnifiedDiff("p", before, after), "@@ -"); got != 1 {
		t.Errorf("got %d hunks, want 1", got)
	}
	checkDiff(t, before, after)
}

func TestDiffTooLargeToShow(t *testing.T) {
	t.Parallel()
	got := edit.UnifiedDiff("p", strings.Repeat("a\n", 9<<20), strings.Repeat("b\n", 9<<20))
	if want := "--- p\n+++ p"; got != want {
		t.Errorf("got %.100q, want %q", got, want)
	}
}

// checkDiff applies the diffs of both kinds. Blanks at the ends of lines are not in them.
func checkDiff(t *testing.T, before, after string) {
	t.Helper()
	for name, differ := range map[string]func(path, before, after string) string{"unified": edit.UnifiedDiff, "line": edit.LineDiff} {
		diff := differ("p", before, after)
		got, err := patched(before, diff)
		if err != nil {
			t.Fatalf("%s: %v in\n%.2000s", name, err, diff)
		}
		if want := trimmed(after); got != want {
			t.Fatalf("the %s diff leads to\n%.1000q, want\n%.1000q:\n%.2000s", name, got, want, diff)
		}
	}
}

func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRightFunc(line, unicode.IsSpace)
	}
	return strings.Join(lines, "\n")
}

// patched is a patch program for diffs without context.
func patched(before, diff string) (string, error) {
	old := strings.Split(trimmed(before), "\n")
	if diff == "" {
		return strings.Join(old, "\n"), nil
	}
	lines := strings.Split(diff, "\n")
	if len(lines) < 4 || lines[0] != "--- p" || lines[1] != "+++ p" {
		return "", fmt.Errorf("bad header")
	}
	var out []string
	done := 0
	for i := 2; i < len(lines); {
		fields := strings.Fields(lines[i])
		if len(fields) != 4 || fields[0] != "@@" || fields[3] != "@@" {
			return "", fmt.Errorf("bad hunk %q", lines[i])
		}
		a0, aN := hunkLines(strings.TrimPrefix(fields[1], "-"))
		b0, bN := hunkLines(strings.TrimPrefix(fields[2], "+"))
		if a0 < done || a0+aN > len(old) {
			return "", fmt.Errorf("hunk %q out of place", lines[i])
		}
		out = append(out, old[done:a0]...)
		if len(out) != b0 {
			return "", fmt.Errorf("hunk %q makes line %d, not %d", lines[i], len(out), b0)
		}
		i++
		for n := range aN {
			if i >= len(lines) || lines[i] != "-"+old[a0+n] {
				return "", fmt.Errorf("line %d is not removed as it is", a0+n)
			}
			i++
		}
		for range bN {
			if i >= len(lines) || !strings.HasPrefix(lines[i], "+") {
				return "", fmt.Errorf("a line of %q is missing", fields)
			}
			out = append(out, lines[i][1:])
			i++
		}
		done = a0 + aN
	}
	return strings.Join(append(out, old[done:]...), "\n"), nil
}

// hunkLines is the first line, counted from 0, and the number of lines of a range.
func hunkLines(text string) (first, n int) {
	start, length, some := strings.Cut(text, ",")
	first, _ = strconv.Atoi(start)
	n = 1
	if some {
		n, _ = strconv.Atoi(length)
	}
	if n > 0 {
		first--
	}
	return first, n
}

// Lines have equal numbers where they are equal, wherever the texts begin to differ.
func TestNumberLines(t *testing.T) {
	t.Parallel()
	texts := []string{""}
	for _, first := range []string{"", "a", "b", "\n", "a\n", "b\n", "\n\n", "a\na\n"} {
		for _, last := range []string{"", "a", "b", "\na", "a\n", "b\na\n", "\n\n"} {
			texts = append(texts, first+last, first+"x\n"+last)
		}
	}
	for _, before := range texts {
		for _, after := range texts {
			a, b, count := edit.NumberLines(before, after)
			seen := map[rune]string{}
			for i, text := range []string{before, after} {
				lines, numbers := strings.Split(text, "\n"), [][]rune{a, b}[i]
				if len(lines) != len(numbers) {
					t.Fatalf("%q and %q: got %d numbers of %q", before, after, len(numbers), text)
				}
				for j, n := range numbers {
					if line, ok := seen[n]; ok && line != lines[j] {
						t.Fatalf("%q and %q: %q and %q have one number", before, after, line, lines[j])
					}
					seen[n] = lines[j]
				}
			}
			if len(seen) != count {
				t.Fatalf("%q and %q: got %d numbers of %d lines", before, after, count, len(seen))
			}
		}
	}
}

// The diffs of random edits for clients of our own protocol are patches: patch makes the new file of the old one.
func TestNativeDiffsApply(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(38, 1))
	b := newBench(t)
	b.SetFlush(func(*os.File) error { return nil })
	path, now := b.path("f"), ""
	text := func(most int) string {
		var lines strings.Builder
		for range random.IntN(most + 1) {
			lines.WriteString([]string{"a", "b", "c ", "", "\td", "\ufeffé"}[random.IntN(6)] + []string{"\n", "\n", "\n", "\r\n"}[random.IntN(4)])
		}
		if random.IntN(3) == 0 {
			lines.WriteString("open")
		}
		return lines.String()
	}
	edited := 0
	for range 120 {
		before := now
		lines := strings.Count(strings.ReplaceAll(now, "\r\n", "\n"), "\n")
		c := edit.Command{Name: "insert", Path: path, InsertLine: new(strconv.Itoa(random.IntN(lines + 1))), NewStr: new(text(2)), Native: true}
		switch random.IntN(6) {
		case 0:
			c = edit.Command{Name: "str_replace", Path: path, OldStr: new(text(1)), NewStr: new(text(2)), Native: true}
		case 1:
			c = edit.Command{Name: "write", Path: path, Content: new(text(5)), Start: 1 + random.IntN(lines+1), Native: true}
		case 2:
			c = edit.Command{Name: "replace", Path: path, OldStr: new("a"), NewStr: new(text(2)), AllowMultiple: true, Native: true}
		case 3:
			c = edit.Command{Name: "undo_edit", Path: path, Native: true}
		case 4:
			c = edit.Command{Name: "str_replace", Path: path, Edits: []edit.Replacement{{Old: "open", New: "\nb"}, {Old: "b", New: "a\n", AllowMultiple: true}}, Native: true}
		}
		if lines > 20 || before == "" {
			b.write("f", text(8), 0o644)
			now = b.content("f")
			continue
		}
		r, err := b.Do(c)
		if err != nil {
			continue
		}
		now = b.tree()["f"]
		if now == before || now == "" { // patch removes what it empties
			continue
		}
		edited++
		applies(t, b, before, now, r.Diff)
	}
	if edited < 30 {
		t.Errorf("only %d edits", edited)
	}
}

func TestNativeDiffs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("f", "a\nb", 0o644)
	path := b.path("f")
	head := "--- " + path + "\n+++ " + path + "\n"
	for _, step := range []struct {
		c    edit.Command
		want string
	}{
		{edit.Command{Name: "insert", InsertLine: new("2"), NewStr: new("c")}, head + "@@ -2 +2,2 @@\n-b\n\\ No newline at end of file\n+b\n+c"},
		{edit.Command{Name: "insert", InsertLine: new("3"), NewStr: new("d")}, head + "@@ -3,0 +4 @@\n+d"},
		{edit.Command{Name: "undo_edit"}, head + "@@ -4 +3,0 @@\n-d"},
		{edit.Command{Name: "str_replace", OldStr: new("c"), NewStr: new("c \r")}, head + "@@ -3 +3 @@\n-c\n+c \r"},
	} {
		step.c.Path, step.c.Native = path, true
		r := b.do(step.c)
		if r.Diff != step.want {
			t.Errorf("%s: got %q, want %q", step.c.Name, r.Diff, step.want)
		}
	}
	g := b.path("g")
	r, err := b.NativePatch(b.dir, patchOf("*** Add File: g", "+x", "*** Delete File: f"))
	if want := "--- /dev/null\n+++ " + g + "\n@@ -0,0 +1 @@\n+x\n--- " + path + "\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-a\n-b\n-c \r"; err != nil || r.Diff != want {
		t.Errorf("got %q and %v, want %q", r.Diff, err, want)
	}
	if r := b.do(edit.Command{Name: "undo_edit", Path: g, Native: true}); r.Diff != "--- "+g+"\n+++ /dev/null\n@@ -1 +0,0 @@\n-x" {
		t.Errorf("got %q", r.Diff)
	}
	if r := b.do(edit.Command{Name: "create", Path: g, FileText: new("y"), Native: true}); r.Diff != "--- /dev/null\n+++ "+g+"\n@@ -0,0 +1 @@\n+y\n\\ No newline at end of file" {
		t.Errorf("got %q", r.Diff)
	}
}

// applies checks that patch makes one text of another one by a diff.
func applies(t *testing.T, b *bench, before, after, diff string) {
	t.Helper()
	old := b.write("old", before, 0o644)
	patch := exec.CommandContext(t.Context(), "patch", "--binary", "--posix", "--silent", old)
	patch.Stdin = strings.NewReader(diff + "\n")
	out, err := patch.CombinedOutput()
	if got := b.content("old"); err != nil || got != after {
		t.Fatalf("patch: %v: %s: %q became %q, want %q, by\n%s", err, out, before, got, after, diff)
	}
}
