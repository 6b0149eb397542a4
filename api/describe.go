package api

import (
	stdjson "encoding/json"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/actiond/actiond/internal/shorten"
)

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

// Describe describes a value of [DecodeJSON] in a few words, for messages: "the string \"x\"", "the number 3", "a
// list".
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
