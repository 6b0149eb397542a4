package edit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	const file = "import a\n\ndef f():\n    x = 1\n    return x\n\ndef g():\n    y = 1\n    return y\n\nend\n"
	for _, test := range []struct {
		name, before, draft string
		start, end          int
		want                string // the file afterwards; "" with a code
		code                edit.Code
		says                string
	}{
		{name: "append", before: "one\ntwo\n", draft: "three", start: -1, end: -1, want: "one\ntwo\nthree\n"},
		{name: "append to an open line", before: "one", draft: "#EDIT: reason\nx", start: -1, end: -1, want: "one\n#EDIT: reason\nx\n"},
		{name: "append to nothing", before: "", draft: "x\n", start: -1, end: -1, want: "x\n"},
		{name: "append nothing", before: "one", draft: "", start: -1, end: -1, want: "one"},
		{name: "append CRLF", before: "one\r\n", draft: "x\ny", start: -1, end: -1, want: "one\r\nx\r\ny\r\n"},

		{name: "all lines", before: "a\nb\n", draft: "c", start: 1, end: -1, want: "c\n"},
		{name: "a range", before: "a\nb\nc\n", draft: "x\ny", start: 2, end: 2, want: "a\nx\ny\nc\n"},
		{name: "the open last line", before: "a\nb", draft: "x", start: 2, end: 2, want: "a\nx"},
		{name: "the empty line at the end", before: "a\n", draft: "x", start: 2, end: 2, want: "a\nx\n"},
		{name: "a range goes", before: "a\nb\nc\n", draft: "", start: 2, end: 2, want: "a\nc\n"},
		{name: "CRLF stays", before: "a\r\nb\r\nc\r\n", draft: "x", start: 2, end: 2, want: "a\r\nx\r\nc\r\n"},
		{name: "bytes that are no UTF-8", before: "\xe9\nb\n", draft: "x", start: 2, end: 2, want: "\xe9\nx\n"},
		{name: "from 0", before: "one\ntwo\n", draft: "x", start: 0, end: -1, code: edit.CodeInvalidRange, says: "Invalid range for editing: start=0, end=-1, total lines=3. start must be >= 1 and <=3"},
		{name: "to 0", before: "one\ntwo", draft: "x", start: 1, end: 0, code: edit.CodeInvalidRange, says: "start=1, end=0, total lines=2. start must be"},
		{name: "from too far", before: "one\ntwo\n", draft: "x", start: 9, end: 10, code: edit.CodeInvalidRange, says: "start must be >= 1 and <=3"},
		{name: "to too far", before: "one\ntwo\n", draft: "x", start: 1, end: 10, code: edit.CodeInvalidRange, says: "end must be >= 1 and <= 3"},
		{name: "reversed", before: "one\ntwo\nthree", draft: "x", start: 3, end: 1, code: edit.CodeInvalidRange},
		{name: "300 lines", before: numberedLines("L", 301), draft: "x", start: 1, end: 300, want: "x\nL 301\n"},
		{name: "301 lines", before: numberedLines("L", 400), draft: "L 150", start: 1, end: 301, code: edit.CodeInvalidRange, says: "Got (L1-L301) 301 lines.]\nGive a start"},
		{name: "the regions most like it", before: numberedLines("L", 400), draft: "L 150", start: 1, end: -1, code: edit.CodeInvalidRange, says: "[region 1: lines 141-160]\n141|L 141"},

		{name: "in the middle", before: file, draft: "# ... existing code ...\ndef f():\n    x = 2\n    return x\n# ... existing code ...\n", start: 1, end: -1, want: strings.Replace(file, "x = 1", "x = 2", 1)},
		{name: "two places", before: file, draft: "import a\n# unchanged\ndef f():\n    x = 2\n    return x\n# rest of the code\n    return y\n\n# EOF\nend\n", start: 1, end: -1, want: strings.Replace(strings.Replace(file, "x = 1", "x = 2", 1), "y\n\nend", "y\n\n# EOF\nend", 1)},
		{name: "from the first line on", before: file, draft: "import a\nimport b\n\ndef f():\n# ...", start: 1, end: -1, want: strings.Replace(file, "import a\n", "import a\nimport b\n", 1)},
		{name: "to the last line", before: file, draft: "// no changes above\n    return y\n\nmore\nend", start: 1, end: -1, want: strings.Replace(file, "y\n\nend", "y\n\nmore\nend", 1)},
		{name: "in a range", before: "a\nb\na\nb\n", draft: "a\nx\nb\n# unchanged", start: 3, end: 4, want: "a\nb\na\nx\nb\n"},
		{name: "moved in", before: "if x:\n    def f():\n        return 1\n", draft: "# unchanged\ndef f():\n    y = 2\n    return 1\n", start: 1, end: -1, want: "if x:\n    def f():\n        y = 2\n        return 1\n"},
		{name: "exact before near", before: "  a\na\nb\n", draft: "# unchanged\na\nx\nb\n", start: 1, end: -1, want: "  a\na\nx\nb\n"},
		{name: "order decides", before: "}\na\n}\nb\n}\n", draft: "# unchanged\na\nnew\n}\nb\n# unchanged\n", start: 1, end: -1, want: "}\na\nnew\n}\nb\n}\n"},
		{name: "CRLF stays with placeholders", before: "a\r\nb\r\nc\r\n", draft: "# unchanged\nb\nx\nc\n", start: 1, end: -1, want: "a\r\nb\r\nx\r\nc\r\n"},
		{name: "ambiguous", before: "a\nb\nc\na\nb\n", draft: "# unchanged\na\nx\nb\n# unchanged", start: 1, end: -1, code: edit.CodeMultipleMatches, says: "The line `a` of the draft can be lines 1, 4."},
		{name: "missing", before: file, draft: "# unchanged\ndef h():\n    return 1\n# unchanged", start: 1, end: -1, code: edit.CodeNoMatch, says: "The line `def h():` of the draft is not in the range."},
		{name: "out of order", before: "a\nb\nc\n", draft: "# unchanged\nc\n# unchanged\na\n# unchanged", start: 1, end: -1, code: edit.CodeNoMatch, says: "which is out of order"},
		{name: "lines above would be lost", before: "a\nb\nc\n", draft: "b\n# unchanged", start: 1, end: -1, code: edit.CodeNoMatch, says: "The line `b` of the draft is line 2, and lines above or below it would be lost."},
		{name: "lines below would be lost", before: "a\nb\nc\n", draft: "# unchanged\nb", start: 1, end: -1, code: edit.CodeNoMatch},
		{name: "nothing but placeholders", before: "a\n", draft: "# unchanged\n", start: 1, end: -1, code: edit.CodeNoChange},
		{name: "nothing changes", before: file, draft: "import a\n# ... existing code ...\nend\n", start: 1, end: -1, code: edit.CodeNoChange, says: "Taken for lines that stay: `# ... existing code ...` (line 2)."},
		{name: "new comments are text", before: file, draft: "# unchanged since version 1.0\n" + strings.Replace(file, "    x = 1\n", "    # rest of the value comes later\n    x = 1\n", 1), start: 1, end: -1, want: "# unchanged since version 1.0\n" + strings.Replace(file, "    x = 1\n", "    # rest of the value comes later\n    x = 1\n", 1)},
		{name: "a new comment above the range", before: file, draft: "    # no changes are made to x\n    x = 1", start: 4, end: 4, want: strings.Replace(file, "    x = 1\n", "    # no changes are made to x\n    x = 1\n", 1)},
		{name: "a comment that the range has", before: "def f(a):\n    # no changes without a\n    log(a)\n    run(a)\n", draft: "def f(a):\n    # no changes without a\n    log(a, 1)\n    run(a)\n", start: 1, end: -1, want: "def f(a):\n    # no changes without a\n    log(a, 1)\n    run(a)\n"},
		{name: "the placeholder is named", before: file, draft: "def f():\n    # rest of the value comes later\n    x = 2\n    return x\n", start: 3, end: 5, code: edit.CodeNoMatch, says: "The line `x = 2` of the draft is not in the range. Between placeholders, a draft must begin and end with lines that are in the file, in their order and each in one place. Nothing was changed. Taken for lines that stay: `# rest of the value comes later` (line 2)."},
		{name: "dots between neighbours go", before: file, draft: "import a\n\ndef f():\n# ... existing code ...\n    x = 1\n    y = 1\n    return x\n# ...", start: 1, end: -1, want: strings.Replace(file, "x = 1\n", "x = 1\n    y = 1\n", 1)},
		{name: "a stretch of a comment for a line", before: file, draft: "# ...\ndef f():\n    # body as it was\n    return x\n# ...", start: 1, end: -1, want: strings.Replace(file, "    x = 1\n", "    # body as it was\n", 1)},
		{name: "a stretch that loses lines", before: file, draft: "# ...\ndef f():\n    # as it was\n    return y\n# ...", start: 1, end: -1, code: edit.CodeInvalidArgument, says: "The line `# as it was` of the draft is not in the range"},
		{name: "one line becomes a comment", before: file, draft: "    # x is set elsewhere", start: 4, end: 4, want: strings.Replace(file, "    x = 1\n", "    # x is set elsewhere\n", 1)},
		{name: "a comment becomes shorter", before: "# one\n# two\n# three\nx\n", draft: "# all of it\nx\n", start: 1, end: -1, want: "# all of it\nx\n"},
		{name: "a comment gets dots", before: "# Loading\nx\n", draft: "# Loading ...\nx\n", start: 1, end: -1, want: "# Loading ...\nx\n"},
		{name: "code that begins with dots", before: "a = {\n  b: 1,\n  c: 2,\n  d: 3,\n}\n", draft: "a = {\n  ...rest,\n}\n", start: 1, end: -1, want: "a = {\n  ...rest,\n}\n"},
		{name: "a file with line numbers", before: "1|a\n2|b\n", draft: "2|c", start: 2, end: 2, want: "1|a\n2|c\n"},
		{name: "line numbers", before: file, draft: "4|    x = 2\n5|    return x\n", start: 4, end: 5, code: edit.CodeInvalidArgument, says: "`4|    x = 2`"},
		{name: "line numbers of a view", before: file, draft: "     4\t    x = 2", start: 4, end: 4, code: edit.CodeInvalidArgument, says: "line numbers"},
		{name: "a code fence", before: file, draft: "```python\n    x = 2\n```", start: 4, end: 4, code: edit.CodeInvalidArgument, says: "```python"},
		{name: "binary", before: "\x00", draft: "x", start: 1, end: -1, code: edit.CodeBinary},
		{name: "not UTF-8", before: "a", draft: "\xff", start: 1, end: -1, code: edit.CodeInvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("f", test.before, 0o640)
			m, err := b.Merge(edit.Draft{Path: "f", Dir: b.dir, Content: test.draft, Start: test.start, End: test.end})
			if test.code != "" {
				wantCode(t, err, test.code)
				if !strings.Contains(err.Error(), test.says) {
					t.Errorf("got %q, want %q in it", err, test.says)
				}
				test.want = test.before
			} else if err != nil || m.SHA256 != sha(test.want) || m.Before != strings.ReplaceAll(test.before, "\r\n", "\n") && !strings.Contains(test.before, "\xe9") {
				t.Errorf("got %+v and %v", m, err)
			}
			if got := b.content("f"); got != test.want || b.mode("f") != 0o640 {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Each stretch of a draft could be any of 300 equal lines: 100,000 of them would be 30 million candidates.
func TestMergeIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	content := strings.Repeat("a\n", 300)
	path := b.write("f", content, 0o644)
	_, err := b.Merge(edit.Draft{Path: path, Content: strings.Repeat("a\n# unchanged\n", 100_000), Start: 1, End: 300})
	wantCode(t, err, edit.CodeNoMatch)
	if b.content("f") != content {
		t.Error("the file was changed")
	}
}

func TestMergeMakesFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m, err := b.Merge(edit.Draft{Path: "a/n", Dir: b.dir, Content: "x\n# unchanged", Start: 1, End: -1})
	if err != nil || b.content("a/n") != "x\n# unchanged\n" || m.Existed || m.Before != "" || m.After != "x\n# unchanged\n" || m.Path != b.path("a/n") {
		t.Errorf("got %+v and %v", m, err)
	}
	_, err = b.Merge(edit.Draft{Path: "a", Dir: b.dir, Content: "x", Start: 1, End: -1})
	wantCode(t, err, edit.CodeIsDirectory)
	_, err = b.Merge(edit.Draft{Path: "a/n", Dir: b.dir, Content: "x", Start: 1, End: -1, IfSHA256: sha("other")})
	wantCode(t, err, edit.CodeConflict)
}

func TestMergeByModel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("f", "a\nb\nc\n", 0o644)
	d := edit.Draft{Path: b.path("f"), Content: "draft", Start: 2, End: 2}
	d.Model = func(original, draft string) (string, error) {
		if original != "b\n" || draft != "draft" {
			t.Errorf("the model got %q and %q", original, draft)
		}
		return "# unchanged\nB", nil // its words are not looked at
	}
	if _, err := b.Merge(d); err != nil || b.content("f") != "a\n# unchanged\nB\nc\n" {
		t.Errorf("got %q and %v", b.content("f"), err)
	}
	before := b.content("f")
	d.Model = func(string, string) (string, error) { return "", errors.New("gone") }
	_, err := b.Merge(d)
	wantCode(t, err, edit.CodeCommandFailed)
	if b.content("f") != before {
		t.Errorf("got %q, want it as before", b.content("f"))
	}
	// The file is not held while a model thinks.
	d.Model = func(string, string) (string, error) {
		b.replace("f", "a\n#", "somebody else's\n#")
		return "x", nil
	}
	_, err = b.Merge(d)
	wantCode(t, err, edit.CodeConflict)
	if !strings.HasPrefix(b.content("f"), "somebody else's\n") {
		t.Errorf("got %q", b.content("f"))
	}
	// A new file, and lines at the end, need no question.
	d.Model = func(string, string) (string, error) { return "", errors.New("asked") }
	d.Start = -1
	if _, err := b.Merge(d); err != nil {
		t.Error(err)
	}
	d.Path, d.Start = b.path("new"), 1
	if _, err := b.Merge(d); err != nil || b.content("new") != "draft\n" {
		t.Errorf("got %v", err)
	}
}
