package edit_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// A str_replace with start and end finds its text in those lines alone, in files of any size.
func TestReplaceInLines(t *testing.T) {
	t.Parallel()
	const text = "x = 1\nif a:\n    x = 1\nelse:\n    x = 1\ny = x\n"
	for _, test := range []struct {
		name       string
		start, end int
		old, new   string
		want       string // of the file
		code       edit.Code
		says       string
	}{
		{"one line", 3, 3, "x = 1", "x = 2", "x = 1\nif a:\n    x = 2\nelse:\n    x = 1\ny = x\n", "", "     3\t    x = 2\n"},
		{"to the end", 4, -1, "x = 1", "x = 2", "x = 1\nif a:\n    x = 1\nelse:\n    x = 2\ny = x\n", "", "     5\t    x = 2\n"},
		{"from the beginning", 0, 2, "x = 1", "x = 2", "x = 2\nif a:\n    x = 1\nelse:\n    x = 1\ny = x\n", "", "     1\tx = 2\n"},
		{"with the line end of the last line", 3, 3, "1\n", "1\n    z = 1\n", "x = 1\nif a:\n    x = 1\n    z = 1\nelse:\n    x = 1\ny = x\n", "", "     4\t    z = 1\n"},
		{"beyond the last line", 3, 3, "1\nelse", "", "", edit.CodeNoMatch, "did not appear verbatim in the lines 3 to 3 of /"},
		{"before the first line", 3, -1, "a:\n    x", "", "", edit.CodeNoMatch, "did not appear verbatim in the lines from 3 of /"},
		{"too often", 2, 5, "x = 1", "x = 2", "", edit.CodeMultipleMatches, "in lines [3, 5]"},
		{"no such line", 8, 9, "x", "z", "", edit.CodeInvalidRange, "start=8, end=9. The file has 7 lines."},
		{"too many lines", 2, 8, "x", "z", "", edit.CodeInvalidRange, "The file has 7 lines."},
		{"backwards", 4, 3, "x", "z", "", edit.CodeInvalidRange, "end at least start"},
		{"to append", -1, 0, "x", "z", "", edit.CodeInvalidRange, "start must be at least 1"},
		{"negative end", 1, -2, "x", "z", "", edit.CodeInvalidRange, "-1 for the end of the file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			path := b.write("f", text, 0o644)
			r, err := b.Do(edit.Command{
				Name: "str_replace", Path: path, Start: test.start, End: test.end, OldStr: &test.old, NewStr: &test.new,
			})
			said, want := r.Text, test.want
			if test.code != "" {
				wantCode(t, err, test.code)
				want = text
			}
			if err != nil {
				said = err.Error()
			}
			if !strings.Contains(said, test.says) || b.content("f") != want {
				t.Errorf("got %q and %q, want %q and %q", said, b.content("f"), test.says, want)
			}
		})
	}
}

// An expression sees the lines alone, and what would ignore them refuses them.
func TestReplaceInLinesUse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "a1\na2\na3\na4\n", 0o644)
	command := edit.Command{Name: "str_replace", Path: path, Start: 2, End: 3, OldStr: new("(?m)^a(.)$"), NewStr: new("b$1"), Regex: true, AllowMultiple: true}
	b.do(command)
	if got := b.content("f"); got != "a1\nb2\nb3\na4\n" {
		t.Errorf("got %q", got)
	}
	_, err := b.Do(command)
	wantCode(t, err, edit.CodeNoMatch)
	command.AllowMultiple, command.OldStr, command.NewStr = false, new("[ab]"), new("c")
	_, err = b.Do(command)
	if wantCode(t, err, edit.CodeMultipleMatches); err != nil && !strings.Contains(err.Error(), "2:1, 3:1") {
		t.Errorf("got %q", err)
	}
	b.undo("f")
	if got := b.content("f"); got != "a1\na2\na3\na4\n" {
		t.Errorf("undone: got %q", got)
	}
	for _, c := range []edit.Command{
		{Name: "replace", OldStr: new("a"), NewStr: new("b")},
		{Name: "str_replace", OldStr: new("a"), NewStr: new("b"), Dialect: edit.Anthropic},
		{Name: "str_replace", OldStr: new("a"), NewStr: new("b"), Dialect: edit.OpenHandsV1},
		{Name: "str_replace", Edits: []edit.Replacement{{Old: "a", New: "b"}}},
	} {
		c.Path, c.Start, c.End = path, 2, 2
		_, err := b.Do(c)
		wantCode(t, err, edit.CodeInvalidArgument)
	}
}
