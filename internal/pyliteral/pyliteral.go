// Package pyliteral reads literals in Python's syntax: strings, numbers, True,
// False, None, lists, tuples and dicts. It evaluates nothing.
package pyliteral

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/actiond/actiond/internal/shorten"
)

// Number is a number as repr prints it, which is valid JSON.
type Number string

// Reader reads a text from its beginning. A copy of it can look ahead. It is not
// safe for concurrent use.
type Reader struct {
	Rest string // the text that was not read yet
	Line int    // the line that Rest begins in
	// Repr restricts the syntax to the output of Python's repr: no comments, no string
	// prefixes, no triple quotes, no strings side by side, no escapes that are unknown
	// or no characters. Numbers are of type Number. Otherwise they are float64, and
	// dicts are errors.
	Repr bool
	// MaxDepth bounds the nesting, and Budget the values that are still read.
	MaxDepth, Budget int
}

// SyntaxError has the expected token and its place.
type SyntaxError struct {
	Line          int
	Wanted, Found string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d: expected %s, found %s", e.Line, e.Wanted, e.Found)
}

// Fail returns an error about the place where the reader is.
func (r *Reader) Fail(wanted string) error {
	found := "the end"
	if r.Rest != "" {
		line, _, _ := strings.Cut(r.Rest, "\n")
		found = strconv.Quote(shorten.Text(line, 40))
	}
	return &SyntaxError{r.Line, wanted, found}
}

func (r *Reader) skip(n int) {
	r.Line += strings.Count(r.Rest[:n], "\n")
	r.Rest = r.Rest[n:]
}

// Take skips a token if it is next.
func (r *Reader) Take(token string) bool {
	if strings.HasPrefix(r.Rest, token) {
		r.skip(len(token))
		return true
	}
	return false
}

// Blanks skips blanks and comments, and line ends too if lines is set.
func (r *Reader) Blanks(lines bool) {
	for r.Rest != "" {
		switch c := r.Rest[0]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\f' && !r.Repr || c == '\n' && lines:
			r.skip(1)
		case c == '#' && !r.Repr:
			end := strings.IndexByte(r.Rest, '\n')
			if end < 0 {
				end = len(r.Rest)
			}
			r.skip(end)
		default:
			return
		}
	}
}

// Name skips and returns an ASCII identifier, "" if none is next.
func (r *Reader) Name() string {
	end := strings.IndexFunc(r.Rest, func(c rune) bool {
		return c != '_' && (c >= utf8.RuneSelf || !unicode.IsLetter(c) && !unicode.IsDigit(c))
	})
	if end < 0 {
		end = len(r.Rest)
	}
	name := r.Rest[:end]
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		return ""
	}
	r.skip(end)
	return name
}

// Value reads a value: a string, float64 or Number, bool, nil, []any for lists and
// tuples, or map[string]any. The error is a *SyntaxError.
func (r *Reader) Value() (any, error) { return r.value(0) }

func (r *Reader) value(depth int) (any, error) {
	const wanted = "a string, a number or a list of them"
	if r.Budget--; r.Rest == "" || depth > r.MaxDepth || r.Budget < 0 {
		return nil, r.Fail(wanted)
	}
	switch c := r.Rest[0]; {
	case r.quoted():
		text, err := r.strings()
		if err != nil {
			return nil, err
		}
		return text, nil
	case c == '[':
		return r.list("[", "]", depth)
	case c == '(':
		return r.list("(", ")", depth)
	case c == '{' && r.Repr:
		return r.dict(depth)
	case c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9':
		return r.number()
	}
	ahead := *r
	v, known := map[string]any{"True": true, "False": false, "None": nil}[ahead.Name()]
	if !known {
		return nil, r.Fail(wanted)
	}
	*r = ahead
	return v, nil
}

func (r *Reader) list(open, end string, depth int) (any, error) {
	r.Take(open)
	list := []any{}
	for {
		r.Blanks(true)
		if r.Take(end) {
			return list, nil
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if err := r.separator(end); err != nil {
			return nil, err
		}
	}
}

// separator skips a comma, which may be missing before the end.
func (r *Reader) separator(end string) error {
	r.Blanks(true)
	if !r.Take(",") && !strings.HasPrefix(r.Rest, end) {
		return r.Fail(", or " + end)
	}
	return nil
}

func (r *Reader) dict(depth int) (any, error) {
	r.Take("{")
	members := map[string]any{}
	for {
		r.Blanks(true)
		if r.Take("}") {
			return members, nil
		}
		if !r.quoted() {
			return nil, r.Fail("a string")
		}
		name, err := r.strings()
		if err != nil {
			return nil, err
		}
		if r.Blanks(true); !r.Take(":") {
			return nil, r.Fail(":")
		}
		r.Blanks(true)
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		members[name] = v
		if err := r.separator("}"); err != nil {
			return nil, err
		}
	}
}

func (r *Reader) number() (any, error) {
	end := strings.IndexFunc(r.Rest, func(c rune) bool { return !strings.ContainsRune("+-.0123456789eE_", c) })
	if end < 0 {
		end = len(r.Rest)
	}
	text := r.Rest[:end]
	if r.Repr {
		if !json.Valid([]byte(text)) {
			return nil, r.Fail("a number")
		}
		r.skip(end)
		return Number(text), nil
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if err != nil {
		return nil, r.Fail("a number")
	}
	r.skip(end)
	return n, nil
}

// quoted reports whether a string begins here.
func (r *Reader) quoted() bool {
	rest := r.Rest
	if !r.Repr {
		rest = strings.TrimLeft(rest, "rRuU")
	}
	return len(r.Rest)-len(rest) <= 1 && rest != "" && (rest[0] == '"' || rest[0] == '\'')
}

// strings reads a string. Strings side by side are one.
func (r *Reader) strings() (string, error) {
	var all strings.Builder
	for {
		if err := r.string(&all); err != nil {
			return "", err
		}
		if r.Repr {
			return all.String(), nil
		}
		if r.Blanks(true); !r.quoted() {
			return strings.ToValidUTF8(all.String(), "\uFFFD"), nil
		}
	}
}

func (r *Reader) string(out *strings.Builder) error {
	start := *r
	raw := r.Rest[0] == 'r' || r.Rest[0] == 'R'
	if r.Rest[0] != '"' && r.Rest[0] != '\'' {
		r.skip(1)
	}
	quote := r.Rest[:1]
	if triple := strings.Repeat(quote, 3); !r.Repr && strings.HasPrefix(r.Rest, triple) {
		quote = triple
	}
	r.skip(len(quote))
	for {
		switch {
		case r.Rest == "", len(quote) == 1 && r.Rest[0] == '\n':
			return start.Fail("a string that ends")
		case r.Take(quote):
			return nil
		case r.Rest[0] == '\\' && len(r.Rest) > 1 && raw:
			out.WriteString(r.Rest[:2])
			r.skip(2)
		case r.Rest[0] == '\\' && len(r.Rest) > 1:
			if err := r.escape(out); err != nil {
				return err
			}
		default:
			out.WriteByte(r.Rest[0])
			r.skip(1)
		}
	}
}

// escape reads an escape behind its backslash. As in Python an unknown escape means itself,
// though repr prints none.
func (r *Reader) escape(out *strings.Builder) error {
	const letters, meaning = "abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\""
	c := r.Rest[1]
	if i := strings.IndexByte(letters, c); i >= 0 {
		out.WriteByte(meaning[i])
		r.skip(2)
		return nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	switch {
	case digits > 0:
		if len(r.Rest) < 2+digits {
			return r.Fail("hexadecimal digits")
		}
		code, err := strconv.ParseUint(r.Rest[2:2+digits], 16, 32)
		if err != nil || code > unicode.MaxRune || r.Repr && !utf8.ValidRune(rune(code)) {
			return r.Fail("a character's code in hexadecimal digits")
		}
		out.WriteRune(rune(code))
		r.skip(2 + digits)
	case r.Repr:
		return r.Fail("an escape that repr prints")
	case c == '\n':
		r.skip(2)
	case c >= '0' && c <= '7':
		end := 2
		for end < 4 && end < len(r.Rest) && r.Rest[end] >= '0' && r.Rest[end] <= '7' {
			end++
		}
		code, _ := strconv.ParseUint(r.Rest[1:end], 8, 16)
		out.WriteRune(rune(code))
		r.skip(end)
	default:
		out.WriteByte('\\')
		r.skip(1)
	}
	return nil
}
