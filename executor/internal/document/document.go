// Package document turns documents into Markdown: PDF, CSV and Jupyter notebooks.
//
// The conversion runs in a worker, because the library that reads PDF has no limits of time and memory. A document may
// be damaged on purpose: [Convert] may then panic, which the worker reports, and stops where the text that was asked
// for is complete.
package document

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// MaxSize is the largest document that is converted, in bytes.
const MaxSize = 64 << 20

const (
	// maxPages bounds the pages, and maxColumns the columns of a table.
	maxPages, maxColumns = 5000, 256
	// maxCell bounds the characters of a table's cell, and maxLine those of a line.
	maxCell, maxLine = 1000, 4000
)

// Request names the parts of a document to show.
type Request struct {
	// Kind is the extension of the file's name, as [Kind] returns it.
	Kind string
	// First and Last are lines of the Markdown, counted from 1; Last -1 is the last one.
	First, Last int
	// Most is how many characters are shown at most, in whole lines.
	Most int
}

// Page is a part of a document as Markdown.
type Page struct {
	// Text has a line feed between lines and none at the end.
	Text string
	// Next is the line after the text, 0 where the text reaches the end of the document.
	Next int
	// Lines is the number of lines of the document, 0 where its end was not reached.
	Lines int
}

// Kind returns the kind of a document that [Convert] reads, or refuses with advice, by its name; "" for any other file.
func Kind(path string) string {
	ext := strings.ToLower(filepath.Ext(path))
	if readers[ext] == nil {
		return ""
	}
	return ext
}

// Describe names the kind of a file by its first bytes, "" where they are not known.
func Describe(head []byte) string {
	for _, known := range []struct {
		at          int
		bytes, what string
	}{
		{0, "\x7fELF", "a program or library (ELF)"},
		{0, "\xcf\xfa\xed\xfe", "a program (Mach-O)"},
		{0, "MZ", "a program (Windows)"},
		{0, "\x00asm", "a program (WebAssembly)"},
		{0, "\xca\xfe\xba\xbe", "a class (Java)"},
		{0, "!<arch>\n", "an archive (ar)"},
		{257, "ustar", "an archive (tar)"},
		{0, "PK\x03\x04", "an archive (zip)"},
		{0, "7z\xbc\xaf\x27\x1c", "an archive (7z)"},
		{0, "Rar!", "an archive (RAR)"},
		{0, "\x1f\x8b", "compressed data (gzip)"},
		{0, "BZh", "compressed data (bzip2)"},
		{0, "\xfd7zXZ", "compressed data (xz)"},
		{0, "\x28\xb5\x2f\xfd", "compressed data (zstd)"},
		{0, "SQLite format 3\x00", "a database (SQLite)"},
		{0, "PAR1", "a table (Parquet)"},
		{0, "\x93NUMPY", "an array (NumPy)"},
		{0, "\x89HDF", "data (HDF5)"},
		{0, "\xd0\xcf\x11\xe0", "a document of old Office (DOC, XLS or PPT)"},
		{0, "%PDF-", "a document (PDF)"},
		{0, "\x89PNG", "an image (PNG)"},
		{0, "\xff\xd8\xff", "an image (JPEG)"},
		{0, "GIF8", "an image (GIF)"},
		{8, "WEBP", "an image (WebP)"},
		{0, "II*\x00", "an image (TIFF)"},
		{0, "MM\x00*", "an image (TIFF)"},
		{8, "WAVE", "sound (WAV)"},
		{0, "fLaC", "sound (FLAC)"},
		{0, "ID3", "sound (MP3)"},
		{0, "OggS", "sound or video (Ogg)"},
		{4, "ftyp", "sound or video (MP4)"},
		{0, "\x1aE\xdf\xa3", "video (Matroska or WebM)"},
		{0, "wOF2", "a font (WOFF2)"},
		{0, "\x80\x04\x95", "an object (Python pickle)"},
	} {
		if len(head) >= known.at && strings.HasPrefix(string(head[known.at:]), known.bytes) {
			return known.what
		}
	}
	return ""
}

// readers read a document of size bytes, by its kind.
var readers = map[string]func(in io.ReaderAt, size int64, o *output) error{
	".pdf": readPDF, ".csv": readCSV, ".tsv": readCSV, ".ipynb": readNotebook,
	".docx": readBy("python-docx"), ".xlsx": readBy("openpyxl"), ".pptx": readBy("python-pptx"),
}

// readBy refuses a document, and names the library of Python that reads it.
func readBy(library string) func(io.ReaderAt, int64, *output) error {
	return func(_ io.ReaderAt, _ int64, o *output) error {
		return fmt.Errorf("%s is not converted, and the library %s reads it", strings.ToUpper(o.Kind[1:]), library)
	}
}

// Convert reads a document of size bytes.
func Convert(in io.ReaderAt, size int64, r Request) (Page, error) {
	o := &output{Request: r}
	read := readers[r.Kind]
	if read == nil {
		return Page{}, errors.New("documents of this kind are not converted")
	}
	err := read(in, size, o)
	page := Page{Text: strings.TrimSuffix(o.text.String(), "\n")}
	switch {
	case errors.Is(err, errEnough):
		page.Next = o.line
		return page, nil
	case err != nil:
		return Page{}, err
	}
	page.Lines = o.line
	return page, nil
}

// errEnough ends a conversion whose further text was not asked for.
var errEnough = errors.New("enough")

// output takes the Markdown line by line and keeps the part that was asked for.
type output struct {
	Request
	text  strings.Builder
	line  int  // number of the last line
	chars int  // characters of text
	gap   bool // empty lines follow the last line
}

// add adds lines: without white space at their ends, and with one empty line for several. It fails with errEnough.
func (o *output) add(text string) error {
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(strings.Map(shown, line), " \t\u00a0")
		if line == "" {
			o.gap = o.line > 0
			continue
		}
		if o.gap {
			if err := o.put(""); err != nil {
				return err
			}
		}
		o.gap = false
		for line != "" {
			var head string
			head, line = cut(line, maxLine)
			if err := o.put(head); err != nil {
				return err
			}
		}
	}
	return nil
}

// block adds lines between empty ones.
func (o *output) block(text string) error { return o.add("\n" + text + "\n") }

func (o *output) put(line string) error {
	o.line++
	if o.line < o.First {
		return nil
	}
	o.chars += utf8.RuneCountInString(line) + 1
	if o.Last != -1 && o.line > o.Last || o.chars > o.Most {
		return errEnough
	}
	o.text.WriteString(line)
	o.text.WriteByte('\n')
	return nil
}

// cut divides a text after most characters.
func cut(s string, most int) (head, rest string) {
	if len(s) <= most {
		return s, ""
	}
	for i := range s {
		if most--; most < 0 {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// shown drops control characters.
func shown(r rune) rune {
	if r < ' ' && r != '\t' || r == 0x7f || r == utf8.RuneError {
		return -1
	}
	return r
}

// table writes rows; the first is the head.
type table struct {
	o    *output
	rows int
}

func (t *table) row(cells []string) error {
	more := len(cells) - maxColumns
	if more > 0 {
		cells = append(cells[:maxColumns:maxColumns], "…")
	}
	var line strings.Builder
	line.WriteString("|")
	for _, cell := range cells {
		line.WriteString(" " + inCell(cell) + " |")
	}
	t.rows++
	if t.rows > 1 {
		return t.o.add(line.String())
	}
	return t.o.add("\n" + line.String() + "\n|" + strings.Repeat(" --- |", len(cells)))
}

// inCell makes a text fit the cell of a table.
func inCell(text string) string {
	text, rest := cut(strings.Join(strings.Fields(text), " "), maxCell)
	if rest != "" {
		text += "…"
	}
	return strings.ReplaceAll(text, "|", `\|`)
}
