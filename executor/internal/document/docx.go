package document

import (
	"encoding/xml"
	"io"
	"strconv"
	"strings"
)

// docx is the state of reading a document's text.
type docx struct {
	o     *output
	links map[string]relation

	text  strings.Builder // of the paragraph
	style string          // its heading and the like
	item  int             // level of the list that it is in, from 1; 0 for none
	link  string          // address that the text leads to
	run   struct{ bold, italic, inText bool }
	marks string // emphasis that is open in text

	tables int      // depth
	cells  []string // of the row of the outermost table
	cell   strings.Builder
	table  table
}

func readDOCX(in io.ReaderAt, size int64, o *output) error {
	a, err := openArchive(in, size)
	if err != nil {
		return err
	}
	const body = "word/document.xml"
	d := &docx{o: o}
	if d.links, err = a.relations(body); err != nil {
		return err
	}
	return a.walk(body, handler{start: d.start, end: d.end, text: d.chars})
}

func (d *docx) start(e xml.StartElement) error {
	value := attr(e, "val")
	on := value != "0" && value != "false" && value != "none"
	switch e.Name.Local {
	case "p":
		d.style, d.item = "", 0
	case "pStyle":
		d.style = value
	case "numPr":
		d.item = max(d.item, 1)
	case "ilvl":
		if n, err := strconv.Atoi(value); err == nil && n >= 0 && n < 9 {
			d.item = n + 1
		}
	case "r":
		d.run.bold, d.run.italic = false, false
	case "b":
		d.run.bold = on
	case "i":
		d.run.italic = on
	case "t":
		d.run.inText = true
	case "tab":
		d.text.WriteByte('\t')
	case "br", "cr":
		d.text.WriteByte('\n')
	case "hyperlink":
		if d.link = d.links[attr(e, "id")].target; d.link != "" {
			d.emphasize("")
			d.text.WriteByte('[')
		}
	case "docPr":
		d.text.WriteString("![" + attr(e, "descr") + "](" + fileName(attr(e, "name")) + ")")
	case "tbl":
		if d.tables++; d.tables == 1 {
			d.table = table{o: d.o}
		}
	}
	return nil
}

func (d *docx) chars(s string) error {
	if !d.run.inText {
		return nil
	}
	if strings.TrimSpace(s) != "" {
		marks := ""
		if d.run.bold && d.heading() == "" {
			marks += "**"
		}
		if d.run.italic {
			marks += "_"
		}
		d.emphasize(marks)
	}
	d.text.WriteString(s)
	return nil
}

// emphasize ends the emphasis that is open and begins another one.
func (d *docx) emphasize(marks string) {
	if marks == d.marks {
		return
	}
	if d.marks != "" {
		text := d.text.String()
		inner := strings.TrimRight(text, " ") // a mark after a blank ends nothing
		d.text.Reset()
		d.text.WriteString(inner)
		if strings.HasPrefix(d.marks, "**_") {
			d.text.WriteString("_**")
		} else {
			d.text.WriteString(d.marks)
		}
		d.text.WriteString(text[len(inner):])
	}
	d.text.WriteString(marks)
	d.marks = marks
}

func (d *docx) end(name string) error {
	switch name {
	case "t":
		d.run.inText = false
	case "hyperlink":
		if d.link != "" {
			d.emphasize("")
			d.text.WriteString("](" + d.link + ")")
			d.link = ""
		}
	case "p":
		return d.paragraph()
	case "tc":
		if d.tables == 1 {
			d.cells = append(d.cells, d.cell.String())
			d.cell.Reset()
		}
	case "tr":
		if d.tables == 1 {
			cells := d.cells
			d.cells = nil
			return d.table.row(cells)
		}
	case "tbl":
		if d.tables = max(0, d.tables-1); d.tables == 0 {
			return d.o.add("\n")
		}
	}
	return nil
}

// heading returns the marks of a heading, "" for other paragraphs.
func (d *docx) heading() string {
	style := strings.ToLower(d.style)
	if style == "title" {
		return "# "
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(style, "heading")); err == nil && strings.HasPrefix(style, "heading") && n > 0 {
		return strings.Repeat("#", min(n, 6)) + " "
	}
	return ""
}

func (d *docx) paragraph() error {
	d.emphasize("")
	text := d.text.String()
	d.text.Reset()
	if d.tables > 0 {
		d.cell.WriteString(text + " ")
		return nil
	}
	text = strings.TrimSpace(text)
	switch heading := d.heading(); {
	case text == "":
		return d.o.add("")
	case heading != "":
		return d.o.block(heading + strings.ReplaceAll(text, "\n", " "))
	case d.item > 0:
		return d.o.add(strings.Repeat("  ", d.item-1) + "- " + strings.ReplaceAll(text, "\n", " "))
	}
	return d.o.block(text)
}

// fileName makes a file's name of a picture's, as the reference does.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 0x7f {
			return r
		}
		return -1
	}, name) + ".jpg"
}
