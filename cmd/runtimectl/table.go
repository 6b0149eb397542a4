package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/docker/go-units"
)

// printed is something to be printed in one of the formats of addPrint.
type printed interface {
	// table is for a person: the first row is the headings.
	table() [][]string
}

// addPrint gives c the flag -o for print.
func (p *program) print(f *format, v printed) error {
	var err error
	switch f.value {
	case "json":
		err = writeJSON(p.stdout, v, "  ")
	case "yaml":
		err = writeYAML(p.stdout, v)
	default:
		err = writeTable(p.stdout, v.table(), p.windowWidth())
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// writeJSON writes v as JSON, with each level of it indented by indent, and a line
// end. A terminal shows all of it: see escapeJSON.
func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeJSON(b.Bytes()))
	return err
}

// escapeJSON escapes characters in strings that are not to be seen, and that
// JSON does not ask to be escaped: C1 controls, delete, marks of direction. They
// may come from a sandbox, and would act on the terminal.
func escapeJSON(text []byte) []byte {
	return escape(text, func(out []byte, r rune) []byte {
		if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
			return fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		}
		return fmt.Appendf(out, `\u%04x`, r)
	})
}

// escapeYAML does the same for YAML whose strings with such characters are in
// double quotes.
func escapeYAML(text []byte) []byte {
	return escape(text, func(out []byte, r rune) []byte { return fmt.Appendf(out, `\U%08x`, r) })
}

// escape has write write every character that is not to be seen. Blanks between
// words and lines stay, and what is not UTF-8 becomes U+FFFD.
func escape(text []byte, write func(out []byte, r rune) []byte) []byte {
	if bytes.IndexFunc(text, unseen) < 0 && utf8.Valid(text) {
		return text
	}
	out := make([]byte, 0, len(text)+16)
	for _, r := range string(text) {
		if unseen(r) {
			out = write(out, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

func unseen(r rune) bool { return !unicode.IsGraphic(r) && r != '\n' && r != '\t' }

// windowWidth is how many columns the terminal of standard output has, 0 where it is
// none: what programs read is not cut.
func (p *program) windowWidth() int {
	style, _ := p.style()
	return style.width
}

// columnGap is the blanks between two columns.
const columnGap = 3

// writeTable writes rows with their columns aligned, and cuts cells where a row is wider
// than most columns of a terminal; 0 means any width. What is in a cell may come from a
// sandbox: nothing in it moves a cursor.
func writeTable(w io.Writer, rows [][]string, most int) error {
	var t table
	return t.write(w, rows, most)
}

// table remembers how wide its columns are, for rows that come later.
type table struct{ widths []int }

func (t *table) write(w io.Writer, rows [][]string, most int) error {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = clean(cell)
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], textWidth(row[i]))
		}
	}
	widths, gap := fit(t.widths, most)
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = cut(cell, widths[i])
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-textWidth(cell)+gap))
			}
		}
		b.WriteString(cut(line.String(), most) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// narrowest is the width below which no column is cut: that of an id, by which people
// name sandboxes.
const narrowest = 12

// fit narrows the widest columns, and then the gaps between them, until all have room in a
// window of most columns, 0 for any, or nothing can be narrower.
func fit(widths []int, most int) (fitting []int, gap int) {
	fitting, gap = slices.Clone(widths), columnGap
	if most <= 0 || len(widths) == 0 {
		return fitting, gap
	}
	total := func() int {
		sum := gap * (len(fitting) - 1)
		for _, width := range fitting {
			sum += width
		}
		return sum
	}
	for total() > most && slices.Max(fitting) > narrowest {
		fitting[slices.Index(fitting, slices.Max(fitting))]--
	}
	for total() > most && gap > 1 {
		gap--
	}
	return fitting, gap
}

func textWidth(text string) (width int) {
	for _, r := range text {
		width += columns(r)
	}
	return width
}

// span writes a duration for people.
func span(d time.Duration) string { return units.HumanDuration(max(d, 0)) }

// size writes a number of bytes for people.
func size[N int | int64 | uint64](bytes N) string { return units.HumanSize(float64(bytes)) }

// orDash is text, or a dash for an empty one.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// line is something of which one after another is printed.
type line interface {
	// headings are for a person, and stand above the first row.
	headings() []string
	// row is for a person.
	row() []string
}

// lines prints one line after another in one of the formats of addFormat. It may not be
// used concurrently.
type lines struct {
	p      *program
	format *format
	table  table
}

// print prints one of many: a row, an object on one line, or a document.
func (l *lines) print(v line) error {
	var err error
	switch l.format.value {
	case "json":
		err = writeJSON(l.p.stdout, v, "")
	case "yaml":
		if _, err = io.WriteString(l.p.stdout, "---\n"); err == nil {
			err = writeYAML(l.p.stdout, v)
		}
	default:
		rows := [][]string{v.row()}
		if l.table.widths == nil {
			rows = append([][]string{v.headings()}, rows...)
		}
		err = l.table.write(l.p.stdout, rows, l.p.windowWidth())
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// stamp is a time for a column.
func stamp(t time.Time) string { return t.Local().Format(time.DateTime) }

// document is JSON to be printed.
type document json.RawMessage

// MarshalJSON returns it as it is.
func (d document) MarshalJSON() ([]byte, error) { return d, nil }

func (d document) table() [][]string { return [][]string{{string(d)}} }
