package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fields hands out the members of a JSON object by name and type, and
// remembers what was wrong. Null counts as absent where a default exists.
type fields struct {
	// of begins messages, such as `action "run": argument`.
	of     string
	values map[string]any // what was not taken yet
	names  []string       // what was asked for, with a note where it is required
	// The first member that is missing, the first of a wrong type, and what the
	// editor has to say about the first that is its own affair.
	missing, wrong, odd string
}

// take removes a member and returns it; false when it is absent.
func (f *fields) take(name string) (any, bool) {
	v, ok := f.values[name]
	delete(f.values, name)
	f.names = append(f.names, name)
	return v, ok
}

// need is take for a member without default.
func (f *fields) need(name string) (any, bool) {
	v, ok := f.take(name)
	f.names[len(f.names)-1] += " (required)"
	if !ok && f.missing == "" {
		f.missing = name
	}
	return v, ok
}

// complain remembers the first wrong member.
func (f *fields) complain(name string, v any, want string) {
	if f.wrong == "" {
		f.wrong = fmt.Sprintf("%s %q must be %s, got %s", f.of, name, want, describe(v))
	}
}

// needText takes a string that has no default.
func (f *fields) needText(name string) string {
	v, ok := f.need(name)
	s, isText := v.(string)
	if ok && !isText {
		f.complain(name, v, "a string")
	}
	return s
}

func (f *fields) text(name, def string) string {
	if s := f.textOrNil(name); s != nil {
		return *s
	}
	return def
}

func (f *fields) textOrNil(name string) *string {
	v, _ := f.take(name)
	if v == nil {
		return nil
	}
	s, ok := v.(string)
	if !ok {
		f.complain(name, v, "a string")
	}
	return &s
}

func (f *fields) flag(name string, def bool) bool {
	v, _ := f.take(name)
	if v == nil {
		return def
	}
	b, ok := v.(bool)
	if !ok {
		f.complain(name, v, "true or false")
	}
	return b
}

func (f *fields) integer(name string, def int) int {
	if n := f.integerOrNil(name); n != nil {
		return *n
	}
	return def
}

func (f *fields) integerOrNil(name string) *int {
	v, _ := f.take(name)
	if v == nil {
		return nil
	}
	n, ok := integral(v)
	if !ok {
		f.complain(name, v, "an integer")
	}
	return &n
}

// texts takes a list of strings, nil when absent.
func (f *fields) texts(name string) []string {
	v, _ := f.take(name)
	if v == nil {
		return nil
	}
	const want = "a list of strings"
	list, ok := v.([]any)
	if !ok {
		f.complain(name, v, want)
	}
	ss := make([]string, 0, len(list))
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			f.complain(name, e, want)
		}
		ss = append(ss, s)
	}
	return ss
}

// object takes an object, an empty one when absent.
func (f *fields) object(name string) map[string]any {
	v, _ := f.take(name)
	if v == nil {
		return map[string]any{}
	}
	m, ok := v.(map[string]any)
	if !ok {
		f.complain(name, v, "an object")
	}
	return m
}

// check returns the first complaint: a missing member, one of a wrong type.
func (f *fields) check() error {
	if f.missing != "" {
		return fmt.Errorf("%s %q is missing; allowed are %s", f.of, f.missing, strings.Join(f.names, ", "))
	}
	if f.wrong != "" {
		return errors.New(f.wrong)
	}
	return nil
}

// checkAll is check, and refuses members that nobody asked for.
func (f *fields) checkAll() error {
	if f.missing == "" && len(f.values) > 0 {
		name := slices.Min(slices.Collect(maps.Keys(f.values)))
		return fmt.Errorf("%s %s is unknown; allowed are %s", f.of, excerpt(name), strings.Join(f.names, ", "))
	}
	return f.check()
}

// describe says what a JSON value is, in words and short.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		if len(v) > 40 {
			return "the number " + string(v[:40]) + "…"
		}
		return "the number " + string(v)
	case string:
		return "the string " + excerpt(v)
	case halfPair:
		return "a string with half of a surrogate pair, which is no character"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("%T", v)
}

// python prints a value as Python's repr does, a text cut short.
func python(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case json.Number:
		return string(v)
	case string:
		text := excerpt(v)
		end := strings.LastIndexByte(text, '"')
		return "'" + text[1:end] + "'" + text[end+1:]
	case []any:
		texts := make([]string, 0, len(v))
		for _, e := range v {
			texts = append(texts, python(e))
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	return describe(v)
}

// excerpt quotes a text of the caller's and keeps it short.
func excerpt(s string) string {
	const most = 64
	if len(s) <= most {
		return strconv.Quote(s)
	}
	end := most
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return strconv.Quote(s[:end]) + "…"
}

// integral returns a number that has no fraction. 2.0 and 1e2 have none.
func integral(v any) (int, bool) {
	number, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	if n, err := strconv.Atoi(string(number)); err == nil {
		return n, true
	}
	// Beyond 2^53 a float no longer knows which integer it is.
	x, err := strconv.ParseFloat(string(number), 64)
	if n := int(x); err == nil && x >= -1<<53 && x <= 1<<53 && float64(n) == x {
		return n, true
	}
	return 0, false
}
