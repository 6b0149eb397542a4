package document

import (
	"bufio"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// xlsx is the state of reading a workbook.
type xlsx struct {
	*archive
	o       *output
	shared  []string // texts that cells name by their index
	layouts []string // of dates, by the index of a cell's style; "" for other numbers
	is1904  bool     // dates count from 1904

	cells []string // of the row
	cell  struct {
		column       int // from 1
		kind, layout string
		value        richText
	}
	table table
}

func readXLSX(in io.ReaderAt, size int64, o *output) error {
	a, err := openArchive(in, size)
	if err != nil {
		return err
	}
	a.most = maxParts // a sheet is one part
	x := &xlsx{archive: a, o: o}
	main, err := x.part("", "officeDocument", "xl/workbook.xml")
	if err != nil {
		return err
	}
	links, err := a.relations(main)
	if err != nil {
		return err
	}
	for kind, read := range map[string]func(part string) error{"sharedStrings": x.readTexts, "styles": x.readStyles} {
		part, err := x.part(main, kind, "")
		if err == nil && a.parts[partName(part)] != nil { // programs for sheets do without it
			err = read(part)
		}
		if err != nil {
			return err
		}
	}
	type sheet struct {
		name string
		relation
	}
	var sheets []sheet
	err = a.walk(main, handler{start: func(e xml.StartElement) error {
		switch e.Name.Local {
		case "workbookPr":
			x.is1904 = isTrue(attr(e, "date1904"))
		case "sheet":
			if len(sheets) < maxPages {
				sheets = append(sheets, sheet{attr(e, "name"), links[relationID(e)]})
			}
		}
		return nil
	}})
	if err != nil {
		return err
	}
	for _, s := range sheets {
		if err := o.block("## " + strings.Join(strings.Fields(s.name), " ")); err != nil {
			return err
		}
		switch x.table = (table{o: o}); {
		case s.kind != "worksheet" && s.target != "": // a chart
			err = o.block("This sheet has no cells.")
		case a.parts[partName(s.target)] == nil:
			err = o.block("This sheet is damaged: its part " + s.target + " is missing.")
		default:
			err = a.walk(s.target, handler{start: x.start, end: x.end, text: x.text})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// part returns the first part of a kind, by their ids, that another one links, or else the usual one.
func (x *xlsx) part(from, kind, usual string) (string, error) {
	links, err := x.relations(from)
	for _, id := range slices.Sorted(maps.Keys(links)) {
		if links[id].kind == kind {
			return links[id].target, err
		}
	}
	return usual, err
}

// readTexts reads the texts that cells share.
func (x *xlsx) readTexts(part string) error {
	var text richText
	return x.walk(part, handler{
		start: func(e xml.StartElement) error { text.start(e.Name.Local); return nil },
		end: func(name string) error {
			text.end(name)
			if name == "si" {
				x.shared = append(x.shared, unescape(text.String()))
				text.Reset()
			}
			return nil
		},
		text: func(s string) error { text.add(s); return nil },
	})
}

// richText collects the parts of a text. Parts without one say how it is pronounced.
type richText struct {
	strings.Builder
	inText, isSpoken bool
}

func (t *richText) start(name string) {
	t.inText = (name == "t" || name == "v") && !t.isSpoken
	t.isSpoken = t.isSpoken || name == "rPh"
}

func (t *richText) end(name string) { t.inText, t.isSpoken = false, t.isSpoken && name != "rPh" }

func (t *richText) add(s string) {
	if t.inText {
		_, _ = t.WriteString(s) // never fails
	}
}

// maxFormat is how long a format is in a sheet at most.
const maxFormat = 255

// readStyles reads the formats of numbers.
func (x *xlsx) readStyles(part string) error {
	own := map[string]string{}
	inCells := false
	return x.walk(part, handler{
		start: func(e xml.StartElement) error {
			switch id := attr(e, "numFmtId"); e.Name.Local {
			case "numFmt":
				if format := attr(e, "formatCode"); len(format) <= maxFormat {
					own[id] = format
				}
			case "cellXfs":
				inCells = true
			case "xf":
				if !inCells {
					break
				}
				format, ok := own[id]
				if n, err := strconv.Atoi(id); err == nil && !ok {
					format = builtInDate(n)
				}
				x.layouts = append(x.layouts, dateLayout(format))
			}
			return nil
		},
		end: func(name string) error {
			inCells = inCells && name != "cellXfs"
			return nil
		},
	})
}

func (x *xlsx) start(e xml.StartElement) error {
	c := &x.cell
	c.value.start(e.Name.Local)
	switch e.Name.Local {
	case "row":
		x.cells, c.column = nil, 0
	case "c":
		c.kind, c.column = attr(e, "t"), c.column+1
		if column := columnOf(attr(e, "r")); column > 0 {
			c.column = column
		}
		c.layout = ""
		if i, err := strconv.Atoi(attr(e, "s")); err == nil && i >= 0 && i < len(x.layouts) {
			c.layout = x.layouts[i]
		}
		c.value.Reset()
	}
	return nil
}

func (x *xlsx) text(s string) error {
	x.cell.value.add(s)
	return nil
}

func (x *xlsx) end(name string) error {
	x.cell.value.end(name)
	switch name {
	case "c":
		n, text := min(max(x.cell.column, 1), maxColumns+1), x.shown() // the table shows that there are more
		if text != "" {
			x.cells = append(x.cells, make([]string, max(0, n-len(x.cells)))...)
			x.cells[n-1] = text
		}
	case "row":
		if slices.ContainsFunc(x.cells, func(text string) bool { return strings.TrimSpace(text) != "" }) {
			return x.table.row(x.cells)
		}
	}
	return nil
}

// shown returns the text of a cell. Numbers are in full: a model reads 0.125 and 2024-02-29, where a person sees 13% and 29-Feb.
func (x *xlsx) shown() string {
	value := x.cell.value.String()
	switch x.cell.kind {
	case "b":
		return strings.ToUpper(strconv.FormatBool(isTrue(value)))
	case "s":
		i, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil || i < 0 || i >= len(x.shared) {
			return value
		}
		return x.shared[i]
	case "inlineStr":
		return unescape(value)
	case "", "n":
		return showNumber(value, x.cell.layout, x.is1904)
	}
	return value // a text of a formula, an error, a date of ISO 8601
}

// isTrue reads a truth value of XML Schema.
func isTrue(s string) bool { return s == "1" || s == "true" }

// columnOf returns the column of a cell such as "AB12", from 1, and 0 where there is none.
func columnOf(cell string) (n int) {
	for _, r := range cell {
		if r < 'A' || r > 'Z' || n > 1<<14 {
			break
		}
		n = n*26 + int(r-'A') + 1
	}
	return n
}

// unescape replaces _xHHHH_, which stands in a text for a character that XML cannot hold.
func unescape(s string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "_x")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		s = rest
		if code, err := strconv.ParseUint(rest[:min(4, len(rest))], 16, 16); err == nil && strings.HasPrefix(rest[4:], "_") {
			out.WriteRune(rune(code))
			s = rest[5:]
		} else {
			out.WriteString("_x")
		}
	}
}

func readCSV(in io.ReaderAt, size int64, o *output) error {
	buffered := bufio.NewReaderSize(io.NewSectionReader(in, 0, size), 64<<10)
	if mark, _ := buffered.Peek(3); string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3)
	}
	r := csv.NewReader(buffered)
	r.LazyQuotes, r.FieldsPerRecord, r.ReuseRecord = true, -1, true
	head, _ := buffered.Peek(4096)
	r.Comma = separator(string(head), o.Kind == ".tsv")
	t := table{o: o}
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.row(cells); err != nil {
			return err
		}
	}
}

// separator returns the separator that the first line has most of.
func separator(text string, tabs bool) rune {
	if tabs {
		return '\t'
	}
	line, _, _ := strings.Cut(text, "\n")
	best := ','
	for _, r := range ";\t|" {
		if strings.Count(line, string(r)) > strings.Count(line, string(best)) {
			best = r
		}
	}
	return best
}
