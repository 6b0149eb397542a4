package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
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
		err = writeJSON(p.stdout, v)
	case "yaml":
		err = writeYAML(p.stdout, v)
	default:
		err = writeTable(p.stdout, v.table())
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeTable writes rows with their columns aligned. What is in a cell may come
// from a sandbox: nothing in it moves a cursor.
func writeTable(w io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			row[i] = clean(cell)
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-textWidth(cell)+3))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func textWidth(text string) (width int) {
	for _, r := range text {
		width += columns(r)
	}
	return width
}

// span is a duration for a person: its largest unit, and the next one where the
// first is small.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// orDash is text, or a dash where there is none.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// line is something of which one after another is printed.
type line interface {
	// row is for a person.
	row() []string
}

// printLine prints one of many: a row, an object on one line, or a document.
func (p *program) printLine(f *format, v line) error {
	var err error
	switch f.value {
	case "json":
		e := json.NewEncoder(p.stdout)
		e.SetEscapeHTML(false)
		err = e.Encode(v)
	case "yaml":
		if _, err = io.WriteString(p.stdout, "---\n"); err == nil {
			err = writeYAML(p.stdout, v)
		}
	default:
		err = writeTable(p.stdout, [][]string{v.row()})
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
