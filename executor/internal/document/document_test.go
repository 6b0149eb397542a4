package document_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/actiond/actiond/executor/internal/document"
)

// pdf returns a document of pages with these contents.
func pdf(contents ...string) string {
	kids, objects := "", []string{"<</Type/Catalog/Pages 2 0 R>>", ""}
	for _, content := range contents {
		kids += fmt.Sprintf("%d 0 R ", len(objects)+1)
		objects = append(objects,
			fmt.Sprintf("<</Type/Page/Parent 2 0 R/Contents %d 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>>>>>>>", len(objects)+2),
			fmt.Sprintf("<</Length %d>>\nstream\n%s\nendstream", len(content), content))
	}
	objects[1] = fmt.Sprintf("<</Type/Pages/Kids[%s]/Count %d>>", kids, len(contents))
	out, at := "%PDF-2.0\n", []int(nil)
	for i, object := range objects {
		at = append(at, len(out))
		out += fmt.Sprintf("%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	start := len(out)
	out += fmt.Sprintf("xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, offset := range at {
		out += fmt.Sprintf("%010d 00000 n \n", offset)
	}
	return out + fmt.Sprintf("trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\ntrailing bytes", len(objects)+1, start)
}

var paper = pdf("BT /F 10 Tf 50 700 Td [(W)40(ords)-400(apart)] TJ 0 -12 Td (and a second l\\351ne) Tj ET", "", "BT /F 10 Tf (before damage) Tj ET BT Tf Tj /F 0 Tf (x) Tj")

const paperText = "<!-- Page number: 1 -->\nWords apart\nand a second léne\n\n<!-- Page number: 2 -->\n\n<!-- Page number: 3 -->\nbefore damage x"

const notebook = `{"cells":[{"cell_type":"markdown","source":["# Title\n","text"]},
{"cell_type":"code","source":"print(1)\n'` + "```" + `'","outputs":[{"output_type":"stream","text":["1\n"]},{"data":{"text/plain":"<Figure>","image/png":"aGk="}},{"ename":"E","evalue":"bad","traceback":[]}]}],
"metadata":{"language_info":{"name":"python"}},"nbformat":4}`

const notebookText = "# Title\ntext\n\n<!-- Cell 2 -->\n````python\nprint(1)\n'```'\n````\n\nOutput:\n```\n1\n```\n\nOutput:\n```\n<Figure>\n[image/png]\n```\n\nOutput:\n```\nE: bad\n```"

func convert(kind, data string, first, last, most int) (document.Page, error) {
	return document.Convert(strings.NewReader(data), int64(len(data)), document.Request{Kind: kind, First: first, Last: last, Most: most})
}

func TestConvert(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, kind, data, want string }{
		{"PDF with bytes around it", ".pdf", "bytes before\n" + paper, paperText},
		{"PDF 2.0", ".pdf", paper, paperText},
		{"PDF without text", ".pdf", pdf("", "0 0 1 1 re f"), "<!-- Page number: 1 -->\n\n<!-- Page number: 2 -->\n\n[This PDF of 2 pages has no text. Its pages may be pictures, as those of scanned paper are.]"},
		{"CSV", ".csv", "\ufeffa;b\n\"x;y\";\"1\n2\"\nz\n", "| a | b |\n| --- | --- |\n| x;y | 1 2 |\n| z |"},
		{"TSV", ".tsv", "a,b\tc\n", "| a,b | c |\n| --- | --- |"},
		{"CSV with stray quotes and bytes", ".csv", "a,\"b\"c\nd\xff\x1b,e\n", "| a | b\"c d,e |\n| --- | --- |"},
		{"notebook", ".ipynb", notebook, notebookText},
	} {
		page, err := convert(test.kind, test.data, 1, -1, 1<<20)
		if want := (document.Page{Text: test.want, Lines: strings.Count(test.want, "\n") + 1}); err != nil || page != want {
			t.Errorf("%s: got %+v and %v, want %+v", test.name, page, err, want)
		}
	}
}

func TestRange(t *testing.T) {
	t.Parallel()
	const data = "a\nb\nc\nd\n" // lines: | a |, | --- |, | b |, | c |, | d |
	for _, test := range []struct {
		first, last, most int
		want              document.Page
	}{
		{1, -1, 100, document.Page{Text: "| a |\n| --- |\n| b |\n| c |\n| d |", Lines: 5}},
		{3, 4, 100, document.Page{Text: "| b |\n| c |", Next: 5}},
		{4, 5, 100, document.Page{Text: "| c |\n| d |", Lines: 5}},
		{3, -1, 13, document.Page{Text: "| b |\n| c |", Next: 5}},
		{6, 9, 100, document.Page{Lines: 5}},
	} {
		if got, err := convert(".csv", data, test.first, test.last, test.most); err != nil || got != test.want {
			t.Errorf("lines %d to %d: got %+v and %v, want %+v", test.first, test.last, got, err, test.want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, kind, data, want string }{
		{"DOCX", ".docx", "PK", "DOCX is not converted, and the library python-docx reads it"},
		{"XLSX", ".xlsx", "PK", "XLSX is not converted, and the library openpyxl reads it"},
		{"PPTX", ".pptx", "PK", "PPTX is not converted, and the library python-pptx reads it"},
		{"no PDF", ".pdf", "text", "it is not a PDF file: it has no header"},
		{"half a PDF", ".pdf", paper[:200], "it is not a whole PDF file: it has no end"},
		{"no notebook", ".ipynb", "[]", "it is not a notebook: json: cannot unmarshal array into Go value of type document.notebook"},
		{"an old notebook", ".ipynb", `{"worksheets":[]}`, "it is not a notebook of format 4: it has no cells"},
		{"another kind", ".odt", "", "documents of this kind are not converted"},
	} {
		if page, err := convert(test.kind, test.data, 1, -1, 1000); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %+v and %v, want %s", test.name, page, err, test.want)
		}
	}
}

func TestWide(t *testing.T) {
	t.Parallel()
	page, err := convert(".csv", strings.Repeat("é,", 300)+"\n"+strings.Repeat("é", 5000), 1, -1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(page.Text, "\n")
	if n := strings.Count(lines[0], "|"); n != 258 || !strings.HasSuffix(lines[0], "| … |") {
		t.Errorf("300 columns are %d", n-1)
	}
	if n := utf8.RuneCountInString(lines[2]); n != 1005 {
		t.Errorf("a cell of 5000 characters has %d", n)
	}
	page, err = convert(".ipynb", `{"cells":[{"cell_type":"markdown","source":"`+strings.Repeat("é", 9000)+`"}]}`, 2, 2, 1<<20)
	if err != nil || utf8.RuneCountInString(page.Text) != 4000 || page.Next != 3 {
		t.Errorf("the second line of a long text has %d characters, next %d, %v", utf8.RuneCountInString(page.Text), page.Next, err)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]string{
		"\x7fELF\x02": "a program or library (ELF)", "": "", "hello": "", "RIFF1234WEBP": "an image (WebP)",
		strings.Repeat("\x00", 257) + "ustar": "an archive (tar)",
	} {
		if got := document.Describe([]byte(head)); got != want {
			t.Errorf("%q is %q, want %q", head, got, want)
		}
	}
}

// The output of our own readers is text within its limits, whatever the document is. The library that reads PDF has no
// limits, and is bounded by the worker.
func FuzzConvert(f *testing.F) {
	kinds := []string{".csv", ".tsv", ".ipynb"}
	for i, data := range []string{"a;b\n\"x;y\";\"1\n2\"\n", "a\tb", notebook} {
		f.Add(byte(i), []byte(data), 1, -1)
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte, first, last int) {
		name := kinds[int(kind)%len(kinds)]
		if len(data) > 1<<16 || first < 1 || last < -1 {
			t.Skip()
		}
		checkConvert(t, name, string(data), first, last)
	})
}

// The contents of a page, which a fuzzer does not find through the tables of a PDF.
func FuzzPage(f *testing.F) {
	f.Add("BT /F 10 Tf 50 700 Td [(a)40(b)] TJ T* (c) ' ET")
	f.Fuzz(func(t *testing.T, page string) {
		if len(page) > 1<<16 {
			t.Skip()
		}
		checkConvert(t, ".pdf", pdf(page), 1, -1)
	})
}

func checkConvert(t *testing.T, kind, data string, first, last int) {
	t.Helper()
	const most = 5000
	page, err := convert(kind, data, first, last, most)
	if err != nil {
		return
	}
	if !utf8.ValidString(page.Text) || utf8.RuneCountInString(page.Text) > most || strings.ContainsAny(page.Text, "\r\x00\x1b") {
		t.Errorf("%s: got %q", kind, page.Text)
	}
	if (page.Next > 0) == (page.Lines > 0) && page.Text != "" {
		t.Errorf("%s: the next line is %d of %d", kind, page.Next, page.Lines)
	}
	if n := strings.Count(page.Text, "\n") + 1; page.Next > 0 && page.Text != "" && page.Next != first+n {
		t.Errorf("%s: the line after %d lines from %d is %d", kind, n, first, page.Next)
	}
}
