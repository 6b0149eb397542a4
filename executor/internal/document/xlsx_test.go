package document_test

import (
	"html"
	"strings"
	"testing"
)

// workbook returns a workbook with two sheets of cells, of which the second is a chart.
func workbook(is1904, cells, styles, texts string) string {
	return office(map[string]string{
		"xl/workbook.xml": `<workbook xmlns:r="r"><workbookPr date1904="` + is1904 + `"/><sheets><sheet name="One&#10;sheet" r:id="a"/><sheet name="Chart" r:id="b"/></sheets></workbook>`,
		"xl/_rels/workbook.xml.rels": `<Relationships><Relationship Id="a" Type="x/worksheet" Target="/xl/s.xml"/><Relationship Id="b" Type="x/chartsheet" Target="c.xml"/>` +
			`<Relationship Id="c" Type="x/sharedStrings" Target="t.xml"/><Relationship Id="d" Type="x/styles" Target="styles.xml"/></Relationships>`,
		"xl/s.xml":      `<worksheet><sheetData>` + cells + `</sheetData></worksheet>`,
		"xl/styles.xml": `<styleSheet>` + styles + `</styleSheet>`,
		"xl/t.xml":      `<sst>` + texts + `</sst>`,
	})
}

const cells = `<row r="1"><c t="s"><v>0</v></c><c t="s"><v> 1</v></c><c t="s"><v>9</v></c><c r="E1" t="inlineStr"><is><t>in</t><r><t>line</t></r></is></c></row>` +
	`<row r="3"><c t="b"><v>0</v></c><c t="e"><v>#DIV/0!</v></c><c t="str"><f>A1&amp;"x"</f><v>1.50</v></c><c t="d"><v>2023-03-15</v></c><c s="1"><v>1</v></c><c s="2"><v>0.5</v></c></row>` +
	`<row><c/></row>`

const (
	styles = `<numFmts><numFmt numFmtId="164" formatCode="0.0&quot;m&quot;"/></numFmts><cellStyleXfs><xf numFmtId="9"/></cellStyleXfs><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/></cellXfs>`
	texts  = `<si><t>a_x000D_ _x005F_x</t></si><si><r><t>two </t></r><r><t>parts</t></r><rPh><t>spoken</t></rPh></si>`
)

func TestWorkbook(t *testing.T) {
	t.Parallel()
	const want = "## One sheet\n\n| a _x | two parts | 9 |  | inline |\n| --- | --- | --- | --- | --- |\n" +
		"| FALSE | #DIV/0! | 1.50 | 2023-03-15 | 1904-01-02 | 0.5 |\n\n## Chart\n\nThis sheet has no cells."
	page, err := convert(".xlsx", workbook("1", cells, styles, texts), 1, -1, 1<<20)
	if err != nil || page.Text != want {
		t.Errorf("got %q and %v, want %q", page.Text, err, want)
	}
	page, err = convert(".xlsx", workbook("0", `<row><c r="A1"><v>1</v></c><c r="XFD1"><v>2</v></c></row><row><c r="IV2"><v>3</v></c><c r="IW2"><v>4</v></c></row>`, "", ""), 1, -1, 1<<20)
	lines := strings.Split(page.Text, "\n")
	if err != nil || !strings.HasSuffix(lines[2], " | … |") || !strings.HasPrefix(lines[2], "| 1 |  |") || !strings.HasSuffix(lines[4], "| 3 | … |") {
		t.Errorf("wide rows: got %q and %v", page.Text, err)
	}
}

// Programs put the parts of a workbook at other places, and write their names in other ways.
func TestWorkbookPlaces(t *testing.T) {
	t.Parallel()
	parts := map[string]string{
		"_rels/.rels":            `<Relationships><Relationship Id="1" Type="x/officeDocument" Target="/X/Book.xml"/></Relationships>`,
		"x/book.xml":             `<w xmlns:r="r"><sheet name="A" r:id="a"/><sheet name="B" r:id="b"/></w>`,
		`x\_rels\book.xml.rels`:  `<R><Relationship Id="a" Type="x/worksheet" Target="s.xml"/><Relationship Id="b" Type="x/worksheet" Target="t.xml"/><Relationship Id="c" Type="x/sharedStrings" Target="SharedStrings.xml"/></R>`,
		"x/s.xml":                `<?xml version="1.0" encoding="ISO-8859-1"?><s><row><c t="s"><v>0</v></c><c t="str"><v>` + "\xe4" + `</v></c></row></s>`,
		"x/sharedStrings.xml":    `<sst><si><t>text</t></si></sst>`,
		"docProps/thumbnail.xml": "",
	}
	const want = "## A\n\n| text | ä |\n| --- | --- |\n\n## B\n\nThis sheet is damaged: its part X/t.xml is missing."
	if page, err := convert(".xlsx", office(parts), 1, -1, 1<<20); err != nil || page.Text != want {
		t.Errorf("got %q and %v, want %q", page.Text, err, want)
	}
}

// Numbers are in full, and dates in the form of ISO 8601, whatever format a sheet has for people.
func TestSheetNumbers(t *testing.T) {
	t.Parallel()
	for format, values := range map[string]map[string]string{
		"General":                      {"12.5": "12.5", "0.30000000000000004": "0.3", "1E+20": "1E+20", "12345678901234567": "12345678901234567", "text": "text", "NaN": "NaN"},
		"0%":                           {"0.125": "0.125"},
		`#,##0.0 "day"`:                {"-1234567.891": "-1234567.891", "-1234567890123450": "-1234567890123450"},
		"0.00E+00":                     {"2.25": "2.25"},
		`[Red]0.00\d;[$€-407] 0!d;_s@`: {"2.25": "2.25"},
		`"h`:                           {"2.25": "2.25"},
		"[h":                           {"2.25": "2.25"},
		"mm-dd-yy":                     {"45000": "2023-03-15", "45000.75": "2023-03-15 18:00:00", "61": "1900-03-01", "59": "1900-02-28", "-1": "-1", "2958465": "9999-12-31", "3000000": "3000000"},
		"dddd, mmmm d":                 {"45000": "2023-03-15"},
		"mmm":                          {"45000": "2023-03-15"},
		`[$-411]ggge"年"m"月"d"日"`:       {"45000": "2023-03-15"},
		`[=0]"-";dd/mm/yyyy`:           {"45000": "2023-03-15"},
		"yyyy-mm-dd hh:mm:ss":          {"1234.567": "1903-05-18 13:36:28.8", "45350.9999999999": "2024-02-29 00:00:00"},
		"m/d/yy hh:mm":                 {"45000.0625": "2023-03-15 01:30:00"},
		"[$-409]h:mm AM/PM;@":          {"0.5": "12:00:00", "0": "00:00:00", "2.5": "1900-01-02 12:00:00"},
		`[$-412]AM/PM\ h:mm;@`:         {"0.5": "12:00:00"},
		`mm"min"ss"s"`:                 {"0.5": "12:00:00"},
		"mm:ss.0":                      {"0.123456789": "02:57:46.667"},
		"[h]:mm:ss":                    {"2.25": "54:00:00"},
		"[ss].00":                      {"0.0012345": "0:01:46.661"},
	} {
		for value, want := range values {
			style := `<numFmts><numFmt numFmtId="170" formatCode="` + html.EscapeString(format) + `"/></numFmts><cellXfs><xf numFmtId="170"/></cellXfs>`
			row := `<row><c t="str"><v>x</v></c><c s="0"><v>` + value + `</v></c></row>`
			page, err := convert(".xlsx", workbook("0", row, style, ""), 1, -1, 1<<20)
			if got := strings.Split(page.Text, "\n")[2]; err != nil || got != "| x | "+want+" |" {
				t.Errorf("%s in %s: got %q and %v, want %s", value, format, got, err, want)
			}
		}
	}
}

// The output of the reader is text within its limits, whatever the parts of a workbook are.
func FuzzWorkbook(f *testing.F) {
	f.Add(cells, styles, texts)
	f.Add(`<row><c s="0"><v>-1.5</v></c></row>`, `<numFmts><numFmt numFmtId="1" formatCode="[h]:mm:ss.0 AM/PM;# ?/12;##0.0#E+0,,;@"/></numFmts><cellXfs><xf numFmtId="1"/></cellXfs>`, "")
	f.Fuzz(func(t *testing.T, cells, styles, texts string) {
		if len(cells)+len(styles)+len(texts) > 1<<16 {
			t.Skip()
		}
		checkConvert(t, ".xlsx", workbook("1", cells, styles, texts), 1, -1)
	})
}
