package edit_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

func TestReadRanges(t *testing.T) {
	t.Parallel()
	five := numberedLines("l", 5)
	tests := []struct {
		name       string
		content    string
		start, end int
		want       string
	}{
		{"everything", five, 0, -1, five},
		{"empty", "", 0, -1, ""},
		{"no final newline", "one\ntwo", 0, -1, "one\ntwo"},
		{"line ends", "a\r\nb\rc\n\r\n", 0, -1, "a\nb\nc\n\n"},
		{"byte order mark", "\ufeffa\r\n", 0, -1, "\ufeffa\n"},
		{"from a line", five, 2, -1, "l 3\nl 4\nl 5\n"},
		{"first two", five, 0, 2, "l 1\nl 2\n"},
		{"middle", five, 1, 3, "l 2\nl 3\n"},
		{"over the end", five, 1, 99, "l 2\nl 3\nl 4\nl 5\n"},
		{"last over the end", five, 4, 99, "l 5\n"},
		{"negative start", five, -5, 3, "l 1\nl 2\nl 3\n"},
		{"behind the end", five, 9, 20, ""},
		{"at the end", five, 5, 5, ""},
		{"behind the end to the end", five, 5, -1, ""},
		// The next rows count as the reference does, and clients have it so.
		{"last", five, 4, 5, "l 4\nl 5\n"},
		{"none at the top", five, 0, 0, "l 1\n"},
		{"negative end", five, 0, -2, "l 1\n"},
		{"reversed", five, 3, 1, "l 4\n"},
		{"none", five, 3, 3, "l 4\n"},
		{"none of one", "x\n", 0, 0, "x\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			path := b.write("f", test.content, 0o644)
			r, err := b.Read("f", b.dir+"/.", test.start, test.end)
			if err != nil {
				t.Fatal(err)
			}
			if want := (edit.Result{Path: path, Text: test.want, SHA256: sha(test.content), Existed: true}); r != want {
				t.Errorf("got %+v, want %+v", r, want)
			}
		})
	}
}

func TestReadMedia(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, media string }{
		{"a.png", "image/png"},
		{"a.JPG", "image/jpeg"},
		{"a.jpeg", "image/jpeg"},
		{"a.bmp", "image/bmp"},
		{"a.gif", "image/gif"},
		{"a.pdf", "application/pdf"},
		{"a.mp4", "video/mp4"},
		{"a.webm", "video/webm"},
		{"a.ogg", "video/ogg"},
	}
	b := newBench(t)
	const bytes = "\x89PNG\r\n\x1a\n\x00\xff\xfe"
	for _, test := range tests {
		path := b.write(test.name, bytes, 0o644)
		r, err := b.Read(path, "/", 3, 4)
		if want := "data:" + test.media + ";base64," + base64.StdEncoding.EncodeToString([]byte(bytes)); err != nil || r.Text != want {
			t.Errorf("%s: got %q, %v, want %q", test.name, r.Text, err, want)
		}
	}
}

func TestReadRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.MaxReadSize = 1 << 20 })
	b.write("latin", "caf\xe9 cr\xe8me\nna\xefve\n", 0o644)
	b.write("utf16", "\xff\xfeo\x00k\x00\n\x00", 0o644)
	b.write("bin", "a\x00b\n", 0o644)
	b.write("noise", "\x01\x02\x9c\x03\xff\x04\x05\x80\n", 0o644)
	b.write("controls", "\x01\x02\x03\x04\x05\x06\x0e\x0f\x10a", 0o644)
	b.write("large", strings.Repeat("x", 1<<20+1), 0o644)
	b.write("d.png/x", "", 0o644)
	tests := []struct {
		path string
		code edit.Code
		want string
	}{
		{"none", edit.CodeFileNotFound, "File not found: D/none. Your current working directory is D."},
		{"../D/none", edit.CodeFileNotFound, "File not found: D/../D/none. Your current working directory is D."},
		{"d.png", edit.CodeIsDirectory, "Path is a directory: D/d.png. You can only read files"},
		{"latin", edit.CodeUnsupported, "File could not be decoded as utf-8: D/latin."},
		{"utf16", edit.CodeUnsupported, "File could not be decoded as utf-8: D/utf16."},
		{"bin", edit.CodeBinary, "ERROR_BINARY_FILE"},
		{"noise", edit.CodeBinary, "ERROR_BINARY_FILE"},
		{"controls", edit.CodeBinary, "ERROR_BINARY_FILE"},
		{"large", edit.CodeTooLarge, "File is too large (1.0MB): D/large. Maximum allowed size is 1MB."},
		{"a\x00b", edit.CodeFileNotFound, "File not found: D/a\x00b. Your current working directory is D."},
	}
	for _, test := range tests {
		r, err := b.Read(test.path, b.dir, 0, -1)
		wantCode(t, err, test.code)
		if got := strings.ReplaceAll(err.Error(), b.dir, "D"); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
		if r.Path != b.dir+"/"+test.path || r.Text != "" {
			t.Errorf("got %+v", r)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	five := "l1\nl2\nl3\nl4\nl5\n"
	tests := []struct {
		name       string
		before     string // "-" for no file
		content    string
		start, end int
		want, diff string
	}{
		{"new", "-", "a", 0, -1, "a\n", "@@ -0,0 +1 @@\n+a"},
		{"new empty", "-", "", 0, -1, "\n", "@@ -1,0 +2 @@\n+"},
		{"new with a line end", "-", "a\n", 0, -1, "a\n\n", "@@ -0,0 +1 @@\n+a\n@@ -1,0 +3 @@\n+"},
		{"new with a range", "-", "a", 3, 4, "a\n", "@@ -0,0 +1 @@\n+a"},
		{"new crlf", "-", "a\r\nb", 0, -1, "a\r\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b"},
		{"over", five, "x", 0, -1, "x\n", "@@ -1,5 +1 @@\n-l1\n-l2\n-l3\n-l4\n-l5\n+x"},
		{"lines", five, "X\nY", 1, 3, "l1\nX\nY\nl4\nl5\n", "@@ -2,2 +2,2 @@\n-l2\n-l3\n+X\n+Y"},
		{"between lines", five, "X", 2, 2, "l1\nl2\nX\nl3\nl4\nl5\n", "@@ -2,0 +3 @@\n+X"},
		{"from a line", five, "X", 4, -1, "l1\nl2\nl3\nl4\nX\n", "@@ -5 +5 @@\n-l5\n+X"},
		{"behind the end", five, "X", 50, 60, "l1\nl2\nl3\nl4\nl5\nX\n", "@@ -5,0 +6 @@\n+X"},
		{"append", five, "X", -1, -1, "l1\nl2\nl3\nl4\nl5\nX\n", "@@ -5,0 +6 @@\n+X"},
		{"behind a line without end", "a\nb", "X", 2, 3, "a\nbX\n", "@@ -2 +2,2 @@\n-b\n+bX\n+"}, // as the reference
		{"into an empty file", "", "X", 0, -1, "X\n", "@@ -0,0 +1 @@\n+X"},
		{"the same", "a\n", "a", 0, -1, "a\n", ""},
		{"crlf", "a\r\nb\r\n", "X", 0, 1, "X\r\nb\r\n", "@@ -1 +1 @@\n-a\n+X"},
		{"crlf over", "a\r\nb\r\n", "X\nY", 0, -1, "X\r\nY\r\n", "@@ -1,2 +1,2 @@\n-a\n-b\n+X\n+Y"},
		{"crlf with crlf", "a\r\nb\r\n", "X\r\nY", 0, -1, "X\r\nY\r\n", "@@ -1,2 +1,2 @@\n-a\n-b\n+X\n+Y"},
		{"mixed ends", "a\r\nb\nc\rd\r\n", "B", 1, 2, "a\r\nB\nc\rd\r\n", "@@ -2 +2 @@\n-b\n+B"},
		{"mark", "\ufeffa\nb\n", "X", 0, -1, "\ufeffX\n", "@@ -1,2 +1 @@\n-a\n-b\n+X"},
		{"mark sent again", "\ufeffa\nb\n", "\ufeffX\nb", 0, -1, "\ufeffX\nb\n", "@@ -1 +1 @@\n-a\n+X"},
		{"NUL", "a\x00\nb\n", "X", 1, 2, "a\x00\nX\n", "@@ -2 +2 @@\n-b\n+X"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if test.before != "-" {
				b.write("f", test.before, 0o755)
			}
			r, err := b.Write("f", b.dir, test.content, test.start, test.end)
			if err != nil || r.HistoryErr != nil {
				t.Fatal(err, r.HistoryErr)
			}
			if got := b.content("f"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			diff := test.diff
			if diff != "" {
				diff = "--- " + b.path("f") + "\n+++ " + b.path("f") + "\n" + diff
			}
			r.Before, r.After = "", "" // the test of the whole texts has these
			if want := (edit.Result{Path: b.path("f"), Diff: diff, SHA256: sha(test.want), Existed: test.before != "-"}); r != want {
				t.Errorf("got %+v, want %+v", r, want)
			}
			mode := os.FileMode(0o664)
			if test.before != "-" {
				mode = 0o755
			}
			if got := b.mode("f"); got != mode {
				t.Errorf("got mode %o, want %o", got, mode)
			}
			if test.before == test.want {
				return
			}
			b.undo("f")
			if test.before == "-" {
				if names := b.names(); names != "" {
					t.Errorf("after undo there is %s", names)
				}
			} else if got := b.content("f"); got != test.before {
				t.Errorf("after undo: got %q, want %q", got, test.before)
			}
		})
	}
}

func TestWriteRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.MaxReadSize = 1 << 20 })
	b.write("latin", "caf\xe9\n", 0o644)
	b.write("text", "a\nb\n", 0o644)
	b.write("large", strings.Repeat("x", 1<<20+1), 0o644)
	b.write("d/x", "", 0o644)
	tests := []struct {
		path, content string
		start, end    int
		code          edit.Code
		want          string
	}{
		{"d", "x", 0, -1, edit.CodeIsDirectory, "Path is a directory: D/d. You can only write to files"},
		{"latin", "x", 0, -1, edit.CodeUnsupported, "File could not be decoded as utf-8: D/latin"},
		{"large", "x", 0, -1, edit.CodeTooLarge, "File is too large (1.0MB): D/large. Maximum allowed size is 1MB."},
		{"text", "x\xff", 0, -1, edit.CodeInvalidArgument, "Parameter `content` is not valid UTF-8."},
		{"text/x", "x", 0, -1, edit.CodeNotDirectory, "Ran into [Errno 20] Not a directory: 'D/text/x' while trying to write to D/text/x"},
		{"a\x00b", "x", 0, -1, edit.CodeInvalidArgument, "Ran into embedded null byte while trying to write to D/a\x00b"},
		{"text", "x", 2, 1, edit.CodeInvalidRange, "Invalid range for writing to D/text: start=2, end=1. Lines are counted from 0, start <= end, end is not included and -1 means to the end; start -1 appends."},
		{"text", "x", -1, 1, edit.CodeInvalidRange, "Invalid range for writing to D/text: start=-1, end=1. Lines are counted from 0, start <= end, end is not included and -1 means to the end; start -1 appends."},
		{"text", "x", -2, -1, edit.CodeInvalidRange, "Invalid range for writing to D/text: start=-2, end=-1. Lines are counted from 0, start <= end, end is not included and -1 means to the end; start -1 appends."},
		{"text", "x", 0, -2, edit.CodeInvalidRange, "Invalid range for writing to D/text: start=0, end=-2. Lines are counted from 0, start <= end, end is not included and -1 means to the end; start -1 appends."},
	}
	for _, test := range tests {
		_, err := b.Write(test.path, b.dir, test.content, test.start, test.end)
		wantCode(t, err, test.code)
		if got := strings.ReplaceAll(err.Error(), b.dir, "D"); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	if got := b.content("text") + b.content("latin"); got != "a\nb\ncaf\xe9\n" {
		t.Errorf("the files changed: %q", got)
	}
}

// TestWriteWhole compares a write over a whole file with one over all of its lines, which splices.
func TestWriteWhole(t *testing.T) {
	t.Parallel()
	const limit = 64
	olds := []string{"", "a\nb\n", "a\r\nb\n", "a\rb", "\ufeffa\nb\n", "same\n", strings.Repeat("x", limit/2)}
	news := []string{"", "a\nb", "a\r\nb\rc", "\ufeffa\nc", "same", strings.Repeat("y", limit/2-1), strings.Repeat("y", limit/2), strings.Repeat("y", limit)}
	b := newBench(t, func(c *edit.Config) { c.MaxReadSize = limit })
	for _, old := range olds {
		for _, content := range news {
			path := b.write("f", old, 0o644)
			r, err := b.Write("f", b.dir, content, 0, -1)
			got := b.content("f")
			b.write("f", old, 0o644)
			want, wantErr := b.Write("f", b.dir, content, 0, 1000)
			if r != want || fmt.Sprint(err) != fmt.Sprint(wantErr) || got != b.content("f") {
				t.Errorf("%q over %q of %s: got %+v, %v, %q, want %+v, %v, %q", content, old, path, r, err, got, want, wantErr, b.content("f"))
			}
		}
	}
}
