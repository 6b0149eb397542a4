package edit_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// The editors of OpenHands' SDK and of Strands, and Anthropic's where it is
// told from OpenHands' own.
func TestDialects(t *testing.T) {
	t.Parallel()
	replace := func(old, replacement string) edit.Command {
		return edit.Command{Name: "str_replace", OldStr: &old, NewStr: &replacement}
	}
	insert := func(line, text string) edit.Command {
		return edit.Command{Name: "insert", InsertLine: &line, NewStr: &text}
	}
	for _, test := range []struct {
		name    string
		dialect edit.Dialect
		content string
		c       edit.Command
		want    string // the file afterwards; "" with a code
		code    edit.Code
	}{
		{"new_str is needed", edit.OpenHandsV1, "a", edit.Command{Name: "str_replace", OldStr: new("a")}, "", edit.CodeMissingArgument},
		{"only old_str is stripped", edit.OpenHandsV1, "alpha\nbeta", replace("  beta  \n", "  gamma  \n"), "alpha\n  gamma  \n", ""},
		{"nothing is left when stripped", edit.OpenHandsV1, "ab", replace("\t\t", "x"), "", edit.CodeNoMatch},
		{"CRLF stays", edit.OpenHandsV1, "a\r\nb\r\n", insert("1", "x"), "a\r\nx\r\nb\r\n", ""},
		{"insert after an open line", edit.OpenHandsV1, "a\nb", insert("2", "c"), "a\nb\nc\n", ""},
		{"document names are names", edit.OpenHandsV1, "a", replace("a", "b"), "b", ""},
		{"not written in the charset", edit.OpenHandsV1, "# coding: cp1251\n\xcf\xf0\xe8\xe2\xe5\xf2\n", replace("Привет", "→"), "", edit.CodeNotEncodable},

		{"both are stripped", edit.Anthropic, "alpha\nbeta", replace("  beta  \n", "  gamma  \n"), "alpha\ngamma", ""},
		{"twice", edit.Anthropic, "a a", replace("a", "b"), "", edit.CodeMultipleMatches},

		{"replace", edit.Strands, "a\nb\n", replace("b", "c"), "a\nc\n", ""},
		{"delete", edit.Strands, "a\nb\n", edit.Command{Name: "str_replace", OldStr: new("b\n")}, "a\n", ""},
		{"no old_str", edit.Strands, "a", edit.Command{Name: "str_replace", NewStr: new("b")}, "", edit.CodeMissingArgument},
		{"same", edit.Strands, "a", replace("a", "a"), "", edit.CodeNoChange},
		{"not stripped", edit.Strands, "a\nb", replace("b\n", "c\n"), "", edit.CodeNoMatch},
		{"empty, of something", edit.Strands, "ab", replace("", "x"), "", edit.CodeMultipleMatches},
		{"empty, of nothing", edit.Strands, "", replace("", "x"), "x", ""},
		{"tabs stay", edit.Strands, "\ta\tb\n", replace("a", "c"), "\tc\tb\n", ""},
		{"a tab is not eight spaces", edit.Strands, "        x\n", replace("\tx", "y"), "", edit.CodeNoMatch},
		{"LF does not find CRLF", edit.Strands, "a\r\nb\r\n", replace("a\nb", "x"), "", edit.CodeNoMatch},
		{"CRLF finds CRLF", edit.Strands, "a\r\nb\r\n", replace("a\r\nb", "x"), "x\r\n", ""},
		{"CRLF stays", edit.Strands, "a\r\nb\r\n", replace("b", "B"), "a\r\nB\r\n", ""},
		{"new lines take the file's line end", edit.Strands, "a\r\nb\r\n", insert("1", "x\ny"), "a\r\nx\r\ny\r\nb\r\n", ""},
		{"CRLF is kept as sent", edit.Strands, "a\nb\n", replace("b", "x\r\ny"), "a\nx\r\ny\n", ""},
		{"lone CR is no line end", edit.Strands, "a\rb\n", insert("1", "x"), "a\rb\nx\n", ""},
		{"byte order mark", edit.Strands, "\ufeffone\n", replace("one", "two"), "\ufefftwo\n", ""},
		{"bytes that are no UTF-8", edit.Strands, "caf\xe9 b\n", replace("b", "B"), "caf\xe9 B\n", ""},
		{"UTF-16", edit.Strands, "\xff\xfea\x00", replace("a", "b"), "", edit.CodeNoMatch},
		{"binary", edit.Strands, "a\x00", replace("a", "b"), "", edit.CodeBinary},
		{"insert at the top", edit.Strands, "a\nb", insert("0", "x"), "x\na\nb", ""},
		{"insert at the open end", edit.Strands, "a\nb", insert("2", "x"), "a\nb\nx", ""},
		{"insert after the last line", edit.Strands, "a\nb\n", insert("2", "x"), "a\nb\nx\n", ""},
		{"insert after the empty last line", edit.Strands, "a\nb\n", insert("3", "x"), "a\nb\n\nx", ""},
		{"insert into nothing", edit.Strands, "", insert("0", "x"), "x", ""},
		{"insert into nothing, after it", edit.Strands, "", insert("1", "x"), "x", ""},
		{"insert an empty line", edit.Strands, "a\nb\n", insert("1", ""), "a\n\nb\n", ""},
		{"insert after a fraction", edit.Strands, "a\nb\n", insert("1.5", "x"), "", edit.CodeInvalidArgument},
		{"insert beyond the file", edit.Strands, "a\nb\n", insert("4", "x"), "", edit.CodeInvalidRange},
		{"insert after a huge number", edit.Strands, "a\nb\n", insert("99999999999999999999", "x"), "", edit.CodeInvalidRange},
		{"insert before the top", edit.Strands, "a\nb\n", insert("-1", "x"), "", edit.CodeInvalidRange},
		{"insert behind the end", edit.Strands, "a\nb\n", insert("4", "x"), "", edit.CodeInvalidRange},
		{"insert nowhere", edit.Strands, "a\nb\n", insert("NaN", "x"), "", edit.CodeInvalidArgument},
		{"insert without a line", edit.Strands, "a", edit.Command{Name: "insert", NewStr: new("x")}, "", edit.CodeMissingArgument},
		{"insert nothing", edit.Strands, "a", edit.Command{Name: "insert", InsertLine: new("0")}, "", edit.CodeMissingArgument},
		{"create over it", edit.Strands, "a", edit.Command{Name: "create", FileText: new("x")}, "", edit.CodeAlreadyExists},
		{"no such command", edit.Strands, "a", edit.Command{Name: "replace", OldStr: new("a"), NewStr: new("b")}, "", edit.CodeInvalidArgument},
		{"fuzzy is Gemini's", edit.Strands, "a", edit.Command{Name: "str_replace", OldStr: new("a"), NewStr: new("b"), Fuzzy: true}, "", edit.CodeInvalidArgument},
		{"1 MiB", edit.Strands, strings.Repeat("a\n", 1<<19-1) + "b\n", replace("b", "c"), strings.Repeat("a\n", 1<<19-1) + "c\n", ""},
		{"more than 1 MiB", edit.Strands, strings.Repeat("a\n", 1<<19) + "b", replace("b", "c"), "", edit.CodeTooLarge},
	} {
		t.Run(string(test.dialect)+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c := test.c
			c.Dialect, c.Path = test.dialect, b.write("f.pdf", test.content, 0o640)
			if test.dialect == edit.Anthropic {
				c.Path = b.write("f.pdf", test.content, 0o640) // only OpenHands' own refuses the name
			}
			r, err := b.Do(c)
			if test.code != "" {
				wantCode(t, err, test.code)
				test.want = test.content
			} else if err != nil || r.SHA256 != sha(test.want) {
				t.Errorf("got %+v and %v", r, err)
			}
			if got := b.content("f.pdf"); got != test.want || b.mode("f.pdf") != 0o640 {
				t.Errorf("got %.200q with mode %v, want %.200q", got, b.mode("f.pdf"), test.want)
			}
		})
	}
}

func TestDialectWords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("f", "1\n2\n3\n4\n5 OLD\n6\n7\n8\n9\n10\n", 0o644)
	b.write("tab", "a\tb", 0o644)
	b.write("a..b", "x", 0o644)
	b.write("p.webp", "x", 0o644)
	b.write("big", strings.Repeat("A", 17000), 0o644)
	b.write("d/a-b/x", "", 0o644)
	b.write("d/a/y/z/deep", "", 0o644)
	b.write("d/a.txt", "", 0o644)
	b.write("d/.h", "", 0o644)
	b.link("d/link", b.path("d"))
	view := func(d edit.Dialect, name string, lines ...int) edit.Command {
		return edit.Command{Dialect: d, Name: "view", Path: b.path(name), ViewRange: lines}
	}
	for _, test := range []struct {
		name string
		c    edit.Command
		want string
	}{
		{"lines", view(edit.Strands, "f", 1, 2), "Here's the result of running `cat -n` on D/f:\n     1  1\n     2  2\n"},
		{"the empty last line", view(edit.Strands, "f", 11, -1), "Here's the result of running `cat -n` on D/f:\n    11  \n"},
		{"up to the empty last line", view(edit.Strands, "f", 10, -1), "Here's the result of running `cat -n` on D/f:\n    10  10\n    11  \n"},
		{"tabs", view(edit.Strands, "tab"), "Here's the result of running `cat -n` on D/tab:\n     1  a        b\n"},
		{"dots in a name", view(edit.Strands, "a..b"), "Here's the result of running `cat -n` on D/a..b:\n     1  x\n"},
		{"dots that lead nowhere else", edit.Command{Dialect: edit.Strands, Name: "view", Path: b.dir + "/d/../a..b"}, "Here's the result of running `cat -n` on D/d/../a..b:\n     1  x\n"},
		{"up from nothing", edit.Command{Dialect: edit.Strands, Name: "view", Path: b.dir + "/none/../a..b"}, "Here's the result of running `cat -n` on D/none/../a..b:\n     1  x\n"},
		{"from 0", view(edit.Strands, "f", 0, 2), "Invalid `view_range`: [0, 2]. Its first element `0` should be within the range of lines of the file: [1, 11]"},
		{"too far", view(edit.Strands, "f", 1, 12), "Invalid `view_range`: [1, 12]. Its second element `12` should be smaller than the number of lines in the file: `11`"},
		{"reversed", view(edit.Strands, "f", 3, 1), "Invalid `view_range`: [3, 1]. Its second element `1` should be larger or equal than its first `3`"},
		{"to -2", view(edit.Strands, "f", 1, -2), "Invalid `view_range`: [1, -2]. Its second element `-2` should be larger or equal than its first `1`"},
		{"one number", view(edit.Strands, "f", 1), "Invalid `view_range`: [1]. It should be a list of two integers."},
		{"nothing there", view(edit.Strands, "none"), "The path D/none does not exist. Please provide a valid path."},
		{"relative", edit.Command{Dialect: edit.Strands, Name: "view", Path: "f"}, "The path f is not an absolute path, it should start with `/`. Maybe you meant D/f?"},
		{"directory", view(edit.Strands, "d"), "Here's the files and directories up to 2 levels deep in D/d, excluding hidden items:\na\na/y\na/y/z\na-b\na-b/x\na.txt\nlink\n"},
		{"range of a directory", view(edit.Strands, "d", 1, 2), "The `view_range` parameter is not allowed when `path` points to a directory."},
		{
			"edit",
			edit.Command{Dialect: edit.Strands, Name: "str_replace", Path: b.path("f"), OldStr: new("OLD"), NewStr: new("NEW")},
			"The file D/f has been edited. Here's the result of running `cat -n` on a snippet of D/f:\n     1  1\n     2  2\n     3  3\n     4  4\n" +
				"     5  5 NEW\n     6  6\n     7  7\n     8  8\n     9  9\n" +
				"Review the changes and make sure they are as expected. Edit the file again if necessary.",
		},
		{
			"undo",
			edit.Command{Dialect: edit.Strands, Name: "undo_edit", Path: b.path("f")},
			"Last edit to D/f undone successfully. Here's the result of running `cat -n` on D/f:\n     1  1\n     2  2\n     3  3\n     4  4\n" +
				"     5  5 OLD\n     6  6\n     7  7\n     8  8\n     9  9\n    10  10\n    11  \n",
		},
		{"directory, V1", view(edit.OpenHandsV1, "d"), "Here's the files and directories up to 2 levels deep in D/d, excluding hidden items:\n" +
			"D/d/\nD/d/a/\nD/d/a/y/\nD/d/a-b/\nD/d/a-b/x\nD/d/a.txt\nD/d/link\n\n" +
			"1 hidden files/directories in this directory are excluded. You can use 'ls -la D/d' to see them."},
		{"picture, V1", view(edit.OpenHandsV1, "p.webp"), "data:image/webp;base64,eA=="},
		{"relative, V1", edit.Command{Dialect: edit.OpenHandsV1, Name: "view", Path: "f"}, "Invalid `path` parameter: f. The path should be an absolute path. Maybe you meant D/f?"},
	} {
		r, err := b.Do(test.c)
		got := r.Text
		if err != nil {
			got = err.Error()
		}
		if got = strings.ReplaceAll(got, b.dir, "D"); got != test.want {
			t.Errorf("%s: got\n%q, want\n%q", test.name, got, test.want)
		}
	}
	r, err := b.Do(view(edit.OpenHandsV1, "big"))
	body := strings.TrimPrefix(strings.ReplaceAll(r.Text, b.dir, ""), "Here's the result of running `cat -n` on /big:\n     1\t")
	if err != nil || len(body) != 16001 || !strings.HasSuffix(body, "AAA\n") || !strings.Contains(body, "A<response clipped>") {
		t.Errorf("got %d characters and %v", len(body), err)
	}
}

func TestIfSHA256(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "a\n", 0o644)
	stale, now := sha("other"), sha("a\n")
	for _, c := range []edit.Command{
		{Name: "str_replace", OldStr: new("a"), NewStr: new("b")},
		{Name: "insert", InsertLine: new("0"), NewStr: new("b")},
		{Name: "replace", OldStr: new("a"), NewStr: new("b")},
		{Name: "write", Content: new("b")},
		{Name: "undo_edit"},
		{Dialect: edit.Strands, Name: "str_replace", OldStr: new("a"), NewStr: new("b")},
		{Dialect: edit.Strands, Name: "insert", InsertLine: new("0"), NewStr: new("b")},
		{Dialect: edit.Gemini, Name: "replace", OldStr: new("a"), NewStr: new("b")},
		{Dialect: edit.OpenHandsV1, Name: "str_replace", Edits: []edit.Replacement{{Old: "a", New: "b"}}},
	} {
		b.write("f", "x", 0o644)
		b.replace("f", "x", "a\n") // so that there is something to undo
		c.Path, c.IfSHA256 = path, stale
		_, err := b.Do(c)
		wantCode(t, err, edit.CodeConflict)
		if !strings.Contains(err.Error(), now) || !strings.Contains(err.Error(), stale) {
			t.Errorf("%s: %q does not name both hashes", c.Name, err)
		}
		if got := b.content("f"); got != "a\n" {
			t.Errorf("%s: got %q, want it as before", c.Name, got)
		}
		c.IfSHA256 = strings.ToUpper(now)
		if _, err := b.Do(c); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	b.write("f", "a\n", 0o644)
	for _, write := range []func(want string) (edit.Result, error){
		func(want string) (edit.Result, error) { return b.Overwrite(path, "/", "b", want) },
		func(want string) (edit.Result, error) { return b.WriteIf(want, path, "/", "a", 0, -1) },
	} {
		_, err := write(stale)
		wantCode(t, err, edit.CodeConflict)
		if _, err := write(sha(b.content("f"))); err != nil {
			t.Error(err)
		}
	}
	_, err := b.Do(edit.Command{Name: "create", Path: b.path("new"), FileText: new("x"), IfSHA256: now})
	wantCode(t, err, edit.CodeConflict)
	_, err = b.Do(edit.Command{Name: "undo_edit", Path: path, IfSHA256: "abc"})
	wantCode(t, err, edit.CodeInvalidArgument)
}

func TestSeveralEdits(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		dialect edit.Dialect
		name    string
	}{{edit.OpenHands, "str_replace"}, {edit.OpenHandsV1, "str_replace"}, {edit.Strands, "str_replace"}, {edit.OpenHands, "replace"}, {edit.Gemini, "replace"}} {
		b := newBench(t)
		path := b.write("f", "a\r\nb\xe9\r\n", 0o600)
		c := edit.Command{Dialect: d.dialect, Name: d.name, Path: path, Edits: []edit.Replacement{{Old: "a", New: "c"}, {Old: "c", New: "d e"}, {Old: "b", New: "a"}}}
		if r, err := b.Do(c); err != nil || b.content("f") != "d e\r\na\xe9\r\n" || r.SHA256 != sha(b.content("f")) {
			t.Errorf("%s %s: got %q, %+v and %v", d.dialect, d.name, b.content("f"), r, err)
		}
		b.undo("f")
		if got := b.content("f"); got != "a\r\nb\xe9\r\n" {
			t.Errorf("%s %s: one undo gave %q", d.dialect, d.name, got)
		}
		c.Edits = []edit.Replacement{{Old: "a", New: "c"}, {Old: "a", New: "d"}}
		_, err := b.Do(c)
		wantCode(t, err, edit.CodeNoMatch)
		if !strings.HasPrefix(err.Error(), "Edit 2 of 2: ") || b.content("f") != "a\r\nb\xe9\r\n" {
			t.Errorf("%s %s: got %q and %q", d.dialect, d.name, err, b.content("f"))
		}
		for _, wrong := range []edit.Command{
			{Edits: []edit.Replacement{}},
			{Edits: make([]edit.Replacement, 101)},
			{Edits: []edit.Replacement{{Old: "a", New: "b"}}, OldStr: new("a")},
			{Edits: []edit.Replacement{{Old: "a", New: "\xff"}}},
		} {
			wrong.Dialect, wrong.Name, wrong.Path = d.dialect, d.name, path
			_, err := b.Do(wrong)
			wantCode(t, err, edit.CodeInvalidArgument)
		}
	}
}

// A command refuses a member that it does not obey: str_replace takes one place, whatever is said about their number.
func TestNumbersOfPlaces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "a", 0o600)
	for _, c := range []edit.Command{
		{OldStr: new("a"), NewStr: new("b"), Expected: new(2)},
		{OldStr: new("a"), NewStr: new("b"), AllowMultiple: true},
		{Edits: []edit.Replacement{{Old: "a", New: "b", Expected: new(2)}}},
		{Edits: []edit.Replacement{{Old: "a", New: "b", AllowMultiple: true}}},
	} {
		c.Name, c.Path = "str_replace", path
		_, err := b.Do(c)
		wantCode(t, err, edit.CodeInvalidArgument)
	}
	if got := b.content("f"); got != "a" {
		t.Errorf("got %q, want it as before", got)
	}
	b.do(edit.Command{Name: "str_replace", Path: path, Edits: []edit.Replacement{{Old: "a", New: "b", Expected: new(1)}}})
	if got := b.content("f"); got != "b" {
		t.Errorf("got %q, want b", got)
	}
}

func TestHints(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, content, old, want string }{
		{"nearest lines", "x\n\nfunc one() {\n\treturn 1\n}\n", "func one() int {\n\treturn 2\n}", "\nMost similar, by 88%: lines 3-5\n     3\tfunc one() {\n     4\t\treturn 1\n     5\t}"},
		{"nothing near", "x\ny\n", "something else altogether", ""},
		{"decomposed", "a\ncafe\u0301\n", "caf\u00e9", "\nThe same text is on line 2 in another Unicode normalization form (composed or decomposed accents). Copy it from the file."},
		{"no-break space", "a\nb\u00a0c\n", "b c", "\nThe same text is on line 2, except for invisible characters or unusual spaces (such as a no-break space, U+00A0, or a zero width space, U+200B). Copy it from the file."},
		{"zero width space in the search", "a\nb c\n", "b\u200b c", "\nThe same text is on line 2, except for invisible characters or unusual spaces (such as a no-break space, U+00A0, or a zero width space, U+200B). Copy it from the file."},
	} {
		b := newBench(t)
		_, err := b.Do(edit.Command{Name: "str_replace", Path: b.write("f", test.content, 0o644), OldStr: &test.old, NewStr: new("new")})
		wantCode(t, err, edit.CodeNoMatch)
		_, got, _ := strings.Cut(err.Error(), "/f.")
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// A text that is nothing but short lines, or nothing but matches, must not take many times its size in memory.
func TestMemory(t *testing.T) { //nolint:paralleltest // it counts what is allocated
	const size = 8 << 20
	b := newBench(t)
	b.SetFlush(func(*os.File) error { return nil })
	lines := b.write("lines", strings.Repeat("\n", size), 0o644)
	short := b.write("short", strings.Repeat("a\n", size/2), 0o644)
	gemini := func(path, old string) func() error {
		return func() error {
			_, err := b.Do(edit.Command{Dialect: edit.Gemini, Name: "replace", Path: path, OldStr: &old, NewStr: new("x"), AllowMultiple: true, Fuzzy: true})
			return err
		}
	}
	for name, do := range map[string]func() error{
		"every byte matches":      gemini(lines, "\n"),
		"every line matches":      gemini(short, " a"),
		"every line is one token": gemini(short, "a\ta"),
		"nothing matches":         gemini(short, " a\n a\n b and more"),
		"nothing is near":         gemini(lines, "one\ntwo"),
		"replace": func() error {
			_, err := b.Do(edit.Command{Name: "replace", Path: lines, OldStr: new("\n"), NewStr: new("x")})
			return err
		},
		"patch": func() error {
			_, err := b.Patch(b.dir, patchOf("*** Update File: lines", "@@", "-x", "+y"))
			return err
		},
		"draft": func() error {
			_, err := b.Merge(edit.Draft{Path: lines, Content: "a", Start: 1, End: -1})
			return err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := do(); err == nil {
			t.Errorf("%s: got no error", name)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 25*size {
			t.Errorf("%s: %d MB for a text of %d", name, used>>20, size>>20)
		}
	}
	if _, err := b.ReadLines(lines, "/", edit.Lines{}); err != nil {
		t.Error(err)
	}
}
