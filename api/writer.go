package api

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// errInvalidText says that a text cannot be sent as it is.
var errInvalidText = errors.New("a text is not valid UTF-8")

// writer appends JSON as the reference server prints it: compact, keys in the
// order written, UTF-8 unescaped, and no escape but those JSON demands. Every
// method writes a member; an empty name writes a bare value. The zero value is
// ready.
type writer struct {
	buf []byte
	err error // the first value that could not be written
	// replaced is set when invalid UTF-8 became U+FFFD.
	replaced bool
}

// fail keeps the first complaint.
func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// grow makes room for n more bytes at once.
func (w *writer) grow(n int) {
	if cap(w.buf)-len(w.buf) < n {
		w.buf = append(make([]byte, 0, len(w.buf)+n), w.buf...)
	}
}

// key writes what stands before a value: a comma where one is due, and a name.
func (w *writer) key(name string) {
	if n := len(w.buf); n > 0 && w.buf[n-1] != '{' && w.buf[n-1] != '[' {
		w.buf = append(w.buf, ',')
	}
	if name != "" {
		w.buf = append(w.buf, '"')
		w.buf = append(w.buf, name...)
		w.buf = append(w.buf, '"', ':')
	}
}

func (w *writer) open(name string) {
	w.key(name)
	w.buf = append(w.buf, '{')
}

func (w *writer) close() { w.buf = append(w.buf, '}') }

func (w *writer) literal(name, value string) {
	w.key(name)
	w.buf = append(w.buf, value...)
}

func (w *writer) null(name string) { w.literal(name, "null") }

func (w *writer) flag(name string, value bool) { w.literal(name, strconv.FormatBool(value)) }

func (w *writer) integer(name string, value int) { w.literal(name, strconv.Itoa(value)) }

func (w *writer) text(name, value string) {
	w.key(name)
	w.quote(value)
}

func (w *writer) textOrNull(name string, value *string) {
	if value == nil {
		w.null(name)
		return
	}
	w.text(name, *value)
}

// textIfAny writes a member only when there is one.
func (w *writer) textIfAny(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

// integerIfAny writes a member only when there is one.
func (w *writer) integerIfAny(name string, value *int) {
	if value != nil {
		w.integer(name, *value)
	}
}

// flagIfSet writes a member only when it is true.
func (w *writer) flagIfSet(name string, value bool) {
	if value {
		w.flag(name, true)
	}
}

// texts writes a list, null for nil.
func (w *writer) texts(name string, values []string) {
	if values == nil {
		w.null(name)
		return
	}
	w.key(name)
	w.buf = append(w.buf, '[')
	for _, v := range values {
		w.text("", v)
	}
	w.buf = append(w.buf, ']')
}

// object writes a free-form object, {} for nil.
func (w *writer) object(name string, value map[string]any) {
	if value == nil {
		value = map[string]any{}
	}
	text, err := Encode(value)
	if err != nil {
		w.fail("encoding %s: %w", name, err)
		return
	}
	w.key(name)
	w.buf = append(w.buf, text...)
}

// plain marks the bytes that stand for themselves in a JSON string and in
// UTF-8: ASCII without controls, quote and backslash.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// quote appends a JSON string. A byte that is not UTF-8 becomes U+FFFD.
func (w *writer) quote(s string) {
	buf := append(w.buf, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			w.replaced = true
		}
		buf = append(buf, s[start:i]...)
		buf = appendEscape(buf, c)
		i++
		start = i
	}
	buf = append(buf, s[start:]...)
	w.buf = append(buf, '"')
}

// appendEscape appends what stands for a byte that cannot stand for itself.
func appendEscape(buf []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(buf, '\\', c)
	case '\n':
		return append(buf, '\\', 'n')
	case '\r':
		return append(buf, '\\', 'r')
	case '\t':
		return append(buf, '\\', 't')
	case '\b':
		return append(buf, '\\', 'b')
	case '\f':
		return append(buf, '\\', 'f')
	}
	if c >= utf8.RuneSelf {
		return utf8.AppendRune(buf, utf8.RuneError)
	}
	return append(buf, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
