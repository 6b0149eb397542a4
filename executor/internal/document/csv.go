package document

import (
	"bufio"
	"encoding/csv"
	"errors"
	"io"
	"strings"
)

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
