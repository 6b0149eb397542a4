package edit_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

func TestRegex(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "\ufeffone = 1\r\ntwo = 2\r\n\xffthree = 3\n", 0o755)
	r := b.do(edit.Command{
		Name: "str_replace", Path: path, OldStr: new(`(?m)^(\w+) = (?P<value>\d)$`), NewStr: new("${value}: $1\n"), Regex: true, AllowMultiple: true,
	})
	after := "\ufeff1: one\r\n\r\n2: two\r\n\r\n\xffthree = 3\n"
	if got := b.content("f"); got != after {
		t.Errorf("got %q, want %q", got, after)
	}
	diff := "--- " + path + "\n+++ " + path + "\n@@ -1,2 +1,4 @@\n-one = 1\n-two = 2\n+1: one\n+\n+2: two\n+"
	want := edit.Result{
		Path: path, Existed: true, SHA256: sha(after), Diff: diff, Before: "one = 1\ntwo = 2\n\xffthree = 3\n", After: "1: one\n\n2: two\n\n\xffthree = 3\n",
		Text: "Replaced 2 matches in " + path + ":\n" + diff + "\nReview the changes and make sure they are as expected. Edit the file again if necessary.",
	}
	if r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	b.undo("f")
	if got := b.content("f"); got != "\ufeffone = 1\r\ntwo = 2\r\n\xffthree = 3\n" || b.mode("f") != 0o755 {
		t.Errorf("undone, it is %q with mode %v", got, b.mode("f"))
	}
	r = b.do(edit.Command{Name: "str_replace", Path: path, OldStr: new(`t(wo)`), NewStr: new("$1"), Regex: true})
	if want := "The file " + path + " has been edited. " + catN + "a snippet of " + path +
		":\n     1\tone = 1\n     2\two = 2\n     3\t\\xffthree = 3\n     4\t\nReview the changes and make sure they are as expected. Edit the file again if necessary."; r.Text != want {
		t.Errorf("got %q, want %q", r.Text, want)
	}
}

func TestRegexRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const before = "a1 a2\na3\n"
	path := b.write("f", before, 0o644)
	for _, test := range []struct {
		name    string
		command edit.Command
		code    edit.Code
		message string
	}{
		{"no match", edit.Command{OldStr: new("b")}, edit.CodeNoMatch, "does not match in " + path},
		{"several matches", edit.Command{OldStr: new(`a\d`)}, edit.CodeMultipleMatches, "Expected 1 matches of old_str `a\\d` but found 3, at (line:column) 1:1, 1:4, 2:1."},
		{"fewer than expected", edit.Command{OldStr: new(`a\d`), Expected: new(4)}, edit.CodeNoMatch, "Expected 4 matches of old_str `a\\d` but found 3."},
		{"no change", edit.Command{OldStr: new(`a(\d)`), NewStr: new("a$1"), AllowMultiple: true}, edit.CodeNoChange, "already"},
		{"no expression", edit.Command{OldStr: new(`a(`)}, edit.CodeInvalidArgument, "missing closing )"},
		{"a group that is not there", edit.Command{OldStr: new(`(a)1`), NewStr: new("$1b")}, edit.CodeInvalidArgument, `the group "1b"`},
		{"no pattern", edit.Command{}, edit.CodeMissingArgument, "old_str"},
		{"an empty pattern", edit.Command{OldStr: new("")}, edit.CodeMissingArgument, "old_str"},
		{"no place expected", edit.Command{OldStr: new("a1"), Expected: new(0)}, edit.CodeInvalidArgument, "between 1 and 100000"},
		{"a stale file", edit.Command{OldStr: new("a1"), IfSHA256: sha("")}, edit.CodeConflict, "SHA-256"},
		{"a dialect", edit.Command{OldStr: new("a1"), Dialect: edit.Strands}, edit.CodeInvalidArgument, "`regex`"},
		{"several edits", edit.Command{Edits: []edit.Replacement{{Old: "a1"}}}, edit.CodeInvalidArgument, "`regex`"},
		{"another command", edit.Command{Name: "replace", OldStr: new("a1")}, edit.CodeInvalidArgument, "`regex`"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := test.command
			c.Path, c.Regex = path, true
			if c.Name == "" {
				c.Name = "str_replace"
			}
			_, err := b.Do(c)
			wantCode(t, err, test.code)
			if !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %q, want it to contain %q", err, test.message)
			}
			if b.content("f") != before {
				t.Error("the file changed")
			}
		})
	}
}
