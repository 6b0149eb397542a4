package edit_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

const catN = "Here's the result of running `cat -n` on "

// TestWords holds the texts that clients and agents have learnt, letter by letter. P is the path of the file.
func TestWords(t *testing.T) {
	t.Parallel()
	const two = "This is a test file.\nThis file is for testing purposes."
	many := numberedLines("line", 40)
	tests := []struct {
		name   string
		before string // "-" for no file
		c      edit.Command
		text   string
		diff   string
		after  string
	}{
		{
			"view", two,
			edit.Command{Name: "view"},
			catN + "P:\n     1\tThis is a test file.\n     2\tThis file is for testing purposes.\n", "", two,
		},
		{"view empty", "", edit.Command{Name: "view"}, catN + "P:\n     1\t\n", "", ""},
		{"view final newline", "a\n", edit.Command{Name: "view"}, catN + "P:\n     1\ta\n     2\t\n", "", "a\n"},
		{"view crlf", "a\r\nb\rc\n", edit.Command{Name: "view"}, catN + "P:\n     1\ta\n     2\tb\n     3\tc\n     4\t\n", "", "a\r\nb\rc\n"},
		{
			"view splits at line feeds only", "a\u2028b\fc\u0085d\ne\n",
			edit.Command{Name: "view"},
			catN + "P:\n     1\ta\u2028b\fc\u0085d\n     2\te\n     3\t\n", "", "a\u2028b\fc\u0085d\ne\n",
		},
		{
			"view range splits as splitlines", "a\u2028b\fc\u0085d\x1ce\nf\ng\n",
			edit.Command{Name: "view", ViewRange: []int{1, 2}},
			catN + "P:\n     1\ta\n     2\tb\n     3\tc\n     4\td\n     5\te\n     6\tf\n", "", "a\u2028b\fc\u0085d\x1ce\nf\ng\n",
		},
		{"view of many control characters", "\x01\x02\x03\x04a", edit.Command{Name: "view"}, catN + "P:\n     1\t\x01\x02\x03\x04a\n", "", "\x01\x02\x03\x04a"},
		{"view range to the end", "a\nb\nc\n", edit.Command{Name: "view", ViewRange: []int{2, -1}}, catN + "P:\n     2\tb\n     3\tc\n", "", "a\nb\nc\n"},
		{"view range of the last line without end", "a\nb", edit.Command{Name: "view", ViewRange: []int{2, 2}}, catN + "P:\n     2\tb\n", "", "a\nb"},
		{
			"view range past the end", "a\nb\nc\n",
			edit.Command{Name: "view", ViewRange: []int{3, 10}},
			"NOTE: We only show up to 3 since there're only 3 lines in this file.\n" + catN + "P:\n     3\tc\n", "", "a\nb\nc\n",
		},
		{
			"create", "-",
			edit.Command{Name: "create", FileText: new("a\nb\n")},
			"File created successfully at: P", "--- P\n+++ P\n@@ -0,0 +1,2 @@\n+a\n+b", "a\nb\n",
		},
		{"create empty", "-", edit.Command{Name: "create", FileText: new("")}, "File created successfully at: P", "", ""},
		{
			"create without final newline", "-",
			edit.Command{Name: "create", FileText: new("a")},
			"File created successfully at: P", "--- P\n+++ P\n@@ -1 +1 @@\n-\n+a", "a",
		},
		{
			"create keeps what was sent", "-",
			edit.Command{Name: "create", FileText: new("a\r\n\n \x00b")},
			"File created successfully at: P", "--- P\n+++ P\n@@ -0,0 +1 @@\n+a\n@@ -1,0 +3 @@\n+ \x00b", "a\r\n\n \x00b",
		},
		{
			"str_replace", two,
			edit.Command{Name: "str_replace", OldStr: new("test file"), NewStr: new("sample file")},
			"The file P has been edited. " + catN + "a snippet of P:\n     1\tThis is a sample file.\n     2\tThis file is for testing purposes.\n" +
				"Review the changes and make sure they are as expected. Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -1 +1 @@\n-This is a test file.\n+This is a sample file.", "This is a sample file.\nThis file is for testing purposes.",
		},
		{
			"str_replace far down", many,
			edit.Command{Name: "str_replace", OldStr: new("line 20\n"), NewStr: new("line twenty\nand more\n")},
			"The file P has been edited. " + catN + "a snippet of P:\n    17\tline 17\n    18\tline 18\n    19\tline 19\n    20\tline twenty\n" +
				"    21\tand more\n    22\tline 21\n    23\tline 22\n    24\tline 23\n    25\tline 24\n    26\tline 25\n    27\t\n" +
				"Review the changes and make sure they are as expected. Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -20 +20,2 @@\n-line 20\n+line twenty\n+and more", strings.Replace(many, "line 20\n", "line twenty\nand more\n", 1),
		},
		{
			"str_replace without new_str deletes", "one\ntwo\nthree\n",
			edit.Command{Name: "str_replace", OldStr: new("two\n")},
			"The file P has been edited. " + catN + "a snippet of P:\n     1\tone\n     2\tthree\n     3\t\n" +
				"Review the changes and make sure they are as expected. Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -2 +1,0 @@\n-two", "one\nthree\n",
		},
		{
			"str_replace is literal", "x\na.*(b)[c]$\n",
			edit.Command{Name: "str_replace", OldStr: new("a.*(b)[c]$"), NewStr: new(`ok\1 $& $1`)},
			"The file P has been edited. " + catN + "a snippet of P:\n     1\tx\n     2\tok\\1 $& $1\n     3\t\n" +
				"Review the changes and make sure they are as expected. Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -2 +2 @@\n-a.*(b)[c]$\n+ok\\1 $& $1", "x\nok\\1 $& $1\n",
		},
		{
			"str_replace strips for a second try", "a\nb",
			edit.Command{Name: "str_replace", OldStr: new("\u00a0 b\n"), NewStr: new(" c\n")},
			"The file P has been edited. " + catN + "a snippet of P:\n     1\ta\n     2\tc\n" +
				"Review the changes and make sure they are as expected. Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -2 +2 @@\n-b\n+c", "a\nc",
		},
		{
			"str_replace of nothing fills an empty file", "",
			edit.Command{Name: "str_replace", OldStr: new(""), NewStr: new("hello")},
			"The file P has been edited. " + catN + "a snippet of P:\n     1\thello\n" +
				"Review the changes and make sure they are as expected. Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -1 +1 @@\n-\n+hello", "hello",
		},
		{
			"insert", "1\n2\n3\n",
			edit.Command{Name: "insert", InsertLine: new("1"), NewStr: new("1.5")},
			"The file P has been edited. " + catN + "a snippet of the edited file:\n     1\t1\n     2\t1.5\n     3\t2\n     4\t3\n     5\t\n" +
				"Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -1,0 +2 @@\n+1.5", "1\n1.5\n2\n3\n",
		},
		{
			"insert far down", many,
			edit.Command{Name: "insert", InsertLine: new(" 20 "), NewStr: new("a\nb")},
			"The file P has been edited. " + catN + "a snippet of the edited file:\n    17\tline 17\n    18\tline 18\n    19\tline 19\n    20\tline 20\n" +
				"    21\ta\n    22\tb\n    23\tline 21\n    24\tline 22\n    25\tline 23\n    26\tline 24\n    27\t\n" +
				"Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -20,0 +21,2 @@\n+a\n+b", strings.Replace(many, "line 20\n", "line 20\na\nb\n", 1),
		},
		{
			"insert empty", "Line 1\nLine 2",
			edit.Command{Name: "insert", InsertLine: new("1"), NewStr: new("")},
			"The file P has been edited. " + catN + "a snippet of the edited file:\n     1\tLine 1\n     2\t\n     3\tLine 2\n" +
				"Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -1,0 +2 @@\n+", "Line 1\n\nLine 2",
		},
		{
			"insert into an empty file", "",
			edit.Command{Name: "insert", InsertLine: new("0"), NewStr: new("x")},
			"The file P has been edited. " + catN + "a snippet of the edited file:\n     1\tx\n     2\t\n" +
				"Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -0,0 +1 @@\n+x", "x\n",
		},
		{
			"insert after a line without end", "a\nb",
			edit.Command{Name: "insert", InsertLine: new("2"), NewStr: new("c")},
			"The file P has been edited. " + catN + "a snippet of the edited file:\n     1\ta\n     2\tb\n     3\tc\n     4\t\n" +
				"Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -2,0 +3,2 @@\n+c\n+", "a\nb\nc\n",
		},
		{
			"replace", "hello\nworld\n",
			edit.Command{Name: "replace", OldStr: new("world"), NewStr: new("there")},
			"Replaced 1 occurrence(s) in P.\nReview the changes and ensure they are as expected.", "--- P\n+++ P\n@@ -2 +2 @@\n-world\n+there", "hello\nthere\n",
		},
		{
			"replace several", "x1\ny\nx2 x3\n",
			edit.Command{Name: "replace", OldStr: new("x"), NewStr: new("long"), Expected: new(3)},
			"Replaced 3 occurrence(s) in P.\nReview the changes and ensure they are as expected.",
			"--- P\n+++ P\n@@ -1 +1 @@\n-x1\n+long1\n@@ -3 +3 @@\n-x2 x3\n+long2 long3", "long1\ny\nlong2 long3\n",
		},
		{
			"replace creates", "-",
			edit.Command{Name: "replace", NewStr: new("content")},
			"File created successfully at: P", "--- P\n+++ P\n@@ -1 +1 @@\n-\n+content", "content",
		},
		{
			"write creates", "-",
			edit.Command{Name: "write", Content: new("content")},
			"File created successfully at: P", "--- P\n+++ P\n@@ -1 +1 @@\n-\n+content", "content",
		},
		{
			"write lines", "a\nb\nc\nd\n",
			edit.Command{Name: "write", Content: new("B\nC\nCC"), Start: 2, End: 3},
			"The file P has been edited. " + catN + "a snippet of the edited file:\n     1\ta\n     2\tB\n     3\tC\n     4\tCC\n     5\td\n     6\t\n" +
				"Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). Edit the file again if necessary.",
			"--- P\n+++ P\n@@ -2,2 +2,3 @@\n-b\n-c\n+B\n+C\n+CC", "a\nB\nC\nCC\nd\n",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if test.before != "-" {
				b.write("f.txt", test.before, 0o644)
			}
			test.c.Path = b.path("f.txt")
			r := b.do(test.c)
			got := func(s string) string { return strings.ReplaceAll(s, test.c.Path, "P") }
			if got(r.Text) != test.text {
				t.Errorf("got text\n%q, want\n%q", got(r.Text), test.text)
			}
			if got(r.Diff) != test.diff {
				t.Errorf("got diff\n%q, want\n%q", got(r.Diff), test.diff)
			}
			if after := b.content("f.txt"); after != test.after {
				t.Errorf("got file %q, want %q", after, test.after)
			}
			if r.Path != test.c.Path || r.SHA256 != sha(test.after) || r.Existed != (test.before != "-") {
				t.Errorf("got path %s, hash %s, existed %v", r.Path, r.SHA256, r.Existed)
			}
		})
	}
}

// TestRefusals holds the texts of what is refused. A refused command changes nothing and records nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const content = "x\na\nx\nb x x\n"
	tests := []struct {
		name string
		c    edit.Command
		code edit.Code
		want string
	}{
		{"missing", edit.Command{Name: "view", Path: "D/none"}, edit.CodeFileNotFound, "Invalid `path` parameter: D/none. The path D/none does not exist. Please provide a valid path."},
		{"below a file", edit.Command{Name: "view", Path: "D/f/x"}, edit.CodeFileNotFound, "Invalid `path` parameter: D/f/x. The path D/f/x does not exist. Please provide a valid path."},
		{"NUL", edit.Command{Name: "view", Path: "D/a\x00b"}, edit.CodeFileNotFound, "Invalid `path` parameter: D/a\x00b. The path D/a\x00b does not exist. Please provide a valid path."},
		{"create NUL", edit.Command{Name: "create", Path: "D/a\x00b", FileText: new("")}, edit.CodeInvalidArgument, "Ran into embedded null byte while trying to write to D/a\x00b"},
		{"link loop", edit.Command{Name: "view", Path: "D/loop"}, edit.CodeFileNotFound, "Invalid `path` parameter: D/loop. The path D/loop does not exist. Please provide a valid path."},
		{"create link loop", edit.Command{Name: "create", Path: "D/loop", FileText: new("")}, edit.CodeInvalidArgument, "Ran into [Errno 40] Too many levels of symbolic links: 'D/loop' while trying to write to D/loop"},
		{"create below a file", edit.Command{Name: "create", Path: "D/f/x", FileText: new("")}, edit.CodeNotDirectory, "Ran into [Errno 20] Not a directory: 'D/f/x' while trying to write to D/f/x"},
		{"create up from nothing", edit.Command{Name: "create", Path: "D/no/../g", FileText: new("")}, edit.CodeFileNotFound, "Ran into [Errno 2] No such file or directory: 'D/no/../g' while trying to write to D/no/../g"},
		{"long name", edit.Command{Name: "view", Path: "D/" + strings.Repeat("n", 300)}, edit.CodeInvalidArgument, "Ran into [Errno 36] File name too long: 'D/" + strings.Repeat("n", 300) + "' while trying to read D/" + strings.Repeat("n", 300)},
		{"relative", edit.Command{Name: "view", Path: "./a//b/"}, edit.CodePathNotAllowed, "Invalid `path` parameter: a/b. The path should be an absolute path, starting with `/`."},
		{"relative with a suggestion", edit.Command{Name: "view", Path: "f"}, edit.CodePathNotAllowed, "Invalid `path` parameter: f. The path should be an absolute path, starting with `/`. Maybe you meant D/f?"},
		{"empty path", edit.Command{Name: "view"}, edit.CodePathNotAllowed, "Invalid `path` parameter: .. The path should be an absolute path, starting with `/`. Maybe you meant D?"},
		{"create over", edit.Command{Name: "create", Path: "D/f", FileText: new("")}, edit.CodeAlreadyExists, "Invalid `path` parameter: D/f. File already exists at: D/f. Cannot overwrite files using command `create`."},
		{"create over a directory", edit.Command{Name: "create", Path: "D/d", FileText: new("")}, edit.CodeAlreadyExists, "Invalid `path` parameter: D/d. File already exists at: D/d. Cannot overwrite files using command `create`."},
		{"create without text", edit.Command{Name: "create", Path: "D/g"}, edit.CodeMissingArgument, "Parameter `file_text` is required for command: create."},
		{"create document", edit.Command{Name: "create", Path: "D/g.PDF", FileText: new("")}, edit.CodeUnsupported, "Invalid `path` parameter: D/g.PDF. The path D/g.PDF points to a binary file (.PDF) and only the `view` command can be used on supported binary files."},
		{"edit directory", edit.Command{Name: "str_replace", Path: "D/d/"}, edit.CodeIsDirectory, "Invalid `path` parameter: D/d. The path D/d is a directory and only the `view` command can be used on directories."},
		{"unknown command", edit.Command{Name: "frob", Path: "D/f"}, edit.CodeInvalidArgument, "Unrecognized command frob. The allowed commands for the oh_editor tool are: view, create, str_replace, insert, undo_edit"},
		{"unknown command on nothing", edit.Command{Name: "frob", Path: "D/none"}, edit.CodeFileNotFound, "Invalid `path` parameter: D/none. The path D/none does not exist. Please provide a valid path."},
		{"range of a directory", edit.Command{Name: "view", Path: "D/d", ViewRange: []int{1, 2}}, edit.CodeInvalidRange, "Invalid `view_range` parameter: [1, 2]. The `view_range` parameter is not allowed when `path` points to a directory."},
		{"range of one", edit.Command{Name: "view", Path: "D/f", ViewRange: []int{1}}, edit.CodeInvalidRange, "Invalid `view_range` parameter: [1]. It should be a list of two integers."},
		{"range from 0", edit.Command{Name: "view", Path: "D/f", ViewRange: []int{0, 2}}, edit.CodeInvalidRange, "Invalid `view_range` parameter: [0, 2]. Its first element `0` should be within the range of lines of the file: [1, 4]."},
		{"range behind the end", edit.Command{Name: "view", Path: "D/f", ViewRange: []int{5, -1}}, edit.CodeInvalidRange, "Invalid `view_range` parameter: [5, -1]. Its first element `5` should be within the range of lines of the file: [1, 4]."},
		{"range of an empty file", edit.Command{Name: "view", Path: "D/empty", ViewRange: []int{1, -1}}, edit.CodeInvalidRange, "Invalid `view_range` parameter: [1, -1]. Its first element `1` should be within the range of lines of the file: [1, 0]."},
		{"range reversed", edit.Command{Name: "view", Path: "D/f", ViewRange: []int{3, 1}}, edit.CodeInvalidRange, "Invalid `view_range` parameter: [3, 1]. Its second element `1` should be greater than or equal to the first element `3`."},
		{"range to -2", edit.Command{Name: "view", Path: "D/f", ViewRange: []int{1, -2}}, edit.CodeInvalidRange, "Invalid `view_range` parameter: [1, -2]. Its second element `-2` should be greater than or equal to the first element `1`."},
		{"no old_str", edit.Command{Name: "str_replace", Path: "D/f", NewStr: new("")}, edit.CodeMissingArgument, "Parameter `old_str` is required for command: str_replace."},
		{"same strings", edit.Command{Name: "str_replace", Path: "D/f", OldStr: new("q"), NewStr: new("q")}, edit.CodeNoChange, "Invalid `new_str` parameter: q. No replacement was performed. `new_str` and `old_str` must be different."},
		{"same strings once stripped", edit.Command{Name: "str_replace", Path: "D/f", OldStr: new("\tb "), NewStr: new("b")}, edit.CodeNoChange, "Invalid `new_str` parameter: b. No replacement was performed. `new_str` and `old_str` must be different."},
		{"no match", edit.Command{Name: "str_replace", Path: "D/f", OldStr: new(" zz "), NewStr: new("q")}, edit.CodeNoMatch, "No replacement was performed, old_str `zz` did not appear verbatim in D/f."},
		{"blank no match", edit.Command{Name: "str_replace", Path: "D/f", OldStr: new("\t\t"), NewStr: new("q")}, edit.CodeNoMatch, "No replacement was performed, old_str `\t\t` did not appear verbatim in D/f."},
		{"other normal form", edit.Command{Name: "str_replace", Path: "D/nfd", OldStr: new("\u00e9"), NewStr: new("e")}, edit.CodeNoMatch, "No replacement was performed, old_str `\u00e9` did not appear verbatim in D/nfd.\n" +
			"The same text is on line 1 in another Unicode normalization form (composed or decomposed accents). Copy it from the file."},
		{"several matches", edit.Command{Name: "str_replace", Path: "D/f", OldStr: new("x"), NewStr: new("y")}, edit.CodeMultipleMatches, "No replacement was performed. Multiple occurrences of old_str `x` in lines [1, 3, 4]. Please ensure it is unique."},
		{"several matches of several lines", edit.Command{Name: "str_replace", Path: "D/twice", OldStr: new("a\nb"), NewStr: new("y")}, edit.CodeMultipleMatches, "No replacement was performed. Multiple occurrences of old_str `a\nb` in lines [1, 4]. Please ensure it is unique."},
		{"empty old_str", edit.Command{Name: "str_replace", Path: "D/f", OldStr: new(""), NewStr: new("y")}, edit.CodeMultipleMatches, "No replacement was performed. Multiple occurrences of old_str `` in lines [1, 2, 3, 4, 5]. Please ensure it is unique."},
		{"no insert_line", edit.Command{Name: "insert", Path: "D/f", NewStr: new("y")}, edit.CodeMissingArgument, "Parameter `insert_line` is required for command: insert."},
		{"no new_str", edit.Command{Name: "insert", Path: "D/f", InsertLine: new("1")}, edit.CodeMissingArgument, "Parameter `new_str` is required for command: insert."},
		{"insert_line no number", edit.Command{Name: "insert", Path: "D/none", InsertLine: new("one")}, edit.CodeInvalidArgument, "Invalid insert_line value: 'one'. Expected an integer."},
		{"insert_line fraction", edit.Command{Name: "insert", Path: "D/f", InsertLine: new("1.5")}, edit.CodeInvalidArgument, "Invalid insert_line value: '1.5'. Expected an integer."},
		{"insert_line too large", edit.Command{Name: "insert", Path: "D/f", NewStr: new(""), InsertLine: new("5")}, edit.CodeInvalidRange, "Invalid `insert_line` parameter: 5. It should be within the range of allowed values: [0, 4]"},
		{"insert_line negative", edit.Command{Name: "insert", Path: "D/f", NewStr: new(""), InsertLine: new("-1")}, edit.CodeInvalidRange, "Invalid `insert_line` parameter: -1. It should be within the range of allowed values: [0, 4]"},
		{"insert_line enormous", edit.Command{Name: "insert", Path: "D/f", NewStr: new(""), InsertLine: new("99999999999999999999")}, edit.CodeInvalidRange, "Invalid `insert_line` parameter: 99999999999999999999. It should be within the range of allowed values: [0, 4]"},
		{"nothing to undo", edit.Command{Name: "undo_edit", Path: "D/f"}, edit.CodeNoHistory, "No edit history found for D/f."},
		{"undo of nothing", edit.Command{Name: "undo_edit", Path: "D/none"}, edit.CodeFileNotFound, "Invalid `path` parameter: D/none. The path D/none does not exist. Please provide a valid path."},
		{"binary", edit.Command{Name: "view", Path: "D/bin"}, edit.CodeBinary, "File validation failed for D/bin: File appears to be binary and this file type cannot be read or edited by this tool."},
		{"edit binary", edit.Command{Name: "str_replace", Path: "D/bin", OldStr: new("a"), NewStr: new("b")}, edit.CodeBinary, "File validation failed for D/bin: File appears to be binary and this file type cannot be read or edited by this tool."},
		{"large", edit.Command{Name: "view", Path: "D/large"}, edit.CodeTooLarge, "File validation failed for D/large: File is too large (10.5MB). Maximum allowed size is 10MB."},
		{"replace nothing there", edit.Command{Name: "replace", Path: "D/none", OldStr: new("a"), NewStr: new("b")}, edit.CodeFileNotFound, "The file does not exist: D/none"},
		{"replace none", edit.Command{Name: "replace", Path: "D/f", OldStr: new("zz"), NewStr: new("b")}, edit.CodeNoMatch, "0 occurrences found"},
		{"replace does not strip", edit.Command{Name: "replace", Path: "D/f", OldStr: new(" a "), NewStr: new("b")}, edit.CodeNoMatch, "0 occurrences found\nMost similar, by 100%: line 2\n     2\ta"},
		{"replace too many", edit.Command{Name: "replace", Path: "D/f", OldStr: new("x"), NewStr: new("b"), Expected: new(2)}, edit.CodeMultipleMatches, "Expected 2 occurrences but found 4\nIt begins at (line:column) 1:1, 3:1, 4:3, 4:5."},
		{"replace too few", edit.Command{Name: "replace", Path: "D/f", OldStr: new("a"), NewStr: new("b"), Expected: new(2)}, edit.CodeNoMatch, "Expected 2 occurrences but found 1"},
		{"replace zero", edit.Command{Name: "replace", Path: "D/f", OldStr: new("a"), NewStr: new("b"), Expected: new(0)}, edit.CodeInvalidArgument, "Invalid `expected_replacements` parameter: 0. It should be between 1 and 100000."},
		{"replace empty", edit.Command{Name: "replace", Path: "D/f", OldStr: new(""), NewStr: new("b")}, edit.CodeAlreadyExists, "Invalid `old_string` parameter: . old_string cannot be empty when the file already exists."},
		{"replace same", edit.Command{Name: "replace", Path: "D/none", OldStr: new("b"), NewStr: new("b")}, edit.CodeNoChange, "Invalid `new_str` parameter: b. No replacement was performed. `new_str` and `old_str` must be different."},
		{"write without content", edit.Command{Name: "write", Path: "D/f"}, edit.CodeMissingArgument, "Parameter `content` is required for command: write."},
		{"write from too far", edit.Command{Name: "write", Path: "D/f", Content: new("q"), Start: 6, End: -1}, edit.CodeInvalidRange, "Invalid range for editing: start=6, end=-1, total lines=5. start must be >= 1 and <=5 (total lines of the edited file), start <= end, or start == -1 (append to the end of the file)."},
		{"write reversed", edit.Command{Name: "write", Path: "D/f", Content: new("q"), Start: 3, End: 2}, edit.CodeInvalidRange, "Invalid range for editing: start=3, end=2, total lines=5. start must be >= 1 and <=5 (total lines of the edited file), start <= end, or start == -1 (append to the end of the file)."},
		{"write to too far", edit.Command{Name: "write", Path: "D/f", Content: new("q"), Start: 1, End: 6}, edit.CodeInvalidRange, "Invalid range for editing: start=1, end=6, total lines=5. end must be >= 1 and <= 5 (total lines of the edited file), end >= start, or end == -1 (to edit till the end of the file)."},
		{"not UTF-8", edit.Command{Name: "create", Path: "D/g", FileText: new("a\xff")}, edit.CodeInvalidArgument, "Parameter `file_text` is not valid UTF-8."},
	}
	b := newBench(t)
	b.write("f", content, 0o644)
	b.write("empty", "", 0o644)
	b.write("nfd", "e\u0301\n", 0o644)
	b.write("twice", "a\nb\n\na\nb\n", 0o644)
	b.write("bin", "\x00\x01a\x02\xff", 0o644)
	b.write("large", strings.Repeat("0123456789abcde\n", 688128), 0o644)
	b.write("d/x", "", 0o644)
	b.link("loop", "loop")
	before := b.names()
	for _, test := range tests {
		if strings.HasPrefix(test.c.Path, "D/") {
			test.c.Path = b.dir + test.c.Path[1:]
		}
		r, err := b.Do(test.c)
		if err == nil {
			t.Errorf("%s: no error, want %q", test.name, test.want)
			continue
		}
		wantCode(t, err, test.code)
		if got := strings.ReplaceAll(err.Error(), b.dir, "D"); got != test.want {
			t.Errorf("%s: got\n%q, want\n%q", test.name, got, test.want)
		}
		if r.Text != "" || r.Diff != "" || r.SHA256 != "" {
			t.Errorf("%s: got a result beside the error: %+v", test.name, r)
		}
	}
	if after := b.names(); after != before || b.content("f") != content {
		t.Errorf("refusals changed the directory from %s to %s", before, after)
	}
	if _, err := b.Do(edit.Command{Name: "undo_edit", Path: b.path("f")}); err == nil {
		t.Error("a refused command can be undone")
	}
}

// TestBombs asks for files that are larger than the memory.
func TestBombs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	text := strings.Repeat("a", 100_000)
	path := b.write("f", text, 0o644)
	_, err := b.Do(edit.Command{Name: "replace", Path: path, OldStr: new("a"), NewStr: new(strings.Repeat("b", 1<<20)), Expected: new(100_000)})
	wantCode(t, err, edit.CodeTooLarge)
	_, err = b.Do(edit.Command{Name: "replace", Path: path, OldStr: new("a"), NewStr: new("b"), Expected: new(100_001)})
	wantCode(t, err, edit.CodeInvalidArgument)
	_, err = b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: new(""), NewStr: new("b")})
	wantCode(t, err, edit.CodeMultipleMatches)
	if got := b.content("f"); got != text {
		t.Errorf("the file became %.100q", got)
	}
	b.write("f", strings.Repeat("\n", 1<<20), 0o644)
	_, err = b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: new("\n"), NewStr: new("b")})
	wantCode(t, err, edit.CodeMultipleMatches)
	if len(err.Error()) > 10_000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

func TestWriteCommandRanges(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, before, content string
		start, end            int
		want                  string
	}{
		{"everything", "a\nb\n", "X", 0, 0, "X\n"},
		{"everything without end", "a\nb", "X", 1, -1, "X"},
		{"everything with end", "a\nb", "X\n", 1, -1, "X\n"},
		{"into an empty file", "", "X", 1, -1, "X"},
		{"to the end", "a\nb\nc\n", "X", 2, -1, "a\nX\n"},
		{"last line", "a\nb\nc\n", "X", 3, 3, "a\nb\nX\n"},
		{"last line without end", "a\nb", "X", 2, 2, "a\nX"},
		{"behind the last line end", "a\nb\n", "X", 3, 3, "a\nb\nX\n"},
		{"nothing", "a\nb\nc\n", "", 2, 2, "a\nc\n"},
		{"append", "a\n", "X", -1, -1, "a\nX\n"},
		{"append to a line without end", "a", "X", -1, -1, "a\nX"},
		{"append lines", "a", "X\nY\n", -1, -1, "a\nX\nY\n"},
		{"append to nothing", "", "X", -1, -1, "X"},
		{"crlf", "a\r\nb\r\nc\r\n", "X\nY", 2, 2, "a\r\nX\r\nY\r\nc\r\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			path := b.write("f", test.before, 0o644)
			b.do(edit.Command{Name: "write", Path: path, Content: &test.content, Start: test.start, End: test.end})
			if got := b.content("f"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			b.undo("f")
			if got := b.content("f"); got != test.before {
				t.Errorf("after undo: got %q, want %q", got, test.before)
			}
		})
	}
}

func TestClipping(t *testing.T) {
	t.Parallel()
	const notice = "<response clipped><NOTE>Due to the max output limit, only part of this file has been shown to you. You should retry this tool " +
		"after you have searched inside the file with `grep -n` in order to find the line numbers of what you are looking for.</NOTE>"
	b := newBench(t)
	view := func(content string, lines ...int) string {
		path := b.write("f", content, 0o644)
		r := b.do(edit.Command{Name: "view", Path: path, ViewRange: lines})
		return strings.TrimPrefix(r.Text, catN+path+":\n")
	}
	exact := strings.Repeat("é", 16000)
	if got, want := view(exact), "     1\t"+exact+"\n"; got != want {
		t.Errorf("16,000 characters: got %d bytes, want %d", len(got), len(want))
	}
	if got, want := view(exact+"x"), "     1\t"+exact+notice+"\n"; got != want {
		t.Errorf("16,001 characters: got ...%q", got[len(got)-300:])
	}
	if got, want := view("a\n"+exact+"\nb\n", 2, 3), "     2\t"+exact+notice+"\n"; got != want {
		t.Errorf("a range: got ...%q", got[len(got)-300:])
	}
	if got, want := view(strings.Repeat("\n", 20000)), strings.Count(view(strings.Repeat("\n", 16000)), "\n"); strings.Count(got, "\n") != want {
		t.Errorf("empty lines: got %d lines, want %d", strings.Count(got, "\n"), want)
	}
	b.write("f", exact+"\nlast\n", 0o644)
	if got := b.replace("f", "last", "end").Text; !strings.Contains(got, exact+notice+"\n") {
		t.Errorf("a snippet is not clipped: ...%q", got[len(got)-300:])
	}
}
