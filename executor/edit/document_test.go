package edit_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// pdf is a document of one page with these lines.
func pdf(lines ...string) string {
	content := "BT /F 10 Tf 50 700 Td"
	for _, line := range lines {
		content += " (" + line + ") Tj 0 -12 Td"
	}
	content += " ET"
	out, xref := "%PDF-1.7\n", "xref\n0 5\n0000000000 65535 f \n"
	for i, object := range []string{
		"<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
		"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>>>>>>>",
		fmt.Sprintf("<</Length %d>>\nstream\n%s\nendstream", len(content), content),
	} {
		xref += fmt.Sprintf("%010d 00000 n \n", len(out))
		out += fmt.Sprintf("%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	return out + xref + fmt.Sprintf("trailer\n<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", len(out))
}

func TestViewDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	short, long := pdf("one", "two"), pdf(strings.Repeat("a", 3990), strings.Repeat("b", 3990), strings.Repeat("c", 3990), strings.Repeat("d", 3990), strings.Repeat("e", 99))
	b.write("s.pdf", short, 0o644)
	b.write("l.PDF", long, 0o644)
	b.write("t.csv", "a,b\n1,2\n", 0o644)
	b.write("t.txt", "text\n", 0o644)
	b.write("i.png", "\x89PNG\x00", 0o644)
	b.giveAway()
	const page = "<!-- Page number: 1 -->\n"
	shows := func(name string) string {
		return "Here's the content of the file " + b.path(name) + " displayed in Markdown format:\n"
	}
	for _, test := range []struct {
		name, file string
		command    edit.Command
		want       string
	}{
		{"whole", "s.pdf", edit.Command{}, shows("s.pdf") + page + "one\ntwo\n"},
		{"in the dialect actiond", "s.pdf", edit.Command{Dialect: edit.Actiond}, shows("s.pdf") + page + "one\ntwo\n"},
		{"in the dialect anthropic", "s.pdf", edit.Command{Dialect: edit.Anthropic}, shows("s.pdf") + page + "one\ntwo\n"},
		{"range", "s.pdf", edit.Command{ViewRange: []int{3, 9}}, shows("s.pdf") + "two\n"},
		{"range inside", "s.pdf", edit.Command{ViewRange: []int{2, 2}}, shows("s.pdf") + "one\n"},
		{
			"clipped", "l.PDF",
			edit.Command{},
			shows("l.PDF") + page + strings.Repeat("a", 3990) + "\n" + strings.Repeat("b", 3990) + "\n" + strings.Repeat("c", 3990) + "\n" + strings.Repeat("d", 3990) +
				"<response clipped><NOTE>Due to the max output limit, only part of this file has been shown to you. Please use Python libraries to view " +
				"the entire file or search for specific content within the file.</NOTE>\nNOTE: These are the lines 1 to 5 of the Markdown. View [6, -1] to go on.\n",
		},
		{"the rest", "l.PDF", edit.Command{ViewRange: []int{6, -1}}, shows("l.PDF") + strings.Repeat("e", 99) + "\n"},
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

// The tool read counts lines of the Markdown, and names its own arguments in the note.
func TestReadPartOfDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("s.pdf", pdf("one", "two", "three"), 0o644)
	shows := "Here's the content of the file " + b.path("s.pdf") + " displayed in Markdown format:\n"
	for _, test := range []struct {
		name        string
		dialect     edit.Dialect
		first, last int
		want        string
	}{
		{"whole", edit.Strands, 1, 2000, shows + "<!-- Page number: 1 -->\none\ntwo\nthree\n"},
		{"part", edit.Strands, 2, 3, shows + "one\ntwo\n[These are the lines 2 to 3 of the Markdown. Use offset 4 to go on.]"},
		{"the rest", edit.Strands, 4, 2003, shows + "three\n"},
		{"behind the end", edit.Strands, 9, 9, "[The Markdown of the file has 4 lines: line 9 is behind its end.]"},
		{"by range", edit.Toolset, 2, 3, shows + "one\ntwo\n"},
		{"to the end", edit.Toolset, 4, -1, shows + "three\n"},
		{"without a range", edit.Toolset, 1, 0, shows + "<!-- Page number: 1 -->\none\ntwo\nthree\n"},
	} {
		r, err := b.ReadPart(test.dialect, b.path("s.pdf"), "/", test.first, test.last)
		if err != nil || r.Text != test.want {
			t.Errorf("%s: got %q, %v, want %q", test.name, r.Text, err, test.want)
		}
	}
}

func TestViewDocumentRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	b.write("s.pdf", pdf("one"), 0o644)
	b.write("bad.pdf", "text", 0o644)
	b.write("s.DOCX", "PK\x03\x04\x00", 0o644)
	b.write("tool", "\x7fELF\x00\x01", 0o644)
	b.write("blob", "\x00\x01", 0o644)
	b.giveAway()
	b.write("private.pdf", pdf("secret"), 0)
	if err := syscall.Mkfifo(b.path("fifo.pdf"), 0o644); err != nil {
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
		{"s.pdf", edit.Command{ViewRange: []int{3, 4}}, edit.CodeInvalidRange, "Its first element `3` should be within the range of lines of the Markdown: [1, 2]."},
		{"s.pdf", edit.Command{ViewRange: []int{0, 3}}, edit.CodeInvalidRange, "at least 1"},
		{"s.pdf", edit.Command{ViewRange: []int{3, 2}}, edit.CodeInvalidRange, "at least the first"},
		{"s.pdf", edit.Command{ViewRange: []int{3}}, edit.CodeInvalidRange, "list of two integers"},
		{"bad.pdf", edit.Command{}, edit.CodeUnsupported, "Error in converting file to Markdown: it is not a PDF file: it has no header. Please use Python code to read " + b.path("bad.pdf")},
		{"s.DOCX", edit.Command{}, edit.CodeUnsupported, "Error in converting file to Markdown: DOCX is not converted, and the library python-docx reads it. Please use Python code to read " + b.path("s.DOCX")},
		{"s.DOCX", edit.Command{Markdown: true}, edit.CodeUnsupported, "DOCX is not converted, and the library python-docx reads it."},
		{"s.DOCX", edit.Command{Dialect: edit.OpenHandsV1}, edit.CodeBinary, "File appears to be binary"},
		{"private.pdf", edit.Command{}, edit.CodePermission, "Permission denied"},
		{"fifo.pdf", edit.Command{}, edit.CodeNotRegular, "named pipe"},
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
