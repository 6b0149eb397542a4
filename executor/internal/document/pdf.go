package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/ledongthuc/pdf"
)

// maxForms bounds how deeply the contents of a page include each other.
const maxForms = 8

func readPDF(in io.ReaderAt, size int64, o *output) error {
	in, size, err := pdfWithin(in, size)
	if err != nil {
		return err
	}
	r, err := pdf.NewReader(in, size)
	if errors.Is(err, pdf.ErrInvalidPassword) {
		return errors.New("it is encrypted with a password")
	}
	if err != nil {
		return err
	}
	pages := r.NumPage()
	empty := true
	for number := 1; number <= min(pages, maxPages); number++ {
		text, err := pageText(r.Page(number))
		if err != nil {
			text += fmt.Sprintf("\n[The text of this page cannot be read: %v]", err)
		}
		if strings.TrimSpace(text) == "" {
			text = ""
		} else {
			empty = false
		}
		if err := o.block(fmt.Sprintf("<!-- Page number: %d -->\n%s", number, text)); err != nil {
			return err
		}
	}
	if empty {
		return o.block(fmt.Sprintf("[This PDF of %d pages has no text. Its pages may be pictures, as those of scanned paper are.]", pages))
	}
	return nil
}

// pdfWithin finds the document in a file: bytes may come before and after it, and the library knows the versions of
// PDF by their first lines.
func pdfWithin(in io.ReaderAt, size int64) (io.ReaderAt, int64, error) {
	const header, edge = "%PDF-1.7\n", 1024
	head := make([]byte, min(size, edge))
	if _, err := in.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	begin := bytes.Index(head, []byte("%PDF-"))
	if begin < 0 {
		return nil, 0, errors.New("it is not a PDF file: it has no header")
	}
	tail := make([]byte, min(size, edge))
	if _, err := in.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	end := bytes.LastIndex(tail, []byte("%%EOF"))
	if end < 0 {
		return nil, 0, errors.New("it is not a whole PDF file: it has no end")
	}
	size += int64(end+len("%%EOF")-len(tail)) - int64(begin)
	return headed{io.NewSectionReader(in, int64(begin), size), header}, size, nil
}

// headed is a file that begins with other bytes.
type headed struct {
	io.ReaderAt
	head string
}

func (h headed) ReadAt(p []byte, at int64) (int, error) {
	n, err := h.ReaderAt.ReadAt(p, at)
	if at >= 0 && at < int64(len(h.head)) {
		copy(p[:n], h.head[at:])
	}
	return n, err
}

// pageText returns the text of a page. The library panics where a page is damaged; the text before that is kept.
func pageText(page pdf.Page) (text string, err error) {
	w := &pdfText{}
	defer func() {
		if p := recover(); p != nil {
			text, err = w.out.String(), fmt.Errorf("%v", p)
		}
	}()
	if contents := page.V.Key("Contents"); !contents.IsNull() {
		w.interpret(contents, page.Resources(), 0)
	}
	return w.out.String(), nil
}

// pdfText puts the text of a page together: words and lines are told apart by where their characters are.
type pdfText struct {
	out       strings.Builder
	fonts     map[string]*font
	font      *font
	size      float64
	leading   float64
	line, now place // where the line begins, and where the next character is
	scale     float64
	last      place // behind the last character
	began     bool
}

type place struct{ x, y float64 }

func (w *pdfText) interpret(contents, resources pdf.Value, depth int) {
	w.fonts = map[string]*font{}
	pdf.Interpret(contents, func(stack *pdf.Stack, op string) {
		args := make([]pdf.Value, stack.Len())
		for i := len(args) - 1; i >= 0; i-- {
			args[i] = stack.Pop()
		}
		if op == "Do" && len(args) == 1 && depth < maxForms {
			form := resources.Key("XObject").Key(args[0].Name())
			if form.Key("Subtype").Name() == "Form" {
				inner := form.Key("Resources")
				if inner.IsNull() {
					inner = resources
				}
				saved := w.fonts
				w.interpret(form, inner, depth+1)
				w.fonts = saved
			}
			return
		}
		w.operate(op, args, resources)
	})
}

// operate carries out an operator that places or shows text.
func (w *pdfText) operate(op string, args []pdf.Value, resources pdf.Value) {
	number := func(i int) float64 {
		if i < len(args) {
			return args[i].Float64()
		}
		return 0
	}
	switch op {
	case "BT":
		w.line, w.scale = place{}, 1
		w.now = w.line
	case "Tf":
		if len(args) == 2 {
			w.setFont(args[0].Name(), resources)
			w.size = math.Abs(number(1))
		}
	case "TL":
		w.leading = number(0)
	case "Tm":
		w.scale = math.Hypot(number(0), number(1))
		w.line = place{number(4), number(5)}
		w.now = w.line
	case "TD":
		w.leading = -number(1)
		w.move(number(0), number(1))
	case "Td":
		w.move(number(0), number(1))
	case "T*":
		w.move(0, -w.leading)
	case "'", `"`:
		w.move(0, -w.leading)
		if len(args) > 0 {
			w.show(args[len(args)-1].RawString())
		}
	case "Tj":
		if len(args) > 0 {
			w.show(args[0].RawString())
		}
	case "TJ":
		if len(args) > 0 {
			w.showSpaced(args[0])
		}
	}
}

// move begins another line.
func (w *pdfText) move(x, y float64) {
	w.line.x += x * w.scale
	w.line.y += y * w.scale
	w.now = w.line
}

func (w *pdfText) setFont(name string, resources pdf.Value) {
	if w.fonts[name] == nil {
		w.fonts[name] = newFont(resources.Key("Font").Key(name))
	}
	w.font = w.fonts[name]
}

// showSpaced shows strings with moves between them, in thousandths of the size.
func (w *pdfText) showSpaced(list pdf.Value) {
	for i := range list.Len() {
		if item := list.Index(i); item.Kind() == pdf.String {
			w.show(item.RawString())
		} else {
			w.now.x -= item.Float64() / 1000 * w.size * w.scale
		}
	}
}

func (w *pdfText) show(raw string) {
	if w.font == nil {
		w.font = newFont(pdf.Value{})
	}
	text := w.font.Encoder().Decode(raw)
	size := max(w.size*w.scale, 1)
	switch gap := w.now.x - w.last.x; {
	case !w.began:
	case math.Abs(w.now.y-w.last.y) > 0.5*size:
		w.out.WriteByte('\n')
	case (gap > 0.17*size || gap < -2*size) && !strings.HasSuffix(w.out.String(), " ") && !strings.HasPrefix(text, " "):
		w.out.WriteByte(' ')
	}
	w.out.WriteString(text)
	w.began = true
	w.now.x += w.font.width(raw) * size
	w.last = w.now
}

// font is a font with the widths of its characters in thousandths of its size.
type font struct {
	pdf.Font
	bytes  int // of a character
	widths map[int]float64
	other  float64 // width of the other characters
}

// newFont reads the widths of a font: a simple one lists those from its first character on, a composite one has
// lists such as [10 [500 600] 20 30 550], which are for 10, 11, and 20 to 30.
func newFont(v pdf.Value) *font {
	f := &font{Font: pdf.Font{V: v}, bytes: 1, widths: map[int]float64{}, other: 500}
	if v.Key("Subtype").Name() != "Type0" {
		for i, width := range f.Widths() {
			f.widths[f.FirstChar()+i] = width
		}
		return f
	}
	f.bytes, f.other = 2, 1000
	inner := v.Key("DescendantFonts").Index(0)
	if width := inner.Key("DW"); !width.IsNull() {
		f.other = width.Float64()
	}
	list := inner.Key("W")
	for i := 0; i+1 < list.Len(); {
		first, next := int(list.Index(i).Int64()), list.Index(i+1)
		if next.Kind() == pdf.Array {
			for j := range next.Len() {
				f.widths[first+j] = next.Index(j).Float64()
			}
			i += 2
			continue
		}
		for code := first; code <= min(int(next.Int64()), 1<<16); code++ {
			f.widths[code] = list.Index(i + 2).Float64()
		}
		i += 3
	}
	return f
}

// width returns the width of a string in parts of the font's size.
func (f *font) width(raw string) float64 {
	sum := 0.0
	for ; len(raw) >= f.bytes; raw = raw[f.bytes:] {
		code := int(raw[0])
		if f.bytes == 2 {
			code = code<<8 | int(raw[1])
		}
		width, known := f.widths[code]
		if !known {
			width = f.other
		}
		sum += width / 1000
	}
	return sum
}
