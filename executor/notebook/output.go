package notebook

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/actiond/actiond/internal/lazyregexp"
)

const (
	// half is how much of the beginning and of the end of a cell's text is kept,
	// in bytes. The reference sets no limit; this is far beyond a model's reading.
	half = 512 << 10
	// maxImages and maxImageBytes bound the images of a cell together, the bytes
	// as base64.
	maxImages     = 32
	maxImageBytes = 16 << 20
)

// output is the output of a cell so far. The zero value is ready.
type output struct {
	head, tail []byte
	cut        bool
	images     []string
	imageBytes int
	raised     bool // an exception ended the cell

	follower *follower // gets the text too, unless it is nil
}

func (o *output) write(text string) {
	if o.follower != nil {
		o.follower.write(text)
	}
	n := min(half-len(o.head), len(text))
	o.head = append(o.head, text[:n]...)
	text = text[n:]
	if len(text) > half {
		text, o.cut = text[len(text)-half:], true
	}
	o.tail = append(o.tail, text...)
	if len(o.tail) > 2*half {
		o.tail, o.cut = append(o.tail[:0], o.tail[len(o.tail)-half:]...), true
	}
}

// show adds displayed data: its plain text and its PNG image. Where it has
// neither, its readable form stands in their place.
func (o *output) show(s shown) {
	for _, form := range []*text{s.Plain, s.Markdown, s.LaTeX, s.HTML, s.SVG} {
		if form != nil && (form == s.Plain || s.PNG == nil) {
			o.write(string(*form))
			break
		}
	}
	switch {
	case s.PNG != nil:
		o.image(string(*s.PNG))
	case s.JPEG != nil && s == shown{JPEG: s.JPEG}:
		o.write("[A JPEG image is left out: only PNG is shown.]")
	}
}

// image adds a PNG image, or says why it is left out.
func (o *output) image(png string) {
	switch {
	case len(o.images) == maxImages:
		o.write(fmt.Sprintf("\n[An image is left out: there are more than %d.]\n", maxImages))
	case o.imageBytes+len(png) > maxImageBytes || len(png) > headLimit:
		o.write(fmt.Sprintf("\n[An image of %d bytes is left out: it is too large.]\n", len(png)))
	case !isBase64(png):
		o.write("\n[An image is left out: it cannot be decoded.]\n")
	default:
		o.images = append(o.images, "data:image/png;base64,"+png)
		o.imageBytes += len(png)
	}
}

// isBase64 keeps texts that cannot be images out of the URLs.
func isBase64(s string) bool {
	_, err := base64.StdEncoding.DecodeString(s) // skips line ends
	return err == nil
}

// colour matches the sequences that the reference removes, no more.
var colour = lazyregexp.New(`\x1b\[\d+(;\d+){0,2}m`)

// anyColour matches the sequences that IPython puts into tracebacks, also when it was
// set to more colours than the reference removes.
var anyColour = lazyregexp.New(`\x1b\[[\d;:]*m`)

// Screen returns text as a terminal shows it: without colours, and of a line that carriage
// returns write over, what is left.
func Screen(text string) string {
	const erase = '\v' // in place of the sequences that erase the rest of a line
	if !strings.ContainsAny(text, "\r\x1b") {
		return text
	}
	text = strings.ReplaceAll(text, string(erase), "\n")
	text = sequences().ReplaceAllString(eraseLine().ReplaceAllString(text, string(erase)), "")
	var out strings.Builder
	var line []rune
	at := 0 // in line
	for _, c := range text + "\n" {
		switch {
		case c == '\n':
			out.WriteString(string(line) + "\n")
			line, at = line[:0], 0
		case c == '\r':
			at = 0
		case c == erase:
			line = line[:at]
		case at < len(line):
			line[at] = c
			at++
		default:
			line = append(line, c)
			at++
		}
	}
	return strings.TrimSuffix(out.String(), "\n")
}

var (
	eraseLine = lazyregexp.New(`\x1b\[[02]?K`)
	sequences = lazyregexp.New(`\x1b\[[0-9;:?]*[A-Za-z]`)
)

// text returns the text without colours, shortened in the middle where there
// was too much.
func (o *output) text() string {
	head, tail := o.head, o.tail
	cut := o.cut
	if len(tail) > half {
		tail, cut = tail[len(tail)-half:], true
	}
	text := string(head) + string(tail)
	if cut {
		// The cuts may have gone through characters.
		text = strings.ToValidUTF8(string(head), "") + shortened + strings.ToValidUTF8(string(tail), "")
	}
	if !strings.Contains(text, "\x1b") {
		return text
	}
	return colour().ReplaceAllString(text, "")
}
