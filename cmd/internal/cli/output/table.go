package output

import (
	"bytes"
	"cmp"
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

// Printed is something to be printed in one of the formats of addPrint.
type Printed interface {
	// Table is for a person: the first row is the headings.
	Table() [][]string
}

// Folded is something whose last column has sentences, which continue on further lines in
// place of being cut.
type Folded interface {
	Printed
	// Folds says so and does nothing.
	Folds()
}

// Print prints v in the format.
func (s *Streams) Print(f *Format, v Printed) error {
	var err error
	switch f.Value {
	case "json":
		err = WriteJSON(s.Stdout, v, "  ")
	case "yaml":
		err = WriteYAML(s.Stdout, v)
	default:
		rows, width := v.Table(), s.WindowWidth()
		if _, ok := v.(Folded); ok && width > 0 {
			rows = fold(rows, width)
		}
		err = WriteTable(s.Stdout, rows, width)
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// WriteJSON writes v as JSON, with each level of it indented by indent, and a line
// end. A terminal shows all of it: see escapeJSON.
func WriteJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(EscapeJSON(b.Bytes()))
	return err
}

// EscapeJSON escapes characters in strings that are not to be seen, and that
// JSON does not ask to be escaped: C1 controls, delete, marks of direction. They
// may come from a sandbox, and would act on the terminal.
func EscapeJSON(text []byte) []byte {
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
// words and lines stay, and bytes that are not UTF-8 become U+FFFD.
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

// WindowWidth is how many columns the terminal of standard output has, 0 where that
// is not a terminal: a program gets whole cells.
func (s *Streams) WindowWidth() int {
	style, _ := s.Style()
	return style.Width
}

// columnGap is the blanks between two columns.
const columnGap = 3

// WriteTable writes rows with their columns aligned, and cuts cells where a row is wider
// than most columns of a terminal; 0 means any width. The text of a cell may come from a
// sandbox: nothing in it moves a cursor.
func WriteTable(w io.Writer, rows [][]string, most int) error {
	return new(table).write(w, rows, most)
}

// table remembers how wide its columns are, for rows that come later.
type table struct{ widths []int }

// measure cleans cells, and widens the columns to them.
func (t *table) measure(rows [][]string) {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = Clean(cell)
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], TextWidth(row[i]))
		}
	}
}

func (t *table) write(w io.Writer, rows [][]string, most int) error {
	t.measure(rows)
	widths, gap := fit(t.widths, most)
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = Cut(cell, widths[i])
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-TextWidth(cell)+gap))
			}
		}
		b.WriteString(Cut(line.String(), most) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fold has the last column of rows continue on further rows in a window of width columns.
func fold(rows [][]string, width int) (folded [][]string) {
	var t table
	t.measure(rows)
	last := max(len(t.widths)-1, 0)
	room := width - last*columnGap
	for _, widest := range t.widths[:last] {
		room -= widest
	}
	for _, row := range rows {
		if len(row) <= last {
			folded = append(folded, row)
			continue
		}
		for i, line := range foldLine(row[last], max(room, narrowest)) {
			next := make([]string, last, last+1)
			if i == 0 {
				copy(next, row)
			}
			folded = append(folded, append(next, line))
		}
	}
	return folded
}

// foldLine splits a line between words, and words that are too long, into lines of at most
// width columns. Each begins with the blanks of the first.
func foldLine(line string, width int) (lines []string) {
	text := strings.TrimLeft(line, " ")
	indent := line[:min(len(line)-len(text), width/2)]
	next := indent
	add := func(word string) {
		if next != indent && TextWidth(next)+1+TextWidth(word) > width {
			lines, next = append(lines, next), indent
		}
		if next != indent {
			next += " "
		}
		for _, r := range word {
			if next != indent && TextWidth(next)+columns(r) > width {
				lines, next = append(lines, next), indent
			}
			next += string(r)
		}
	}
	for word := range strings.FieldsSeq(text) {
		add(word)
	}
	return append(lines, next)
}

// narrowest is the width below which no column is cut: that of an id, by which people
// name sandboxes.
const narrowest = 12

// least is the width below which no column is cut, in a window that is too narrow for narrowest.
const least = 6

// fit shrinks columns to a window of width maxWidth (0: unlimited), as far as they can be: first
// the widest, then the gaps, then all but the first.
func fit(widths []int, maxWidth int) (fitting []int, gap int) {
	fitting, gap = slices.Clone(widths), columnGap
	if maxWidth <= 0 || len(widths) == 0 {
		return fitting, gap
	}
	total := func() int {
		sum := gap * (len(fitting) - 1)
		for _, width := range fitting {
			sum += width
		}
		return sum
	}
	for total() > maxWidth && slices.Max(fitting) > narrowest {
		fitting[slices.Index(fitting, slices.Max(fitting))]--
	}
	for total() > maxWidth && gap > 1 {
		gap--
	}
	for rest := fitting[1:]; total() > maxWidth && len(rest) > 0 && slices.Max(rest) > least; {
		rest[slices.Index(rest, slices.Max(rest))]--
	}
	return fitting, gap
}

// TextWidth is how many columns of a terminal a text takes.
func TextWidth(text string) (width int) {
	for _, r := range text {
		width += columns(r)
	}
	return width
}

// Span writes a duration for people.
func Span(d time.Duration) string { return units.HumanDuration(max(d, 0)) }

// Size writes a number of bytes for people.
func Size[N int | int64 | uint64](bytes N) string { return units.HumanSize(float64(bytes)) }

// OrDash is text, or a dash for an empty one.
func OrDash(text string) string { return cmp.Or(text, "-") }

// Line is something of which one after another is printed.
type Line interface {
	// Headings are for a person, and stand above the first row.
	Headings() []string
	// Row is for a person.
	Row() []string
}

// Lines prints one line after another in one of the formats of addFormat. It may not be
// used concurrently.
type Lines struct {
	To     *Streams
	Format *Format
	table  table
}

// Print prints one of many: a row, an object on one line, or a document.
func (l *Lines) Print(v Line) error {
	var err error
	switch l.Format.Value {
	case "json":
		err = WriteJSON(l.To.Stdout, v, "")
	case "yaml":
		if _, err = io.WriteString(l.To.Stdout, "---\n"); err == nil {
			err = WriteYAML(l.To.Stdout, v)
		}
	default:
		rows := [][]string{v.Row()}
		if l.table.widths == nil {
			rows = append([][]string{v.Headings()}, rows...)
		}
		err = l.table.write(l.To.Stdout, rows, l.To.WindowWidth())
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// Stamp is a time for a line.
func Stamp(t time.Time) string { return t.Local().Format(time.DateTime) }

// ShortStamp is a time for a column among many: the date where that is a day ago.
func ShortStamp(t, now time.Time) string {
	if now.Sub(t) < 24*time.Hour {
		return t.Local().Format(time.TimeOnly)
	}
	return t.Local().Format(time.DateOnly)
}

// Document is JSON to be printed.
type Document json.RawMessage

// MarshalJSON returns it as it is.
func (d Document) MarshalJSON() ([]byte, error) { return d, nil }

// Table has one cell.
func (d Document) Table() [][]string { return [][]string{{string(d)}} }
