package edit_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/actiond/actiond/executor/edit"
)

// seeds are contents of every kind.
var seeds = []string{
	"", "a", "a\n", "a\nb\nc\n", "a\r\nb\r\n", "a\rb\rc", "a\r\nb\nc\rd\r\n\n", "\ufeffone\ntwo\n", "\xff\xfeo\x00\n\x00", "\xfe\xff\x00o\x00\r\x00\n",
	"caf\xe9 cr\xe8me\r\n", "\xcf\xf0\xe8\xe2\xe5\xf2\n", "é è \xff x\n", "a\x00b\n", "你好\n😀\n", "\xc4\xe3\xba\xc3\n", "aaa\naaa\naaa\n", "\r\n\r\r\n\n", " \t\n\u2028\u0085\x1c\n",
}

func FuzzDiff(f *testing.F) {
	for i, seed := range seeds {
		f.Add(seed, seeds[(i+3)%len(seeds)])
	}
	f.Add(numberedLines("l", 1500), strings.ReplaceAll(numberedLines("l", 1500), "7", "x\ny"))
	f.Fuzz(func(t *testing.T, before, after string) {
		diff := edit.UnifiedDiff("p", before, after)
		if (edit.LineDiff("p", before, after) == "") != (before == after) {
			t.Fatalf("%q to %q: got no line diff, or one too many", before, after)
		}
		if (diff == "") != (before == after) {
			t.Fatalf("%q to %q: got diff %q", before, after, diff)
		}
		if !utf8.ValidString(diff) {
			t.Fatalf("not UTF-8: %q", diff)
		}
		// Other blanks at line ends, and bytes that are shown as escapes, do not come back out of a diff.
		if utf8.ValidString(before+after) && strings.IndexFunc(before+after, func(r rune) bool { return r > 0x7e || r < ' ' && r != '\n' && r != '\t' }) < 0 {
			checkDiff(t, before, after)
		}
	})
}

// kept says that an edit left the bytes before and after some place alone.
func kept(before, after string, touched int) bool {
	head := 0
	for head < len(before) && head < len(after) && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < len(before)-head && tail < len(after)-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	return len(before)-head-tail <= touched
}

// fuzzEdit carries out a command on a file with some content. Either there is an answer and a diff that tell of the
// change, or an error and no change; and undo brings every byte and the mode back.
func fuzzEdit(t *testing.T, content string, mode os.FileMode, touched int, c edit.Command) (after, text string) {
	t.Helper()
	b := newBench(t, func(c *edit.Config) { c.StateDir = "" })
	b.SetFlush(func(*os.File) error { return nil })
	c.Path = b.write("f", content, mode)
	r, err := b.Do(c)
	after = b.content("f")
	if names := b.names(); names != "f" {
		t.Fatalf("left behind: %s", names)
	}
	if err != nil {
		if r.Text != "" || r.Diff != "" || r.SHA256 != "" || after != content || b.mode("f") != mode {
			t.Fatalf("%q: an error %q and a change to %q, %+v", content, err, after, r)
		}
		if _, err := b.Do(edit.Command{Name: "undo_edit", Path: c.Path}); err == nil {
			t.Fatal("an edit that failed can be undone")
		}
		return after, ""
	}
	if r.Text == "" || r.SHA256 != sha(after) || !utf8.ValidString(r.Text+r.Diff) || b.mode("f") != mode {
		t.Fatalf("%q became %q, answer %+v", content, after, r)
	}
	if !kept(content, after, touched) {
		t.Fatalf("%q became %q, which is more than %d bytes of it", content, after, touched)
	}
	if after == content {
		return after, r.Text
	}
	b.undo("f")
	if got := b.content("f"); got != content || b.mode("f") != mode {
		t.Fatalf("undo made %q of %q, not %q", got, after, content)
	}
	return after, r.Text
}

func FuzzReplace(f *testing.F) {
	for i, seed := range seeds {
		f.Add(seed, "a", "b\nc", uint16(0o644))
		f.Add(seed, seed, seeds[(i+1)%len(seeds)], uint16(0o755))
		f.Add(seed, "\n", "\r", uint16(0o600))
	}
	f.Fuzz(func(t *testing.T, content, old, replacement string, mode uint16) {
		// A text in two or four bytes a character takes as much; line feeds may stand for two characters.
		fuzzEdit(t, content, os.FileMode(mode)&0o777|0o600, 8*len(old), edit.Command{Name: "str_replace", OldStr: &old, NewStr: &replacement})
	})
}

func FuzzInsert(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed, "1", "x\ny", uint16(0o644))
		f.Add(seed, "0", "", uint16(0o640))
		f.Add(seed, "2", "\r", uint16(0o640))
	}
	f.Fuzz(func(t *testing.T, content, line, text string, mode uint16) {
		fuzzEdit(t, content, os.FileMode(mode)&0o777|0o600, 0, edit.Command{Name: "insert", InsertLine: &line, NewStr: &text})
	})
}

// FuzzUndo makes several edits of all kinds, some of which fail, and takes them back one by one.
func FuzzUndo(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed, "b", []byte{0, 1, 2, 3, 4})
		f.Add(seed, "x\n", []byte{4, 3, 0, 5, 2, 2})
	}
	f.Fuzz(func(t *testing.T, content, text string, steps []byte) {
		b := newBench(t, func(c *edit.Config) { c.StateDir = "" })
		b.SetFlush(func(*os.File) error { return nil })
		path := b.write("f", content, 0o604)
		states := []string{content}
		const gone = "\x00gone"
		for _, step := range steps[:min(len(steps), 10)] {
			var r edit.Result
			var err error
			switch step % 6 {
			case 0:
				r, err = b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: &text, NewStr: new(text + "é")})
			case 1:
				r, err = b.Do(edit.Command{Name: "insert", Path: path, InsertLine: new("1"), NewStr: &text})
			case 2:
				r, err = b.Write(path, "/", text, int(step%3), -1)
			case 3:
				r, err = b.Do(edit.Command{Name: "write", Path: path, Content: &text, Start: int(step % 5), End: int(step % 7)})
			case 4:
				r, err = b.Do(edit.Command{Name: "replace", Path: path, OldStr: new("é"), NewStr: &text, Expected: new(1)})
			case 5:
				r, err = b.Remove(path)
			}
			state := gone
			if b.names() == "f" {
				state = b.content("f")
			}
			if err != nil && state != states[len(states)-1] {
				t.Fatalf("an error %q and a change", err)
			}
			if r.HistoryErr != nil {
				t.Fatal(r.HistoryErr)
			}
			if state != states[len(states)-1] {
				states = append(states, state)
			}
		}
		for i := len(states) - 2; i >= 0; i-- {
			b.undo("f")
			if states[i] == gone {
				if b.names() != "" {
					t.Fatalf("step %d: the file is there", i)
				}
				continue
			}
			if got := b.content("f"); got != states[i] {
				t.Fatalf("step %d: got %q, want %q", i, got, states[i])
			}
		}
		if _, err := b.Do(edit.Command{Name: "undo_edit", Path: path}); err == nil {
			t.Fatal("there is more to undo than was done")
		}
		if b.mode("f") != 0o604 {
			t.Fatalf("the mode became %o", b.mode("f"))
		}
	})
}

// FuzzDecode reads any bytes as text, and the view of an edit must be what a fresh look at the file shows.
func FuzzDecode(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed), "1", "x\ny\r\nz")
	}
	f.Fuzz(func(t *testing.T, raw []byte, line, text string) {
		if !edit.DecodesBack(raw) {
			t.Fatalf("%q does not come back from its decoded form", raw)
		}
		if !utf8.ValidString(text) {
			return // refused before it comes here
		}
		view, fresh, ok := edit.SpliceView(raw, line, text)
		if ok && view != fresh {
			t.Fatalf("%q with %q after %s: the view is %q, a fresh one %q", raw, text, line, view, fresh)
		}
	})
}

// FuzzUndoLog reads any bytes as the log of a history: records that were written, up to the first one that is damaged.
func FuzzUndoLog(f *testing.F) {
	f.Add([]byte(""))
	record := edit.LogRecord("/f", "a\nb\n", "c", 0o644)
	f.Add(record)
	f.Add(append(edit.LogRecord("/g", "", "c", 0o755), record...))
	f.Add(append(bytes.Clone(record), record[:100]...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		back, n := edit.ReparseLog(raw)
		if !bytes.HasPrefix(raw, back) || len(back) != n*len(record) {
			t.Fatalf("%q was read as %d records, %q", raw, n, back)
		}
	})
}
