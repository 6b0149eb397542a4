package edit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

const tenGB = 10 << 30

// hugeFile is a text of 10 GB: 5,000 lines, a hole, and 3 lines at its end.
func hugeFile(b *bench, eol string) string {
	b.t.Helper()
	path := b.write("f.log", strings.ReplaceAll(numberedLines("line", 5000), "\n", eol), 0o640)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	end := strings.ReplaceAll("\nlast 1\nlast 2\nlast 3", "\n", eol)
	if _, err := f.WriteAt([]byte(end), tenGB-int64(len(end))); err != nil {
		b.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// parts returns the first 100 bytes of a large file and the last.
func parts(b *bench, path string) (head, tail string, info fs.FileInfo) {
	b.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		b.t.Fatal(err)
	}
	buf := make([]byte, 60)
	if _, err = f.ReadAt(buf, 0); err != nil {
		b.t.Fatal(err)
	}
	head = string(buf)
	if _, err := f.ReadAt(buf, info.Size()-60); err != nil {
		b.t.Fatal(err)
	}
	return head, strings.TrimLeft(string(buf), "\x00"), info
}

// Edits of a file of 10 GB take neither its size in memory nor, for its hole, on the disk; each is undone.
func TestEditLarge(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	for _, eol := range []string{"\n", "\r\n"} {
		b := newBench(t, func(c *edit.Config) { c.User = nobody() })
		path := hugeFile(b, eol)
		b.giveAway()
		_, _, before := parts(b, path)
		allow := new(true)
		steps := []struct {
			name       string
			command    edit.Command
			head, tail string
			text, diff string
		}{
			{
				"replace at the beginning",
				edit.Command{Name: "str_replace", OldStr: new("line 2\nline 3\n"), NewStr: new("two and ä\n")},
				"line 1\ntwo and ä\nline 4\n", "", "     1\tline 1\n     2\ttwo and ä\n     3\tline 4\n", "\n@@ -2,2 +2 @@\n-line 2\n-line 3\n+two and ä",
			},
			{
				"replace at the end",
				edit.Command{Name: "str_replace", OldStr: new("last 2"), NewStr: new("last two\n\n")},
				"", "last 1\nlast two\n\n\nlast 3", "  5002\tlast two\n  5003\t\n  5004\t\n  5005\tlast 3\n", "\n@@ -5002 +5002,3 @@\n-last 2\n+last two\n+\n+",
			},
			{
				"replace in one line",
				edit.Command{Name: "str_replace", Start: 5005, End: 5005, OldStr: new("last"), NewStr: new("very last")},
				"", "last 1\nlast two\n\n\nvery last 3", "  5004\t\n  5005\tvery last 3\n", "\n@@ -5005 +5005 @@\n-last 3\n+very last 3",
			},
			{
				"replace from a line on",
				edit.Command{Name: "str_replace", Start: 5003, OldStr: new("very last"), NewStr: new("last")},
				"", "last 1\nlast two\n\n\nlast 3", "  5005\tlast 3\n", "\n@@ -5005 +5005 @@\n-very last 3\n+last 3",
			},
			{
				"insert at the top",
				edit.Command{Name: "insert", InsertLine: new("0"), NewStr: new("top")},
				"top\nline 1\ntwo", "", "     1\ttop\n     2\tline 1\n", "\n@@ -0,0 +1 @@\n+top",
			},
			{
				"insert at the end",
				edit.Command{Name: "insert", InsertLine: new("5006"), NewStr: new("bottom")},
				"", "last 3\nbottom\n", "  5006\tlast 3\n  5007\tbottom\n", "\n@@ -5006,0 +5007,2 @@\n+bottom\n+",
			},
			{
				"a range",
				edit.Command{Name: "write", Start: 2, End: 4, Content: new("a\nb")},
				"top\na\nb\nline 5\n", "", "     1\ttop\n     2\ta\n     3\tb\n     4\tline 5\n", "",
			},
			{
				"append",
				edit.Command{Name: "write", Start: -1, Content: new("more")},
				"", "bottom\nmore\n", "  5006\tbottom\n  5007\tmore\n", "\n@@ -5006,0 +5007 @@\n+more",
			},
		}
		var took runtime.MemStats
		runtime.ReadMemStats(&took)
		start := took.TotalAlloc
		check := func(name, head, tail string) {
			t.Helper()
			gotHead, gotTail, info := parts(b, path)
			head, tail = strings.ReplaceAll(head, "\n", eol), strings.ReplaceAll(tail, "\n", eol)
			stat := info.Sys().(*syscall.Stat_t)
			if !strings.HasPrefix(gotHead, head) || !strings.HasSuffix(gotTail, tail) || info.Mode() != 0o640 || stat.Uid != before.Sys().(*syscall.Stat_t).Uid {
				t.Errorf("%s: got %q … %q, %v, want %q … %q", name, gotHead, gotTail, info.Mode(), head, tail)
			}
			if stat.Blocks > 1000 {
				t.Errorf("%s: the file has %d blocks on the disk, want its hole to stay", name, stat.Blocks)
			}
		}
		for _, s := range steps {
			s.command.Path, s.command.AllowLarge = path, allow
			r := b.do(s.command)
			if !strings.Contains(r.Text, s.text) || !strings.Contains(r.Diff, s.diff) || r.SHA256 != "" {
				t.Errorf("%s: got %q and %q, want %q and %q", s.name, r.Text, r.Diff, s.text, s.diff)
			}
			check(s.name, s.head, s.tail)
		}
		for _, s := range slices.Backward(steps) {
			r := b.do(edit.Command{Name: "undo_edit", Path: path})
			if !strings.Contains(r.Text, "undone successfully") || r.Diff == "" {
				t.Errorf("undo of %s: got %q", s.name, r.Text)
			}
		}
		check("all undone", "line 1\nline 2\nline 3\nline 4\n", "\nlast 1\nlast 2\nlast 3")
		if _, _, info := parts(b, path); info.Size() != tenGB {
			t.Errorf("got %d bytes after all were undone", info.Size())
		}
		runtime.ReadMemStats(&took)
		if took.TotalAlloc-start > 50<<20 {
			t.Errorf("16 edits of 10 GB took %d bytes of memory", took.TotalAlloc-start)
		}
		if names := b.names(); names != "f.log" {
			t.Errorf("left %s", names)
		}
	}
}

// What an edit of a large file refuses, and that it changes nothing then.
func TestEditLargeRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.MaxFileSize = 1000 })
	path := b.write("f.log", numberedLines("line", 5000)+"é\nend", 0o644)
	linked := b.write("linked", numberedLines("line", 1000), 0o644)
	if err := os.Link(linked, b.path("other")); err != nil {
		t.Fatal(err)
	}
	b.write("utf-16", "\xff\xfe"+strings.Repeat("a\x00\n\x00", 1000), 0o644)
	b.write("latin", strings.Repeat("caf\xe9\n", 1000), 0o644)
	b.write("binary", strings.Repeat("a\x00\n", 1000), 0o644)
	yes := new(true)
	replace := func(name, old string) edit.Command {
		return edit.Command{Name: "str_replace", Path: b.path(name), OldStr: &old, NewStr: new("ö"), AllowLarge: yes}
	}
	lines := func(start, end int) edit.Command {
		return edit.Command{Name: "write", Path: path, Start: start, End: end, Content: new("x"), AllowLarge: yes}
	}
	after := func(n string) edit.Command {
		return edit.Command{Name: "insert", Path: path, InsertLine: &n, NewStr: new("x"), AllowLarge: yes}
	}
	stale := replace("f.log", "end")
	stale.IfSHA256 = strings.Repeat("0", 64)
	dialect, none := replace("f.log", "end"), replace("f.log", "end")
	dialect.Dialect, none.AllowLarge = edit.Anthropic, new(false)
	for i, test := range []struct {
		command edit.Command
		code    edit.Code
		text    string
	}{
		{none, edit.CodeTooLarge, fmt.Sprintf("the server would write its %d bytes once more, beside the old ones. Set `allow_large` to true", len(b.content("f.log")))},
		{dialect, edit.CodeInvalidArgument, "without a dialect"},
		{stale, edit.CodeConflict, "is not the one that was read"},
		{replace("f.log", "nowhere"), edit.CodeNoMatch, "did not appear verbatim"},
		{replace("f.log", "line 9\nline 11"), edit.CodeNoMatch, "did not appear verbatim"},
		{replace("f.log", "99\nline 100"), edit.CodeMultipleMatches, "in lines [99, 999]"},
		{replace("f.log", ""), edit.CodeMissingArgument, "old_str"},
		{replace("linked", "line 7\n"), edit.CodeUnsupported, "other names"},
		{replace("utf-16", "a"), edit.CodeUnsupported, "utf-16le"},
		{replace("latin", "caf"), edit.CodeMultipleMatches, ""},
		{replace("binary", "a"), edit.CodeBinary, "not text"},
		{lines(0, 6000), edit.CodeInvalidRange, "total lines=5002"},
		{lines(6000, -1), edit.CodeInvalidRange, "total lines=5002"},
		{lines(4, 3), edit.CodeInvalidRange, ""},
		{lines(-2, 3), edit.CodeInvalidRange, ""},
		{after("-1"), edit.CodeInvalidRange, "[0, 5002]"},
		{after("5003"), edit.CodeInvalidRange, "[0, 5002]"},
	} {
		_, err := b.Do(test.command)
		wantCode(t, err, test.code)
		if err != nil && !strings.Contains(err.Error(), test.text) {
			t.Errorf("%d: got %q, want %q in it", i, err, test.text)
		}
	}
	latin := edit.Command{Name: "insert", Path: b.path("latin"), InsertLine: new("1"), NewStr: new("ö"), AllowLarge: yes}
	_, err := b.Do(latin)
	wantCode(t, err, edit.CodeNotEncodable)
	latin.NewStr = new("o")
	b.do(latin)
	if got := b.content("latin"); !strings.HasPrefix(got, "caf\xe9\no\ncaf\xe9\n") {
		t.Errorf("got %.20q", got)
	}
	if got, want := b.content("f.log"), numberedLines("line", 5000)+"é\nend"; got != want {
		t.Error("a refused edit changed the file")
	}
	if got, want := b.names(), "binary f.log latin linked other utf-16"; got != want {
		t.Errorf("got the files %s, want %s", got, want)
	}
}

// An undo of a large file's edit refuses where the file has changed since, however soon, and works over a restart.
func TestUndoLarge(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	config := func(c *edit.Config) { c.MaxFileSize, c.StateDir = 1000, state }
	b := newBench(t, config)
	text := "\ufeff" + numberedLines("line", 1000)
	path := b.write("f.log", text, 0o644)
	change := func(old, replacement string) {
		t.Helper()
		b.do(edit.Command{Name: "str_replace", Path: path, OldStr: &old, NewStr: &replacement, AllowLarge: new(true)})
	}
	change("line 1\n", "one\n")
	b.do(edit.Command{Name: "insert", Path: path, InsertLine: new("0"), NewStr: new("top"), AllowLarge: new(true)})
	if got := b.content("f.log"); !strings.HasPrefix(got, "\ufefftop\none\nline 2\n") {
		t.Errorf("got %.30q", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	dir := b.dir
	b = newBench(t, config)
	b.dir = dir
	b.undo("f.log")
	b.undo("f.log")
	if got := b.content("f.log"); got != text {
		t.Errorf("got %.30q", got)
	}
	_, err := b.Do(edit.Command{Name: "undo_edit", Path: path})
	wantCode(t, err, edit.CodeNoHistory)
	change("line 1\n", "one\n")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("N"), 5); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	change("line 5\n", "five\n") // undoing this one does not make the one before fit
	b.undo("f.log")
	_, err = b.Do(edit.Command{Name: "undo_edit", Path: path})
	wantCode(t, err, edit.CodeConflict)
	// More than the history takes.
	r, err := b.Do(edit.Command{Name: "write", Path: path, Start: 2, End: 999, Content: new("short"), AllowLarge: new(true)})
	if err != nil || r.HistoryErr == nil {
		t.Errorf("got %v and %v, want an edit that cannot be undone", err, r.HistoryErr)
	}
	_, err = b.Do(edit.Command{Name: "undo_edit", Path: path})
	wantCode(t, err, edit.CodeNoHistory)
}

// A copy that fails half-way leaves the old file and nothing beside it.
func TestEditLargeFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.MaxFileSize = 1000 })
	text := numberedLines("line", 1000)
	path := b.write("f.log", text, 0o644)
	b.SetFlush(func(*os.File) error { return syscall.ENOSPC })
	_, err := b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: new("line 7\n"), NewStr: new(""), AllowLarge: new(true)})
	if !errors.Is(err, syscall.ENOSPC) || b.content("f.log") != text || b.names() != "f.log" {
		t.Errorf("got %v, and %s", err, b.names())
	}
}

// Where the file system does not say where the holes are, zeros are not copied.
func TestCopyNonZero(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	text := "begin" + strings.Repeat("\x00", 300<<10) + "end" + strings.Repeat("\x00", 100)
	from, err := os.Open(b.write("from", text, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(b.path("to"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := edit.CopyNonZero(to, from, 2, int64(len(text)), 3); err != nil {
		t.Fatal(err)
	}
	info, err := to.Stat()
	if want := "\x00\x00\x00\x00\x00" + text[2:]; err != nil || b.content("to") != want || info.Sys().(*syscall.Stat_t).Blocks > 400 {
		t.Errorf("got %d bytes in %d blocks, want %d", info.Size(), info.Sys().(*syscall.Stat_t).Blocks, len(want))
	}
}
