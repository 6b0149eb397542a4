package edit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestGeminiReplace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, content, old, replacement string
		also                            edit.Command // Expected, AllowMultiple, Fuzzy
		want                            string       // the file afterwards; "" with a code
		code                            edit.Code
		says                            string // part of the answer
	}{
		{name: "exact", content: "a\nb\n", old: "b", replacement: "B", want: "a\nB\n", says: "(1 replacements). Applied exact match at line 2."},
		{name: "dollars are dollars", content: "x", old: "x", replacement: "$&$1", want: "$&$1"},
		{name: "twice", content: "x x\nx", old: "x", replacement: "y", code: edit.CodeMultipleMatches, says: "found 3 for old_string in file: F. If you intended to replace multiple occurrences, set 'allow_multiple' to true.\nThey begin at (line:column) 1:1, 1:3, 2:1."},
		{name: "all", content: "x x\nx", old: "x", replacement: "y", also: edit.Command{AllowMultiple: true}, want: "y y\ny", says: "(3 replacements). Applied exact match at lines 1, 1, 2."},
		{name: "as many as expected", content: "x x", old: "x", replacement: "y", also: edit.Command{Expected: new(2)}, want: "y y"},
		{name: "fewer than expected", content: "x x", old: "x", replacement: "y", also: edit.Command{Expected: new(3)}, code: edit.CodeNoMatch, says: "Expected 3 occurrences but found 2"},
		{name: "other than expected, all allowed", content: "x x", old: "x", replacement: "y", also: edit.Command{Expected: new(1), AllowMultiple: true}, code: edit.CodeMultipleMatches},
		{name: "none expected", content: "x x", old: "x", replacement: "y", also: edit.Command{Expected: new(0)}, code: edit.CodeInvalidArgument},
		{name: "same", content: "x", old: "x", replacement: "x", code: edit.CodeNoChange},
		{name: "same, not there", content: "x", old: "y", replacement: "y", code: edit.CodeNoMatch},
		{name: "empty", content: "", old: "", replacement: "y", code: edit.CodeAlreadyExists},
		{name: "CRLF found by LF", content: "a\r\nb\r\nc\r\n", old: "a\nb", replacement: "A\nB", want: "A\r\nB\r\nc\r\n"},
		{name: "CRLF in the search", content: "a\nb\n", old: "a\r\nb", replacement: "A\r\nB", want: "A\nB\n"},
		{name: "mixed line ends stay", content: "a\r\nb\nc\r\n", old: "c", replacement: "C", want: "a\r\nb\nC\r\n"},
		{name: "the last line end stays", content: "a\nb\n", old: "b\n", replacement: "B", want: "a\nB\n"},
		{name: "a last line end is added", content: "a\nb", old: "b", replacement: "B\n", want: "a\nB\n"},
		{name: "the last line goes", content: "a\nb\n", old: "b\n", replacement: "", want: "a\n"},
		{name: "all text removed", content: "a\n", old: "a\n", replacement: "", want: ""},
		{name: "all text removed, without its line end", content: "a\nb\n", old: "a\nb", replacement: "", want: ""},
		{name: "all text removed, flexible", content: "  a\n  b\n", old: "a\nb\n", replacement: "", want: ""},
		{name: "text removed from a blank line up", content: "\n\na\n", old: "a\n", replacement: "", want: "\n\n"},
		{name: "line end at the end not needed", content: "a\nb", old: "b\n", replacement: "B\n", want: "a\nB", says: "Applied exact match at line 2."},
		{name: "line end at the end not needed nor added", content: "a\nb", old: "a\nb\n", replacement: "B", want: "B"},
		{name: "line end at the end not needed, removed", content: "a\nb", old: "b\n", replacement: "", want: "a\n"},
		{name: "line end at the end not needed, flexible", content: "a\n  b\n  c", old: "b\nc\n", replacement: "d\n", want: "a\n  d"},
		{name: "line end in the middle needed", content: "a b c", old: "b\n", replacement: "B\n", code: edit.CodeNoMatch},
		{name: "byte order mark", content: "\ufeffa\n", old: "a", replacement: "b", want: "\ufeffb\n"},
		{name: "bytes that are no UTF-8", content: "caf\xe9 b\n", old: "b", replacement: "B", want: "caf\xe9 B\n"},
		{name: "UTF-16", content: "\xff\xfea\x00", old: "a", replacement: "b", code: edit.CodeNoMatch},
		{name: "binary", content: "a\x00b", old: "a", replacement: "b", code: edit.CodeBinary},

		{name: "flexible", content: "\tif a {\n\t\tb()\n\t}\n", old: "if a {\n\tb()\n}", replacement: "if a {\n\tc()\n\n}", want: "\tif a {\n\t\tc()\n\n\t}\n", says: "Applied flexible match at lines 1-3."},
		{name: "flexible, indentation that does not begin alike", content: "  a\n  b\n", old: "    a\n    b", replacement: "    c\n  d", want: "  c\n  d\n"},
		{name: "flexible, nothing comes", content: "  a\n  b\nc\n", old: "a\nb", replacement: "", want: "c\n"},
		{name: "flexible, twice", content: "  a\n  b\n  a\n  b\n", old: "a\nb", replacement: "c", code: edit.CodeMultipleMatches, says: "1:1, 3:1"},
		{name: "flexible, an empty last line", content: "  a\n\n  a\nb\n", old: "a\n ", replacement: "c\n", want: "  c\n\n  a\nb\n"},
		{name: "white space alone is not flexible", content: "a\n\t\nb\n", old: "  ", replacement: "x", code: edit.CodeNoMatch},

		{name: "regex", content: "  f( a,b ) {\n x", old: "f(a,b){", replacement: "g() {", want: "  g() {\n x", says: "Applied regex match at line 1."},
		{name: "regex over lines", content: "  f(\n    a,\n  )\nend\n", old: "f(a, )", replacement: "g()\nh()", want: "  g()\n  h()\nend\n", says: "at lines 1-3."},
		{name: "regex, not in the middle of a line", content: "x f( a )", old: "f(a)", replacement: "g", code: edit.CodeNoMatch},
		{name: "regex signs are literal", content: "axxb", old: "a .*", replacement: "g", code: edit.CodeNoMatch},

		{name: "a slip is not forgiven unasked", content: "a long enough line\n", old: "a long enuogh lin", replacement: "x", code: edit.CodeNoMatch, says: "Most similar, by"},
		{name: "fuzzy", content: "x\n  console.log(\"hello world\");\ny\n", old: "console.log('hello world');", replacement: "bye();", also: edit.Command{Fuzzy: true}, want: "x\n  bye();\ny\n", says: "Applied fuzzy match at line 2."},
		{name: "fuzzy, too different", content: "x\n  console.log(\"hello\");\ny\n", old: "console.warn('hullo');", replacement: "bye();", also: edit.Command{Fuzzy: true}, code: edit.CodeNoMatch},
		{name: "fuzzy, too short", content: "abcdefgh\n", old: "abcdefgx", replacement: "x", also: edit.Command{Fuzzy: true}, code: edit.CodeNoMatch},
		{name: "fuzzy, twice", content: "the first line here\nz\nthe first line here\n", old: "the forst line here", replacement: "x", also: edit.Command{Fuzzy: true}, code: edit.CodeMultipleMatches},

		{name: "omission", content: "a", old: "a", replacement: "b\n  // Rest of  methods ...\n", code: edit.CodeInvalidArgument, says: "omission placeholder"},
		{name: "omission in parentheses", content: "a", old: "a", replacement: "(unchanged code ...)", code: edit.CodeInvalidArgument},
		{name: "omission that was there", content: "// rest of code ...", old: "// rest of code ...", replacement: "(rest of code ...)", want: "(rest of code ...)"},
		{name: "omission in Python", content: "a\nb\n", old: "a\nb", replacement: "a\n# rest of code ...", code: edit.CodeInvalidArgument, says: "`# rest of code ...`"},
		{name: "omission in other words", content: "a\nb\n", old: "a\nb", replacement: "a\n// (...rest of implementations)", code: edit.CodeInvalidArgument, says: "`// (...rest of implementations)`"},
		{name: "omission in brackets", content: "a\nb\n", old: "a\nb", replacement: "a\n  /* [as before] */", code: edit.CodeInvalidArgument},
		{name: "bare dots", content: "a\nb\n", old: "a\nb", replacement: "...\nb", code: edit.CodeInvalidArgument},
		{name: "the body of a stub", content: "def f():\n    a()\n    b()\n", old: "def f():\n    a()\n    b()", replacement: "def f():\n    ...", want: "def f():\n    ...\n"},
		{name: "dots beside code", content: "a\nb\n", old: "a", replacement: "// wait ...\na2", want: "// wait ...\na2\nb\n"},
		{name: "a comment without dots", content: "a\nb\n", old: "a\nb", replacement: "# both are gone", want: "# both are gone\n"},
		{name: "omission inside a line passes", content: "a", old: "a", replacement: "f(\"(rest of code ...)\")", want: "f(\"(rest of code ...)\")"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			path := b.write("f", test.content, 0o640)
			c := test.also
			c.Dialect, c.Name, c.Path, c.OldStr, c.NewStr = edit.Gemini, "replace", path, &test.old, &test.replacement
			r, err := b.Do(c)
			text := r.Text
			if test.code != "" {
				wantCode(t, err, test.code)
				test.want, text = test.content, err.Error()
			} else if err != nil {
				t.Fatal(err)
			}
			if got := b.content("f"); got != test.want || b.mode("f") != 0o640 {
				t.Errorf("got %q with mode %v, want %q", got, b.mode("f"), test.want)
			}
			if text = strings.ReplaceAll(text, path, "F"); !strings.Contains(text, test.says) {
				t.Errorf("got answer %q, want %q in it", text, test.says)
			}
			if test.code == "" && r.SHA256 != sha(test.want) {
				t.Errorf("got hash %s, want that of the file", r.SHA256)
			}
		})
	}
}

func TestGeminiExcerpt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", numberedLines("l", 40), 0o644)
	r, err := b.Do(edit.Command{Dialect: edit.Gemini, Name: "replace", Path: path, OldStr: new("l 20\n"), NewStr: new("x\ny\n")})
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(r.Text, "code:\n")
	const want = "...\nl 15\nl 16\nl 17\nl 18\nl 19\nx\ny\nl 21\nl 22\nl 23\nl 24\nl 25\n..."
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGeminiNames(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("sub/deep/only.txt", "x\n", 0o644)
	b.write("one/both.txt", "x\n", 0o644)
	b.write("two/both.txt", "x\n", 0o644)
	b.write(".hidden/secret.txt", "x\n", 0o644)
	b.write("@real.txt", "x\n", 0o644)
	b.write("plain.txt", "x\n", 0o644)
	outside := filepath.Join(t.TempDir(), "outside.txt")
	testhelp.WriteFile(t, outside, "x\n", 0o600)
	b.link("way", filepath.Dir(outside))
	for _, test := range []struct{ path, want string }{
		{"plain.txt", "plain.txt"},
		{"./sub/../plain.txt", "plain.txt"},
		{"@plain.txt", "plain.txt"},
		{"@real.txt", "@real.txt"},
		{"pl\x00ain.txt", "plain.txt"},
		{"only.txt", "sub/deep/only.txt"},
		{"deep/only.txt", "sub/deep/only.txt"},
		{"@only.txt", "sub/deep/only.txt"},
		{"@" + b.path("plain.txt"), "plain.txt"},
		{"@" + b.path("only.txt"), ""},
		{"both.txt", ""},
		{"secret.txt", ""},
		{"outside.txt", ""},
		{"../" + filepath.Base(b.dir) + "/x/plain.txt", ""},
	} {
		r, err := b.ReadLines(test.path, b.dir, edit.Lines{})
		if test.want == "" {
			wantCode(t, err, edit.CodeFileNotFound)
			continue
		}
		if err != nil || r.Path != b.path(test.want) || r.Text != "x\n" {
			t.Errorf("%s: got %+v and %v, want %s", test.path, r, err, test.want)
		}
	}
	// The file is made where it was named.
	if r, err := b.Overwrite("only.txt", b.dir, "new", ""); err != nil || r.Path != b.path("only.txt") {
		t.Errorf("got %+v and %v", r, err)
	}
}

func TestGeminiWrite(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, before, content, want string
		code                        edit.Code
	}{
		{name: "as given", before: "old\n", content: "a", want: "a"},
		{name: "nothing", before: "old\n", content: "", want: ""},
		{name: "CRLF file", before: "a\r\nb\r\n", content: "a\nb\nc\n", want: "a\r\nb\r\nc\r\n"},
		{name: "CRLF given", before: "a\nb\n", content: "a\r\n", want: "a\r\n"},
		{name: "byte order mark", before: "\ufeffold\n", content: "new\n", want: "\ufeffnew\n"},
		{name: "byte order mark given too", before: "\ufeffold\n", content: "\ufeffnew\n", want: "\ufeffnew\n"},
		{name: "UTF-16", before: "\xff\xfea\x00", content: "bé", want: "\xff\xfeb\x00\xe9\x00"},
		{name: "over something binary", before: "\x00\x01", content: "x", want: "x"},
		{name: "omission", before: "old", content: "a\n// rest of code ...\n", code: edit.CodeInvalidArgument},
		{name: "omission in other words", before: "one()\ntwo()\nthree()\n", content: "uno()\n# ... und so weiter\n", code: edit.CodeInvalidArgument},
		{name: "dots that lose nothing", before: "one()\ntwo()\n", content: "one()\n# wait...\ntwo()\nthree()\n", want: "one()\n# wait...\ntwo()\nthree()\n"},
		{name: "the notice of a part", before: "a\nb\n", content: "\nIMPORTANT: The file content has been truncated.\nStatus: Showing lines 1-1 of 3 total lines.\n\n--- FILE CONTENT (truncated) ---\na\n", code: edit.CodeInvalidArgument},
		{name: "a cut line", before: "a long line\n", content: "a lo... [truncated]\n", code: edit.CodeInvalidArgument},
		{name: "a file about notices", before: "x ... [truncated]\n", content: "y ... [truncated]\n", want: "y ... [truncated]\n"},
		{name: "windows-1252", before: "caf\xe9 cr\xe8me\n", content: "thé\n", want: "th\xe9\n"},
		{name: "shift_jis", before: "\x82\xb1\x82\xea\x82\xcd\x93\xfa\x96\x7b\x8c\xea\x82\xc5\x82\xb7\n", content: "日本\n", want: "\x93\xfa\x96\x7b\n"},
		{name: "a character that the encoding lacks", before: "caf\xe9\n", content: "thé →\n", want: "thé →\n"},
		{name: "another encoding declared", before: "caf\xe9\n", content: "# coding: utf-8\nthé\n", want: "# coding: utf-8\nthé\n"},
		{name: "not UTF-8", before: "old", content: "\xff", code: edit.CodeInvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			path := b.write("f", test.before, 0o751)
			r, err := b.Overwrite(path, "/", test.content, "")
			if test.code != "" {
				wantCode(t, err, test.code)
				test.want = test.before
			} else if err != nil || r.SHA256 != sha(test.want) || strings.Contains(r.Text, "It is in UTF-8 now") != strings.Contains(test.name, "lacks") {
				t.Errorf("got %+v and %v", r, err)
			}
			if got := b.content("f"); got != test.want || b.mode("f") != 0o751 {
				t.Errorf("got %q with mode %v, want %q", got, b.mode("f"), test.want)
			}
			if test.code != "" {
				return
			}
			b.undo("f")
			if got := b.content("f"); got != test.before {
				t.Errorf("undone: got %q, want %q", got, test.before)
			}
		})
	}
	b := newBench(t)
	r, err := b.Overwrite("a/b/n", b.dir, "x\r\n", "")
	if err != nil || b.content("a/b/n") != "x\r\n" || !strings.HasPrefix(r.Text, "Successfully created and wrote to new file: "+b.path("a/b/n")) {
		t.Errorf("got %+v and %v", r, err)
	}
	if want := "--- /dev/null\n+++ " + b.path("a/b/n") + "\n@@ -0,0 +1 @@\n+x\r"; r.Diff != want {
		t.Errorf("the diff is %q, want %q", r.Diff, want)
	}
	_, err = b.Overwrite("a", b.dir, "x", "")
	wantCode(t, err, edit.CodeIsDirectory)
}

func TestGeminiRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("three", "a\nb\nc", 0o644)
	b.write("crlf", "a\r\nb\r", 0o644)
	b.write("wide", "\xff\xfeh\x00\xe9\x00", 0o644)
	b.write("bin", "\x00", 0o644)
	b.write("p.png", "\x89PNG\x00", 0o644)
	b.write("big.svg", strings.Repeat("x", 1<<20+1), 0o644)
	b.write("empty", "", 0o644)
	b.write("long", strings.Repeat("é", 2001), 0o644)
	b.write("many", numberedLines("l", 2500), 0o644)
	cut := func(first, last, total, names, next, body string) string {
		return "\nIMPORTANT: The file content has been truncated.\nStatus: Showing lines " + first + "-" + last + " of " + total +
			" total lines.\nAction: To read more of the file, you can use the " + names + " parameters in a subsequent 'read_file' call. " +
			"For example, to read the next section of the file, use " + next + ".\n\n--- FILE CONTENT (truncated) ---\n" + body
	}
	const lines, offsets = "'start_line' and 'end_line'", "'offset' and 'limit'"
	for _, test := range []struct {
		file string
		l    edit.Lines
		want string
		code edit.Code
	}{
		{file: "three", want: "a\nb\nc"},
		{file: "three", l: edit.Lines{Start: new(2), End: new(2)}, want: cut("2", "2", "3", lines, "start_line: 3", "b")},
		{file: "three", l: edit.Lines{Start: new(1), End: new(9)}, want: "a\nb\nc"},
		{file: "three", l: edit.Lines{End: new(1)}, want: cut("1", "1", "3", lines, "start_line: 2", "a")},
		{file: "three", l: edit.Lines{Offset: new(1), Limit: new(1)}, want: cut("2", "2", "3", offsets, "offset: 2", "b")},
		{file: "three", l: edit.Lines{Limit: new(1 << 62)}, want: "a\nb\nc"},
		{file: "three", l: edit.Lines{Offset: new(3)}, code: edit.CodeInvalidRange},
		{file: "three", l: edit.Lines{Start: new(4)}, code: edit.CodeInvalidRange},
		{file: "three", l: edit.Lines{Start: new(0)}, code: edit.CodeInvalidRange},
		{file: "three", l: edit.Lines{End: new(0)}, code: edit.CodeInvalidRange},
		{file: "three", l: edit.Lines{Start: new(3), End: new(2)}, code: edit.CodeInvalidRange},
		{file: "three", l: edit.Lines{Offset: new(-1)}, code: edit.CodeInvalidRange},
		{file: "three", l: edit.Lines{Limit: new(0)}, code: edit.CodeInvalidRange},
		{file: "three", l: edit.Lines{Start: new(1), Limit: new(1)}, code: edit.CodeInvalidArgument},
		{file: "crlf", want: "a\nb\r"},
		{file: "wide", want: "hé"},
		{file: "bin", want: "Cannot display content of binary file: bin"},
		{file: "p.png", want: "data:image/png;base64,iVBORwA="},
		{file: "big.svg", want: "Cannot display content of SVG file larger than 1MB: big.svg"},
		{file: "empty", want: ""},
		{file: "long", want: cut("1", "1", "1", lines, "start_line: 2", strings.Repeat("é", 2000)+"... [truncated]")},
		{file: "many", want: cut("1", "2000", "2501", lines, "start_line: 2001", strings.TrimSuffix(numberedLines("l", 2000), "\n"))},
		{file: "none", code: edit.CodeFileNotFound},
		{file: ".", code: edit.CodeIsDirectory},
	} {
		r, err := b.ReadLines(test.file, b.dir, test.l)
		if test.code != "" {
			wantCode(t, err, test.code)
			continue
		}
		if err != nil || r.Text != test.want || r.SHA256 != sha(b.content(test.file)) {
			t.Errorf("%s %+v: got %q and %v, want %q", test.file, test.l, r.Text, err, test.want)
		}
	}
}
