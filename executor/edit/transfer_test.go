package edit_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

func TestCopyAndMove(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	const binary = "a\x00\xff"
	b.write("f", binary, 0o751)
	b.giveAway()
	f, g, h := b.path("f"), b.path("d/g"), b.path("d/h")
	r := b.do(edit.Command{Name: "copy", Path: f, NewPath: g})
	want := edit.Result{
		Path: f, Existed: true, SHA256: sha(binary), Text: "The file " + f + " has been copied to " + g + ".",
		Diff: "diff --git " + f + " " + g + "\nsimilarity index 100%\ncopy from " + f + "\ncopy to " + g,
	}
	if r != want || b.content("d/g") != binary || b.mode("d/g") != 0o751 {
		t.Errorf("got %+v with mode %v, want %+v", r, b.mode("d/g"), want)
	}
	r = b.do(edit.Command{Name: "move", Path: g, NewPath: h, IfSHA256: sha(binary)})
	if wantDiff := "diff --git " + g + " " + h + "\nsimilarity index 100%\nrename from " + g + "\nrename to " + h; r.Diff != wantDiff {
		t.Errorf("got the diff %q", r.Diff)
	}
	if got := b.names(); got != "d d/h f" || b.content("d/h") != binary || b.mode("d/h") != 0o751 {
		t.Errorf("moved, the directory holds %q, mode %v", got, b.mode("d/h"))
	}
	b.undo("d/g")
	b.undo("d/h")
	if got := b.names(); got != "d d/g f" || b.content("d/g") != binary || b.mode("d/g") != 0o751 {
		t.Errorf("undone, the directory holds %q, mode %v", got, b.mode("d/g"))
	}
}

// A move keeps the file itself with its other names, and a move by a link takes the link alone.
func TestMoveKeepsTheFile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f, other, link := b.write("f", "text", 0o640), b.path("other"), b.path("link")
	if err := errors.Join(os.Link(f, other), os.Symlink("other", link)); err != nil {
		t.Fatal(err)
	}
	b.do(edit.Command{Name: "move", Path: f, NewPath: b.path("d/e/g")})
	was, err1 := os.Stat(other)
	now, err2 := os.Stat(b.path("d/e/g"))
	if err := errors.Join(err1, err2); err != nil || !os.SameFile(was, now) {
		t.Errorf("the file was copied: %v", err)
	}
	b.undo("d/e/g")
	b.undo("f")
	if got := b.names(); got != "f link other" || b.content("f") != "text" || b.mode("f") != 0o640 {
		t.Errorf("undone, the directory holds %q", got)
	}
	b.do(edit.Command{Name: "move", Path: link, NewPath: b.path("g")})
	if got := b.names(); got != "f g other" || b.content("g") != "text" {
		t.Errorf("after the link was moved, the directory holds %q", got)
	}
}

// A command that is no dialect's names another way to edit a file that is too large for it.
func TestTooLargeNamesAnotherWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "", 0o644)
	if err := os.Truncate(path, 65<<20); err != nil {
		t.Fatal(err)
	}
	const sed = "Maximum allowed size is 10MB. Edit it in a shell, with a command such as sed -i, or split it into smaller files."
	for _, test := range []struct {
		command edit.Command
		want    string
	}{
		{edit.Command{Name: "move", NewPath: b.path("g")}, "Maximum allowed size is 64MB. Use cp or mv in a shell."},
		{edit.Command{Name: "str_replace", OldStr: new("a"), Regex: true, Native: true}, sed},
		{edit.Command{Name: "str_replace", OldStr: new("a"), NewStr: new("b"), Native: true}, sed},
		{edit.Command{Name: "str_replace", Edits: []edit.Replacement{{Old: "a", New: "b"}}, Native: true}, sed},
		{edit.Command{Name: "insert", InsertLine: new("0"), NewStr: new("b"), Native: true}, sed},
		{edit.Command{Name: "write", Content: new("b"), Native: true}, sed},
		{edit.Command{Name: "insert", InsertLine: new("0"), NewStr: new("b")}, "Maximum allowed size is 10MB."},
		{edit.Command{Name: "view", Native: true}, "Maximum allowed size is 10MB."},
	} {
		test.command.Path = path
		_, err := b.Do(test.command)
		if wantCode(t, err, edit.CodeTooLarge); err != nil && !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%s: got %q, want it to end in %q", test.command.Name, err, test.want)
		}
	}
}

func TestCopyRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	b.write("f", "f", 0o644)
	b.write("g", "g", 0o644)
	b.write("d/h", "h", 0o644)
	b.giveAway()
	b.write("private/x", "x", 0o644)
	if err := os.Chmod(b.path("private"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(b.path("private"), 0o700) })
	for _, test := range []struct {
		from, to string
		command  edit.Command
		code     edit.Code
	}{
		{"f", "g", edit.Command{}, edit.CodeAlreadyExists},
		{"f", "f", edit.Command{}, edit.CodeAlreadyExists},
		{"f", "d", edit.Command{}, edit.CodeAlreadyExists},
		{"none", "x", edit.Command{}, edit.CodeFileNotFound},
		{"d", "x", edit.Command{}, edit.CodeIsDirectory},
		{"f", "private/x", edit.Command{}, edit.CodePermission},
		{"private/x", "x", edit.Command{}, edit.CodePermission},
		{"f", "x", edit.Command{IfSHA256: sha("g")}, edit.CodeConflict},
		{"f", "x", edit.Command{Dialect: edit.Anthropic}, edit.CodeInvalidArgument},
		{"f", "", edit.Command{NewPath: "x"}, edit.CodePathNotAllowed},
		{"f", "", edit.Command{}, edit.CodeMissingArgument},
		{"f", "x", edit.Command{Name: "undo_edit"}, edit.CodeInvalidArgument},
	} {
		for _, name := range []string{"copy", "move"} {
			c := test.command
			c.Path = b.path(test.from)
			if c.Name == "" {
				c.Name = name
			}
			if test.to != "" {
				c.NewPath = b.path(test.to)
			}
			_, err := b.Do(c)
			wantCode(t, err, test.code)
		}
	}
	if got := b.content("f") + b.content("g") + b.content("d/h"); got != "fgh" {
		t.Errorf("the files hold %q", got)
	}
}
