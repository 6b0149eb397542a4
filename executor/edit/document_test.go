package edit_test

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// docx is a document with these paragraphs.
func docx(t *testing.T, paragraphs ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	f, err := w.Create("word/document.xml")
	if err != nil {
		t.Fatal(err)
	}
	text := `<w:document xmlns:w="w">`
	for _, p := range paragraphs {
		text += "<w:p><w:r><w:t>" + p + "</w:t></w:r></w:p>"
	}
	if _, err := f.Write([]byte(text + "</w:document>")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestViewDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	short, long := docx(t, "one", "two"), docx(t, strings.Repeat("a", 3990), strings.Repeat("b", 3990), strings.Repeat("c", 3990), strings.Repeat("d", 3990), strings.Repeat("e", 99))
	b.write("s.docx", short, 0o644)
	b.write("l.DOCX", long, 0o644)
	b.write("t.csv", "a,b\n1,2\n", 0o644)
	b.write("t.txt", "text\n", 0o644)
	b.write("i.png", "\x89PNG\x00", 0o644)
	b.giveAway()
	shows := func(name string) string {
		return "Here's the content of the file " + b.path(name) + " displayed in Markdown format:\n"
	}
	for _, test := range []struct {
		name, file string
		command    edit.Command
		want       string
	}{
		{"whole", "s.docx", edit.Command{}, shows("s.docx") + "one\n\ntwo\n"},
		{"in the dialect anthropic", "s.docx", edit.Command{Dialect: edit.Anthropic}, shows("s.docx") + "one\n\ntwo\n"},
		{"range", "s.docx", edit.Command{ViewRange: []int{3, 9}}, shows("s.docx") + "two\n"},
		{"range inside", "s.docx", edit.Command{ViewRange: []int{1, 1}}, shows("s.docx") + "one\n"},
		{
			"clipped", "l.DOCX",
			edit.Command{},
			shows("l.DOCX") + strings.Repeat("a", 3990) + "\n\n" + strings.Repeat("b", 3990) + "\n\n" + strings.Repeat("c", 3990) + "\n\n" + strings.Repeat("d", 3990) + "\n" +
				"<response clipped><NOTE>Due to the max output limit, only part of this file has been shown to you. Please use Python libraries to view " +
				"the entire file or search for specific content within the file.</NOTE>\nNOTE: These are the lines 1 to 8 of the Markdown. View [9, -1] to go on.\n",
		},
		{"the rest", "l.DOCX", edit.Command{ViewRange: []int{9, -1}}, shows("l.DOCX") + strings.Repeat("e", 99) + "\n"},
		{"a table", "t.csv", edit.Command{Markdown: true}, shows("t.csv") + "| a | b |\n| --- | --- |\n| 1 | 2 |\n"},
		{"a table to edit", "t.csv", edit.Command{}, catN + b.path("t.csv") + ":\n     1\ta,b\n     2\t1,2\n     3\t\n"},
		{"text", "t.txt", edit.Command{Markdown: true}, catN + b.path("t.txt") + ":\n     1\ttext\n     2\t\n"},
		{"an image", "i.png", edit.Command{Markdown: true}, "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("\x89PNG\x00"))},
	} {
		c := test.command
		c.Name, c.Path = "view", b.path(test.file)
		r, err := b.Do(c)
		if want := (edit.Result{Path: c.Path, Existed: true, Text: test.want, SHA256: sha(b.content(test.file))}); err != nil || r != want {
			t.Errorf("%s: got %+v and %v, want %+v", test.name, r, err, want)
		}
	}
}

func TestViewDocumentRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	b.write("s.docx", docx(t, "one"), 0o644)
	b.write("bad.pdf", "text", 0o644)
	b.write("tool", "\x7fELF\x00\x01", 0o644)
	b.write("blob", "\x00\x01", 0o644)
	b.giveAway()
	b.write("private.docx", docx(t, "secret"), 0)
	if err := syscall.Mkfifo(b.path("fifo.docx"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(b.write("huge.csv", "", 0o644), 65<<20); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		file    string
		command edit.Command
		code    edit.Code
		message string
	}{
		{"s.docx", edit.Command{ViewRange: []int{2, 3}}, edit.CodeInvalidRange, "Its first element `2` should be within the range of lines of the Markdown: [1, 1]."},
		{"s.docx", edit.Command{ViewRange: []int{0, 3}}, edit.CodeInvalidRange, "at least 1"},
		{"s.docx", edit.Command{ViewRange: []int{3, 2}}, edit.CodeInvalidRange, "at least the first"},
		{"s.docx", edit.Command{ViewRange: []int{3}}, edit.CodeInvalidRange, "list of two integers"},
		{"s.docx", edit.Command{Dialect: edit.OpenHandsV1}, edit.CodeBinary, "File appears to be binary"},
		{"bad.pdf", edit.Command{}, edit.CodeUnsupported, "Error in converting file to Markdown: it is not a PDF file: it has no header. Please use Python code to read " + b.path("bad.pdf")},
		{"private.docx", edit.Command{}, edit.CodePermission, "Permission denied"},
		{"fifo.docx", edit.Command{}, edit.CodeNotRegular, "named pipe"},
		{"huge.csv", edit.Command{Markdown: true}, edit.CodeTooLarge, "(65.0MB)"},
		{"tool", edit.Command{Markdown: true}, edit.CodeBinary, "is not text but a program or library (ELF), with 6 bytes."},
		{"blob", edit.Command{Markdown: true}, edit.CodeBinary, "is not text but of a kind that is not known, with 2 bytes."},
	} {
		c := test.command
		c.Name, c.Path = "view", b.path(test.file)
		_, err := b.Do(c)
		wantCode(t, err, test.code)
		if !strings.Contains(err.Error(), test.message) {
			t.Errorf("%s: got %q, want it to contain %q", test.file, err, test.message)
		}
	}
}
