package tools

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/editdistance"
)

// values are checked arguments by the names of their parameters: string, bool,
// int, float64, []int, []string, []values, or for a free object map[string]any.
// Absent arguments and nulls are left out.
type values map[string]any

// check finds the values of a tool's parameters, or the first complaint in the
// order that Parse promises. Unknown ones may be ignored.
func (t *tool) check(members map[string]any, ignore bool) (values, *Error) {
	v, err := (&checker{label: "argument", params: t.params, command: true, ignore: ignore}).check(members)
	if err != nil {
		return nil, t.problem(err.code, "%s", err.text)
	}
	return v, nil
}

// checker checks the members of one object.
type checker struct {
	label   string // the name for a member
	params  []param
	command bool // some are needed by some values of "command" alone
	ignore  bool // unknown ones are ignored
}

// complaint is an error in a member.
type complaint struct{ code, text string }

func complain(code, format string, args ...any) *complaint {
	return &complaint{code, fmt.Sprintf(format, args...)}
}

func (c *checker) check(members map[string]any) (values, *complaint) {
	members = c.given(members)
	if err := c.required(members); err != nil {
		return nil, err
	}
	if err := c.unknown(members); err != nil {
		return nil, err
	}
	v := values{}
	for i := range c.params {
		p := &c.params[i]
		name, ok := p.find(members)
		sent := members[name]
		if !ok || sent == nil && !p.required { // null counts as absent
			continue
		}
		value, ok := p.convert(sent)
		if !ok {
			hint := ""
			switch sent.(type) {
			case map[string]any, []any:
				if p.kind == text && p.enum == nil {
					hint = "; to write JSON, send the JSON as a string"
				}
			}
			return nil, complain(InvalidArgument, "%s %q must be %s, got %s%s", c.label, name, p.wants(), api.Describe(sent), hint)
		}
		v[p.name] = value
	}
	for i := range c.params {
		p := &c.params[i]
		if err := c.value(p, v, members); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// given returns the members without the values by which models leave an optional argument
// out.
func (c *checker) given(members map[string]any) map[string]any {
	members = maps.Clone(members)
	for i := range c.params {
		p := &c.params[i]
		for _, name := range p.sent(members) {
			if !p.required && p.isNone(members[name]) {
				delete(members, name)
			}
		}
	}
	return members
}

// isNone reports whether a value means that the argument was left out. A text may be any
// word, unless it has to be one of some, or names a file or a pattern.
func (p *param) isNone(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0 && (p.kind == integers || p.neededBy == nil)
	case string:
		if elements, ok := list(v); ok && p.isList() { // which may be JSON in a string
			return p.isNone(elements)
		}
		word := strings.ToLower(strings.TrimSpace(v))
		if p.kind == text && p.enum == nil {
			return word == "null" && p.neededBy == nil && !p.literal
		}
		return word == "" || word == "null" || word == "none"
	}
	return false
}

func (p *param) isList() bool { return p.kind == integers || p.kind == texts || p.kind == objects }

// required finds the first required parameter that is missing.
func (c *checker) required(members map[string]any) *complaint {
	for i := range c.params {
		if p := &c.params[i]; p.required {
			if _, ok := p.find(members); !ok && !p.excused(members) {
				return c.missing(p, members, "it must be "+p.wants())
			}
		}
	}
	if !c.command || members["edits"] != nil { // which replace old_str and new_str
		return nil
	}
	command, _ := members["command"].(string)
	for i := range c.params {
		p := &c.params[i]
		if name, _ := p.find(members); members[name] == nil && slices.Contains(p.neededBy, command) {
			return c.missing(p, members, fmt.Sprintf("the command %q needs it; it must be %s", command, p.wants()))
		}
	}
	return nil
}

// missing reports a missing argument, and names the sent one that may be a misspelling
// of it.
func (c *checker) missing(p *param, members map[string]any, why string) *complaint {
	text := fmt.Sprintf("%s %q is missing: %s", c.label, p.name, why)
	if like := closest(p.name, c.unknownNames(members)); like != "" {
		return complain(MissingArgument, "%s; what came as %s may be meant", text, api.Excerpt(like))
	}
	return complain(MissingArgument, "%s; allowed are %s", text, c.allowed())
}

// unknown finds the first member, by name, that is not a parameter, or that was sent
// a second time under another name.
func (c *checker) unknown(members map[string]any) *complaint {
	if names := c.unknownNames(members); len(names) > 0 && !c.ignore {
		name := names[0]
		text := fmt.Sprintf("%s %s is unknown", c.label, api.Excerpt(name))
		if like := closest(name, c.names()); like != "" {
			text += fmt.Sprintf("; did you mean %q?", like)
		}
		return complain(UnknownArgument, "%s; allowed are %s", text, c.allowed())
	}
	for i := range c.params {
		if came := c.params[i].sent(members); len(came) > 1 {
			return complain(InvalidArgument, "%s %q came a second time as %q; send one of them", c.label, came[0], came[1])
		}
	}
	return nil
}

// unknownNames returns the names that no parameter has, sorted.
func (c *checker) unknownNames(members map[string]any) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(members)), func(name string) bool {
		return slices.ContainsFunc(c.params, func(p param) bool { return p.name == name || slices.Contains(p.aliases, name) })
	})
}

// names returns the names that are offered to a model.
func (c *checker) names() []string {
	var names []string
	for i := range c.params {
		if !c.params[i].hidden {
			names = append(names, c.params[i].name)
		}
	}
	return names
}

func (c *checker) allowed() string {
	var words []string
	for i := range c.params {
		if p := &c.params[i]; p.required {
			words = append(words, p.name+" (required)")
		} else if !p.hidden {
			words = append(words, p.name)
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// value checks a value of the right type.
func (c *checker) value(p *param, v values, members map[string]any) *complaint {
	name, _ := p.find(members)
	sent := members[name]
	switch value := v[p.name].(type) {
	case string:
		if p.kind != text || p.enum == nil || slices.Contains(p.enum, value) {
			return nil
		}
		text := fmt.Sprintf("%s %q must be %s, got %s", c.label, name, p.wants(), api.Describe(value))
		if like := closest(value, p.enum); like != "" {
			text += fmt.Sprintf("; did you mean %q?", like)
		}
		return complain(InvalidArgument, "%s", text)
	case int:
		if p.min != nil && value < *p.min {
			return complain(InvalidArgument, "%s %q must be %s, got %d", c.label, name, p.wants(), value)
		}
	case float64:
		if value < 0 {
			return complain(InvalidArgument, "%s %q must be %s, got %s", c.label, name, p.wants(), api.Describe(sent))
		}
	case []int:
		if p.length > 0 && len(value) != p.length {
			return complain(InvalidArgument, "%s %q must be %s, got %d of them", c.label, name, p.wants(), len(value))
		}
	case []any:
		items := make([]values, len(value))
		for i, item := range value {
			members, ok := item.(map[string]any)
			if !ok {
				return complain(InvalidArgument, "%s %q must be %s, got %s at index %d", c.label, name, p.wants(),
					api.Describe(item), i)
			}
			checked, err := (&checker{label: fmt.Sprintf("%s %q, item %d: member", c.label, name, i), params: p.items}).check(members)
			if err != nil {
				return err
			}
			items[i] = checked
		}
		v[p.name] = items
	}
	return nil
}

// find looks for the parameter under all its names.
func (p *param) find(members map[string]any) (name string, ok bool) {
	if came := p.sent(members); len(came) > 0 {
		return came[0], true
	}
	return p.name, false
}

// sent returns the names of the parameter that members has.
func (p *param) sent(members map[string]any) (came []string) {
	for _, name := range append([]string{p.name}, p.aliases...) {
		if _, ok := members[name]; ok {
			came = append(came, name)
		}
	}
	return came
}

// excused reports whether the argument was sent that replaces the parameter.
func (p *param) excused(members map[string]any) bool {
	_, came := members[p.unless]
	return p.unless != "" && came
}

// convert converts an argument to its Go value. Booleans, numbers and lists may be
// strings.
func (p *param) convert(v any) (any, bool) {
	switch p.kind {
	case text:
		if n, isNumber := v.(json.Number); isNumber && p.numbers {
			return string(n), true
		}
		s, ok := v.(string)
		if word, found := p.synonyms[normalizeName(s)]; found {
			s = word
		}
		return s, ok
	case lineNumber:
		n, ok := integerOf(v)
		return strconv.Itoa(n), ok
	case integer:
		return integerOf(v)
	case seconds:
		n, ok := number(v)
		x, err := n.Float64()
		return x, ok && err == nil && !math.IsInf(x, 0)
	case flag:
		return boolean(v)
	case integers:
		return listOf(v, integerOf)
	case texts:
		return listOf(v, func(e any) (string, bool) { s, ok := e.(string); return s, ok })
	case objects:
		return list(v)
	case object:
		m, ok := v.(map[string]any)
		return m, ok
	default: // anything
		return v, true
	}
}

// boolean accepts true and false, also as strings.
func boolean(v any) (b, ok bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case string:
		word := strings.ToLower(strings.TrimSpace(v))
		return word == "true", word == "true" || word == "false"
	}
	return false, false
}

// list accepts a list, also as JSON in a string.
func list(v any) ([]any, bool) {
	if s, ok := v.(string); ok {
		v, _ = api.DecodeJSON(s)
	}
	l, ok := v.([]any)
	return l, ok
}

// listOf takes a list whose elements can all be converted.
func listOf[T any](v any, convert func(any) (T, bool)) ([]T, bool) {
	elements, ok := list(v)
	converted := make([]T, len(elements))
	for i, e := range elements {
		var fits bool
		converted[i], fits = convert(e)
		ok = ok && fits
	}
	return converted, ok
}

// wants describes the values of the parameter.
func (p *param) wants() string {
	switch p.kind {
	case text:
		if p.enum != nil {
			return "one of " + strings.Join(p.enum, ", ")
		}
		return "a string"
	case lineNumber:
		return "an integer"
	case integer:
		if p.min != nil {
			return fmt.Sprintf("an integer of at least %d", *p.min)
		}
		return "an integer"
	case seconds:
		return "a number of seconds, not negative"
	case flag:
		return "true or false"
	case integers:
		if p.length > 0 {
			return fmt.Sprintf("a list of %d integers", p.length)
		}
		return "a list of integers"
	case texts:
		return "a list of strings"
	case objects:
		return "a list of objects"
	case object:
		return "an object"
	default:
		return "any value"
	}
}

// closest returns the word that is most similar to the sent one, or "" if none is
// similar.
func closest(came string, words []string) string {
	best, least := "", math.MaxInt
	a := normalizeName(came)
	if len(a) > 64 { // no name is that long
		return ""
	}
	for _, w := range words {
		b := normalizeName(w)
		d := editdistance.Bounded([]byte(a), []byte(b), 64) // no name is that far from another one
		if a != "" && b != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
			d = min(d, 1)
		}
		if len(b) <= 64 && d < least && d <= max(1, min(len(a), len(b))/3) {
			best, least = w, d
		}
	}
	return best
}

// normalizeName returns a name in lower case without separators: fileText and file_text
// are equal.
func normalizeName(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
}
