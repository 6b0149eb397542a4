package edit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// A range of a file of 10 GB, most of which is a hole, takes neither its size in memory nor the time to read it.
func TestViewLarge(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	head := numberedLines("line", 5000)
	path := b.write("f.log", head+strings.Repeat("x", 9000)+"\r\nlast \xff\n", 0o644)
	if err := os.Truncate(path, 10<<30); err != nil {
		t.Fatal(err)
	}
	b.write("bin", "\x00", 0o644)
	if err := os.Truncate(b.path("bin"), 20<<20); err != nil {
		t.Fatal(err)
	}
	small := b.write("small.log", strings.Repeat("abcdefg\n", 2<<20), 0o644)
	b.giveAway()
	view := func(path string, lines ...int) (edit.Result, error) {
		return b.Do(edit.Command{Name: "view", Path: path, Markdown: true, ViewRange: lines})
	}
	r, err := view(path, 5000, 5002)
	want := edit.Result{
		Path: path, Existed: true,
		Text: catN + path + ":\n  5000\tline 5000\n  5001\t" + strings.Repeat("x", 4000) + "... [truncated]\n  5002\tlast \\xff\n",
	}
	if err != nil || r != want {
		t.Errorf("got %+v and %v, want %+v", r, err, want)
	}
	r, err = view(path)
	if err != nil || !strings.HasPrefix(r.Text, catN+path+":\n     1\tline 1\n") || !strings.HasSuffix(r.Text, "NOTE: View [1711, -1] to go on.\n") {
		t.Errorf("got %.100q … %q and %v", r.Text, r.Text[max(0, len(r.Text)-100):], err)
	}
	r, err = view(small, 2<<20, -1)
	if want := catN + small + ":\n2097152\tabcdefg\n"; err != nil || r.Text != want {
		t.Errorf("got %q and %v, want %q", r.Text, err, want)
	}
	for _, lines := range [][]int{{2<<20 + 1, -1}, {0, 1}, {2, 1}, {1}} {
		_, err = view(small, lines...)
		wantCode(t, err, edit.CodeInvalidRange)
	}
	_, err = view(b.path("bin"))
	wantCode(t, err, edit.CodeBinary)
	_, err = b.Do(edit.Command{Name: "view", Path: path, ViewRange: []int{1, 2}})
	wantCode(t, err, edit.CodeTooLarge) // the dialect keeps its limit
}

// A line that does not end, in a file of terabytes that costs the agent nothing, is not read to its end.
func TestViewOfAnEndlessLine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.SetMaxScan(16 << 20)
	path := b.write("f.log", "line 1\n"+strings.Repeat("x", 9000), 0o644)
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	_, err := b.Do(edit.Command{Name: "view", Path: path, Markdown: true, ViewRange: []int{3, 4}})
	wantCode(t, err, edit.CodeTooLarge)
	r := b.do(edit.Command{Name: "view", Path: path, Markdown: true, ViewRange: []int{1, 1}})
	if want := catN + path + ":\n     1\tline 1\n"; r.Text != want {
		t.Errorf("got %q, want %q", r.Text, want)
	}
}
