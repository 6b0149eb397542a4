package edit

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/text/encoding"
	utf16 "golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// text is the decoded content of a file, with the mapping from view offsets to its bytes.
//
// raw is mark, then body in its charset. view is body with every line end (LF, CRLF or a lone CR) as one LF.
type text struct {
	raw     []byte
	mark    int     // length of the byte order mark
	charset charset // how body is written in raw
	body    string
	view    string
	crs     bool   // body has CRs, so that view and body differ
	exact   bool   // view is body, CRs and all; crs is false then
	eol     string // the most frequent line end, LF by default
}

// charset is an encoding with its name. A nil coding is UTF-8: body is then the bytes themselves, which may contain
// invalid UTF-8.
type charset struct {
	name   string
	coding encoding.Encoding
}

var utf8Charset = charset{name: "utf-8"}

// marks are the byte order marks, longest first, because that of UTF-16LE begins that of UTF-32LE.
var marks = []struct {
	bytes   string
	charset charset
}{
	{"\xff\xfe\x00\x00", charset{"utf-32le", utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)}},
	{"\x00\x00\xfe\xff", charset{"utf-32be", utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)}},
	{"\xef\xbb\xbf", utf8Charset},
	{"\xff\xfe", charset{"utf-16le", utf16.UTF16(utf16.LittleEndian, utf16.IgnoreBOM)}},
	{"\xfe\xff", charset{"utf-16be", utf16.UTF16(utf16.BigEndian, utf16.IgnoreBOM)}},
}

// decode detects the encoding of a file's bytes: by its byte order mark; else UTF-8 if the bytes are valid UTF-8; else
// a guessed charset that encodes every byte back. It fails with errBinary for bytes that are not text.
func decode(raw []byte) (*text, error) {
	mark := 0
	for _, m := range marks {
		if !bytes.HasPrefix(raw, []byte(m.bytes)) {
			continue
		}
		if m.charset.coding == nil {
			mark = len(m.bytes)
			break
		}
		if body, ok := m.charset.decode(raw[len(m.bytes):]); ok && !strings.Contains(body, "\x00") {
			return newText(raw, len(m.bytes), m.charset, body), nil
		}
	}
	valid := utf8.Valid(raw)
	if isBinary(raw, valid) {
		return nil, errBinary
	}
	if !valid && mark == 0 {
		guess := guessCharset(raw)
		if body, ok := guess.decode(raw); ok {
			return newText(raw, 0, guess, body), nil
		}
	}
	return newText(raw, mark, utf8Charset, textOf(raw[mark:])), nil
}

// textOf returns bytes as a text without a copy of them. They must not change any more: the bytes of a file do not once
// they were read or spliced.
func textOf(raw []byte) string {
	return unsafe.String(unsafe.SliceData(raw), len(raw)) //nolint:gosec // a copy of a megabyte takes as long as a search in it
}

func newText(raw []byte, mark int, c charset, body string) *text {
	t := &text{raw: raw, mark: mark, charset: c, body: body, view: body, eol: "\n", crs: strings.Contains(body, "\r")}
	if t.crs {
		t.view = lineFeeds(body)
		t.eol = dominantEnd(body)
	}
	return t
}

// withEnds returns the text for dialects that match line ends too.
func (t *text) withEnds() *text {
	t.view, t.crs, t.exact = t.body, false, true
	return t
}

// next returns the text after a splice.
func (t *text) next(raw []byte) *text {
	body, ok := t.charset.decode(raw[t.mark:])
	if !ok { // UTF-8 with invalid bytes
		body = textOf(raw[t.mark:])
	}
	n := newText(raw, t.mark, t.charset, body)
	if t.exact {
		return n.withEnds()
	}
	return n
}

// isBinary reports whether bytes without a byte order mark are not text: they contain a NUL, or mostly control
// characters, as in the reference (binaryornot). The limit is lower for invalid UTF-8, because compressed data looks
// like that.
func isBinary(raw []byte, valid bool) bool {
	if bytes.IndexByte(raw, 0) >= 0 {
		return true
	}
	head := raw[:min(len(raw), 1024)]
	controls := 0
	for _, b := range head {
		if b < 0x20 && !strings.ContainsRune("\a\b\t\n\v\f\r\x1a\x1b", rune(b)) || b == 0x7f {
			controls++
		}
	}
	if valid {
		return controls*5 > len(head)*4
	}
	return controls*50 > len(head)
}

// decode returns the text of bytes, and whether encode returns exactly these bytes.
func (c charset) decode(raw []byte) (string, bool) {
	if c.coding == nil {
		return textOf(raw), utf8.Valid(raw)
	}
	body, err := c.coding.NewDecoder().Bytes(raw)
	if err != nil {
		return "", false
	}
	back, err := c.coding.NewEncoder().Bytes(body)
	if err != nil || !bytes.Equal(back, raw) {
		return "", false
	}
	return string(body), true
}

// encode returns the bytes of a text. It fails with CodeNotEncodable and names the first character that the charset
// lacks.
func (c charset) encode(s string) ([]byte, error) {
	if c.coding == nil {
		return []byte(s), nil
	}
	encoder := c.coding.NewEncoder()
	if raw, err := encoder.Bytes([]byte(s)); err == nil {
		return raw, nil
	}
	for _, r := range s {
		if _, err := encoder.String(string(r)); err != nil {
			return nil, &Error{CodeNotEncodable, fmt.Sprintf("The character `%c` (U+%04X) does not exist in %s, the encoding of the file. "+
				"Nothing was changed.", r, r, c.name), err}
		}
	}
	return nil, refuse(CodeNotEncodable, "The new text cannot be written in %s, the encoding of the file. Nothing was changed.", c.name)
}

// offsets turns ascending offsets into view into offsets into raw.
func (t *text) offsets(view ...int) []int {
	raw := make([]int, len(view))
	if !t.crs && t.charset.coding == nil {
		for i, at := range view {
			raw[i] = t.mark + at
		}
		return raw
	}
	body := t.bodyOffsets(view)
	seen, done := 0, t.mark // how much of body is measured, and how many bytes it takes
	for i, at := range body {
		if t.charset.coding == nil {
			raw[i] = t.mark + at
			continue
		}
		part, err := t.charset.encode(t.body[seen:at])
		if err != nil { // impossible: the charset decoded body from raw without loss
			part = nil
		}
		seen, done = at, done+len(part)
		raw[i] = done
	}
	return raw
}

// bodyOffsets turns ascending offsets into view into offsets into body, which is longer by one byte for every CRLF.
func (t *text) bodyOffsets(view []int) []int {
	if !t.crs {
		return view
	}
	body := make([]int, len(view))
	pairs, next := 0, 0 // CRLFs before next, an offset into body
	for i, at := range view {
		for {
			cr := strings.IndexByte(t.body[next:], '\r')
			if cr < 0 || next+cr-pairs >= at {
				break
			}
			next += cr + 1
			if next < len(t.body) && t.body[next] == '\n' {
				next++
				pairs++
			}
		}
		body[i] = at + pairs
	}
	return body
}

// lineFeeds turns every line end into a line feed, as Python's universal newlines do.
func lineFeeds(s string) string {
	if !strings.Contains(s, "\r") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

func dominantEnd(body string) string {
	pairs := strings.Count(body, "\r\n")
	feeds := strings.Count(body, "\n") - pairs
	returns := strings.Count(body, "\r") - pairs
	switch {
	case feeds >= pairs && feeds >= returns:
		return "\n"
	case pairs >= returns:
		return "\r\n"
	}
	return "\r"
}

// lineCount returns the number of lines; text after the last line end counts as one.
func lineCount(view string) int {
	n := strings.Count(view, "\n")
	if view != "" && !strings.HasSuffix(view, "\n") {
		n++
	}
	return n
}

// lineStart returns the offset of a line, counted from 0, or the length if the text has fewer lines.
func lineStart(view string, line int) int {
	at := 0
	for ; line > 0; line-- {
		end := strings.IndexByte(view[at:], '\n')
		if end < 0 {
			return len(view)
		}
		at += end + 1
	}
	return at
}

// printable shows invalid UTF-8 as \xNN, so that an agent cannot write replacement characters back.
func printable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

func trimSpace(s string) string { return strings.TrimFunc(s, isSpace) }

func trimSpaceRight(s string) string { return strings.TrimRightFunc(s, isSpace) }

func isASCII[T ~string | ~[]byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isSpace reports white space as Python's strip defines it.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}
