package api

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/actiond/actiond/internal/shorten"
)

const (
	// maxValues bounds the values in the arguments of one action, lists included:
	// a body of brackets and commas would otherwise take thirty times its size.
	maxValues = 10_000
	// unlimited is for values that were counted before, and for the answers of servers.
	unlimited = math.MaxInt
	// maxDepth bounds nesting. Nothing on the wire comes near it.
	maxDepth = 1000
)

// syntax are the rules for reading text: of equal names the last one wins, as in
// Python. A scanner has refused invalid UTF-8 before, so that only half of a
// surrogate pair remains to be replaced.
var syntax = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// strict and lax are the rules for decoding values: a text with half of a
// surrogate pair is refused or has U+FFFD in its place.
var (
	strict = json.JoinOptions(syntax, json.WithUnmarshalers(unmarshalers(true)))
	lax    = json.JoinOptions(syntax, json.WithUnmarshalers(unmarshalers(false)))
)

func unmarshalers(strict bool) *json.Unmarshalers {
	return json.JoinUnmarshalers(
		json.UnmarshalFromFunc(decodeInteger[int]),
		json.UnmarshalFromFunc(decodeInteger[int64]),
		json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *any) error { return decodeAny(dec, v, strict) }),
		json.UnmarshalFromFunc(func(dec *jsontext.Decoder, s *string) error {
			raw, err := dec.ReadValue()
			if err == nil {
				*s, err = text(raw, strict)
			}
			return err
		}),
	)
}

// decodeInteger takes 2.0 and 1e2 for integers.
func decodeInteger[T int | int64](dec *jsontext.Decoder, n *T) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	whole, ok := Integral(string(raw))
	if !ok {
		return &wantError{"an integer", raw.Clone()}
	}
	*n = T(whole)
	return nil
}

// decodeAny keeps numbers as they were written, and strict keeps texts with half
// of a surrogate pair apart.
func decodeAny(dec *jsontext.Decoder, v *any, strict bool) error {
	*v = nil // of equal names the last one wins
	kind := dec.PeekKind()
	if kind != '0' && kind != '"' {
		return errors.ErrUnsupported
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if kind == '0' {
		*v = stdjson.Number(raw)
		return nil
	}
	s, half := unquote(raw)
	if *v = s; half && strict {
		*v = halfPair(s)
	}
	return nil
}

// anyOf returns a valid value in the types of [DecodeJSON].
func anyOf(raw jsontext.Value) any {
	var v any
	if err := json.Unmarshal(raw, &v, strict); err != nil {
		return nil // not reached: a scanner has read the value
	}
	return v
}

// text returns what a JSON string says.
func text(raw jsontext.Value, strict bool) (string, error) {
	if raw.Kind() != '"' {
		return "", &wantError{"a string", raw.Clone()}
	}
	s, half := unquote(raw)
	if half && strict {
		return "", &wantError{"a string", raw.Clone()}
	}
	return s, nil
}

// unquote returns what a valid JSON string says. half reports that it held half
// of a surrogate pair.
func unquote(raw jsontext.Value) (s string, half bool) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), false
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	return string(b), err != nil
}

// DecodeJSON reads one JSON text strictly (RFC 8259): at most 10,000 values, at
// most 1000 levels deep. Values are nil, bool, json.Number, string, []any and
// map[string]any; of equal names the last one wins. A string with half of a
// surrogate pair, which JSON can write and UTF-8 cannot, is a value of another
// type, which [Describe] knows. The error names the byte that is wrong.
func DecodeJSON(text string) (any, error) {
	raw, err := readValue([]byte(text), maxValues)
	if err != nil {
		return nil, err
	}
	return anyOf(raw), nil
}

// Describe says what a value of [DecodeJSON] is, in words and short, for
// messages: "the string \"x\"", "the number 3", "a list".
func Describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case stdjson.Number:
		return "the number " + shorten.Text(string(v), 40)
	case string:
		return "the string " + Excerpt(v)
	case halfPair:
		return "a string with half of a surrogate pair, which is no character"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("%T", v)
}

// Excerpt quotes a text of the caller and keeps it short, for messages.
func Excerpt(s string) string { return shorten.Quoted(s, 64) }

// Integral returns the integer that a JSON number is; 2.0 and 1e2 are integers
// too. It reports false for any other number or text.
func Integral(number string) (int, bool) {
	if n, err := strconv.Atoi(number); err == nil {
		return n, true
	}
	// Beyond 2^53 a float no longer knows which integer it is.
	x, err := strconv.ParseFloat(number, 64)
	if n := int(x); err == nil && x >= -1<<53 && x <= 1<<53 && float64(n) == x {
		return n, true
	}
	return 0, false
}

// halfPair is a text that held half of a surrogate pair, replaced by U+FFFD.
type halfPair string

// describe is [Describe] for a value as it was written.
func describe(raw jsontext.Value) string {
	switch raw.Kind() {
	case '{':
		return "an object"
	case '[':
		return "a list"
	default:
		return Describe(anyOf(raw))
	}
}

// scanner reads one JSON text token by token. It finds the values that matter as
// they were written, so that each is decoded once, into its own type, and
// bounds them before anything is built.
type scanner struct {
	data   []byte
	dec    *jsontext.Decoder
	budget int // values that may still be read
}

// newScanner returns a scanner that reads at most budget values.
func newScanner(data []byte, budget int) (*scanner, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("not valid UTF-8 at byte %d", validLen(data))
	}
	return &scanner{data: data, dec: jsontext.NewDecoder(bytes.NewBuffer(data), syntax), budget: budget}, nil
}

// validLen returns how many bytes at the beginning are valid UTF-8.
func validLen(data []byte) int {
	n := 0
	for n < len(data) {
		r, size := utf8.DecodeRune(data[n:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		n += size
	}
	return n
}

// object reads an object and calls member for each name; member must read the
// value. Any other value is an error that says what is wanted.
func (s *scanner) object(want string, member func(name string) error) error {
	if start := s.skipBlanks(int(s.dec.InputOffset())); s.dec.PeekKind() != '{' {
		raw, err := s.value()
		if err == nil {
			err = s.end()
		}
		if err != nil {
			return s.unexpected(start, want)
		}
		return fmt.Errorf("must be %s, got %s", want, describe(raw))
	}
	token, err := s.dec.ReadToken()
	for ; err == nil; token, err = s.dec.ReadToken() {
		switch token.Kind() {
		case '{':
		case '}':
			return nil
		default:
			if err := member(token.String()); err != nil {
				return err
			}
		}
	}
	return s.fault()
}

// value reads the next value and returns it as it was written.
func (s *scanner) value() (jsontext.Value, error) {
	start, depth := s.dec.InputOffset(), s.dec.StackDepth()
	for {
		token, err := s.dec.ReadToken()
		if err != nil {
			return nil, s.fault()
		}
		inside := s.dec.StackDepth()
		if inside > maxDepth {
			return nil, fmt.Errorf("nested deeper than %d levels at byte %d", maxDepth, s.dec.InputOffset())
		}
		container, length := s.dec.StackIndex(inside)
		isName := container == '{' && length%2 == 1
		isEnd := token.Kind() == '}' || token.Kind() == ']'
		if !isName && !isEnd {
			s.budget--
		}
		if s.budget < 0 {
			return nil, fmt.Errorf("too many values at byte %d", s.dec.InputOffset())
		}
		if inside == depth {
			return jsontext.Value(bytes.TrimLeft(s.data[start:s.dec.InputOffset()], blanks+":,")), nil
		}
	}
}

// uncounted is value without a limit to the number of values.
func (s *scanner) uncounted() (jsontext.Value, error) {
	budget := s.budget
	s.budget = unlimited
	raw, err := s.value()
	s.budget = budget
	return raw, err
}

// skip reads the next value, which does not matter.
func (s *scanner) skip() error {
	_, err := s.uncounted()
	return err
}

// end refuses what follows the value.
func (s *scanner) end() error {
	if pos := s.skipBlanks(int(s.dec.InputOffset())); pos < len(s.data) {
		return s.unexpected(pos, "the end")
	}
	return nil
}

// readValue reads a text that is one value.
func readValue(data []byte, budget int) (jsontext.Value, error) {
	s, err := newScanner(data, budget)
	if err != nil {
		return nil, err
	}
	raw, err := s.value()
	if err != nil {
		return nil, err
	}
	return raw, s.end()
}

// members are the values in an object by name, as they were written.
type members map[string]jsontext.Value

// readMembers reads a text that is one object. It keeps the members of the given
// names, or all of them where none is given.
func readMembers(data []byte, budget int, want string, names ...string) (members, error) {
	s, err := newScanner(data, budget)
	if err != nil {
		return nil, err
	}
	m := members{}
	if err := s.object(want, func(name string) error { return m.read(s, name, names...) }); err != nil {
		return nil, err
	}
	return m, s.end()
}

// read reads the value of the named member. It keeps it if the name is among
// names, or if names is empty.
func (m members) read(s *scanner, name string, names ...string) (err error) {
	if len(names) > 0 && !slices.Contains(names, name) {
		return s.skip()
	}
	m[name], err = s.value()
	return err
}
