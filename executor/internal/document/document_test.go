package document_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/xuri/excelize/v2"

	"github.com/actiond/actiond/executor/internal/document"
)

// office returns an archive of parts.
func office(parts map[string]string) string {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write([]byte(parts[name]))
		}
		if err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.String()
}

func docx(body string) string {
	return office(map[string]string{
		"word/document.xml":            `<w:document xmlns:w="w" xmlns:r="r" xmlns:wp="wp"><w:body>` + body + `</w:body></w:document>`,
		"word/_rels/document.xml.rels": `<Relationships><Relationship Id="rId1" Type="x/hyperlink" Target="https://example.com/a" TargetMode="External"/></Relationships>`,
	})
}

func paragraph(style, text string) string {
	return `<w:p><w:pPr><w:pStyle w:val="` + style + `"/></w:pPr><w:r><w:t>` + text + `</w:t></w:r></w:p>`
}

var word = docx(paragraph("Heading2", "Two &amp; <![CDATA[more]]>") +
	`<w:p><w:r><w:t xml:space="preserve">plain </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve">bold </w:t></w:r>` +
	`<w:r><w:rPr><w:b/><w:i/></w:rPr><w:t>both</w:t></w:r><w:r><w:rPr><w:b w:val="0"/></w:rPr><w:t>, </w:t></w:r>` +
	`<w:hyperlink r:id="rId1"><w:r><w:t>a link</w:t></w:r></w:hyperlink><w:r><w:delText>deleted</w:delText><w:br/><w:t>next</w:t></w:r></w:p>` +
	`<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/></w:numPr></w:pPr><w:r><w:t>one</w:t></w:r></w:p>` +
	`<w:p><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr><w:r><w:t>two</w:t></w:r></w:p>` +
	`<w:tbl><w:tr><w:tc>` + paragraph("", "a|b") + paragraph("", "c") + `</w:tc><w:tc><w:tbl><w:tr><w:tc>` + paragraph("", "inner") +
	`</w:tc></w:tr></w:tbl></w:tc></w:tr><w:tr><w:tc>` + paragraph("", "1") + `</w:tc><w:tc/></w:tr></w:tbl>` +
	`<w:p><w:r><w:drawing><wp:docPr name="Picture 1" descr="A cat"/></w:drawing></w:r></w:p>`)

const wordText = `## Two & more

plain **bold** **_both_**, [a link](https://example.com/a)
next

- one
  - two

| a\|b c | inner |
| --- | --- |
| 1 |  |

![A cat](Picture1.jpg)`

var slides = office(map[string]string{
	"ppt/presentation.xml":            `<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst><p:sldId id="257" r:id="b"/><p:sldId id="256" r:id="a"/></p:sldIdLst></p:presentation>`,
	"ppt/_rels/presentation.xml.rels": `<Relationships><Relationship Id="a" Type="x/slide" Target="slides/slide1.xml"/><Relationship Id="b" Type="x/slide" Target="/ppt/slides/slide2.xml"/></Relationships>`,
	"ppt/slides/slide1.xml": `<p:sld xmlns:p="p" xmlns:a="a"><p:sp><p:nvPr><p:ph type="title"/></p:nvPr><a:p><a:r><a:t>Title</a:t></a:r></a:p></p:sp>` +
		`<p:sp><p:nvPr/><a:p><a:t>one</a:t></a:p><a:p><a:t>two</a:t></a:p></p:sp><p:sp><p:nvPr><p:ph type="sldNum"/></p:nvPr><a:p><a:t>9</a:t></a:p></p:sp></p:sld>`,
	"ppt/slides/slide2.xml": `<p:sld xmlns:p="p" xmlns:a="a"><p:pic><p:cNvPr name="Picture 3" descr="A graph"/></p:pic>` +
		`<p:graphicFrame><a:tbl><a:tr><a:tc><a:p><a:t>x</a:t></a:p></a:tc><a:tc><a:p><a:t>y</a:t></a:p></a:tc></a:tr><a:tr><a:tc><a:p><a:t>1</a:t></a:p></a:tc></a:tr></a:tbl></p:graphicFrame></p:sld>`,
	"ppt/slides/_rels/slide2.xml.rels": `<Relationships><Relationship Id="n" Type="x/notesSlide" Target="../notesSlides/n.xml"/></Relationships>`,
	"ppt/notesSlides/n.xml":            `<p:notes xmlns:p="p" xmlns:a="a"><p:sp><p:ph type="sldImg"/><a:p><a:t>no</a:t></a:p></p:sp><p:sp><p:ph type="body"/><a:p><a:t>Say this.</a:t></a:p></p:sp></p:notes>`,
})

const slidesText = `<!-- Slide number: 1 -->

![A graph](Picture3.jpg)

| x | y |
| --- | --- |
| 1 |

### Notes:
Say this.

<!-- Slide number: 2 -->

# Title

one
two`

func sheets(tb testing.TB) string {
	tb.Helper()
	f := excelize.NewFile()
	date, err := f.NewStyle(&excelize.Style{NumFmt: 14})
	if err != nil {
		tb.Fatal(err)
	}
	for cell, value := range map[string]any{"A1": "name", "B1": "when", "A3": "a|b\nc", "B3": 45000, "D3": true} {
		if err := f.SetCellValue("Sheet1", cell, value); err != nil {
			tb.Fatal(err)
		}
	}
	if err := f.SetCellStyle("Sheet1", "B3", "B3", date); err != nil {
		tb.Fatal(err)
	}
	if _, err := f.NewSheet("Empty one"); err != nil {
		tb.Fatal(err)
	}
	out, err := f.WriteToBuffer()
	if err != nil {
		tb.Fatal(err)
	}
	return out.String()
}

const sheetsText = "## Sheet1\n\n| name | when |\n| --- | --- |\n| a\\|b c | 2023-03-15 |  | TRUE |\n\n## Empty one"

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
		{"DOCX", ".docx", word, wordText},
		{"PPTX", ".pptx", slides, slidesText},
		{"XLSX", ".xlsx", sheets(t), sheetsText},
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

func TestDamaged(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, kind, data, want string }{
		{"no archive", ".docx", "text", "it is not a zip archive, as documents of Office are: zip: not a valid zip file"},
		{"another archive", ".docx", office(map[string]string{"a": "b"}), "its part word/document.xml is missing"},
		{"open elements", ".docx", docx("<w:p>"), "its part word/document.xml: XML syntax error on line 1: element <p> closed by </body>"},
		{"an entity", ".docx", docx("&lol;"), "its part word/document.xml: XML syntax error on line 1: invalid character entity &lol;"},
		{"a bomb", ".docx", docx(strings.Repeat(" ", 65<<20)), "its part word/document.xml is too large: parts have at most 64 MiB, and 256 MiB together"},
		{"a missing slide", ".pptx", office(map[string]string{"ppt/presentation.xml": `<p xmlns:r="r"><sldId r:id="x"/></p>`}), "its part  is missing"},
		{"no PDF", ".pdf", "text", "it is not a PDF file: it has no header"},
		{"half a PDF", ".pdf", paper[:200], "it is not a whole PDF file: it has no end"},
		{"no sheet", ".xlsx", "text", "it is not a zip archive, as documents of Office are: zip: not a valid zip file"},
		{"half a sheet", ".xlsx", workbook("0", "<row>", "", ""), "its part xl/s.xml: XML syntax error on line 1: element <row> closed by </sheetData>"},
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
	page, err = convert(".docx", docx(paragraph("", strings.Repeat("é", 9000))), 2, 2, 1<<20)
	if err != nil || utf8.RuneCountInString(page.Text) != 4000 || page.Next != 3 {
		t.Errorf("the second line of a long paragraph has %d characters, next %d, %v", utf8.RuneCountInString(page.Text), page.Next, err)
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
	kinds := []string{".docx", ".pptx", ".csv", ".tsv", ".ipynb"}
	for i, data := range []string{word, slides, "a;b\n\"x;y\";\"1\n2\"\n", "a\tb", notebook} {
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

// The parts of an archive, which a fuzzer does not find through the compression, and the contents of a page.
func FuzzParts(f *testing.F) {
	f.Add(`<w:p><w:r><w:t>x</w:t></w:r></w:p><w:tbl><w:tr><w:tc/></w:tr></w:tbl>`, `<a:tbl><a:tr><a:tc/></a:tr></a:tbl><p:sp/><p:pic/>`, "BT /F 10 Tf 50 700 Td [(a)40(b)] TJ T* (c) ' ET")
	f.Fuzz(func(t *testing.T, document, slide, page string) {
		if len(document)+len(slide)+len(page) > 1<<16 {
			t.Skip()
		}
		checkConvert(t, ".docx", docx(document), 1, -1)
		checkConvert(t, ".pdf", pdf(page), 1, -1)
		checkConvert(t, ".pptx", office(map[string]string{
			"ppt/presentation.xml":            `<p xmlns:r="r"><sldId r:id="a"/></p>`,
			"ppt/_rels/presentation.xml.rels": `<Relationships><Relationship Id="a" Target="s.xml"/></Relationships>`,
			"ppt/s.xml":                       `<p:sld xmlns:p="p" xmlns:a="a">` + slide + `</p:sld>`,
		}), 1, -1)
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
