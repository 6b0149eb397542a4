package browse

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// call is one call of a program, with its arguments in the order of the table.
type call struct {
	name string
	args []any // string, float64, bool, nil or []any
}

func (c call) text(i int) string    { s, _ := c.args[i].(string); return s }
func (c call) number(i int) float64 { n, _ := c.args[i].(float64); return n }

// texts returns a list of texts; a single text is a list of one.
func (c call) texts(i int) []string {
	if s, ok := c.args[i].(string); ok {
		return []string{s}
	}
	items, _ := c.args[i].([]any)
	out := make([]string, 0, len(items))
	for _, item := range items {
		s, _ := item.(string)
		out = append(out, s)
	}
	return out
}

type kind int

const (
	text   kind = iota
	number      // finite
	texts       // a text or a list of them
)

func (k kind) String() string {
	return [...]string{"a string", "a number", "a string or a list of strings"}[k]
}

type param struct {
	name     string
	kind     kind
	fallback any // nil: required
}

// table has the calls of BrowserGym that OpenHands offers to agents, and those
// that its environment accepts beside them (docs/reference/openhands-protocol.md, section 8.1).
var table = []struct {
	name   string
	params []param
}{
	{"goto", []param{{"url", text, nil}}},
	{"go_back", nil},
	{"go_forward", nil},
	{"noop", []param{{"wait_ms", number, 1000.0}}},
	{"scroll", []param{{"delta_x", number, nil}, {"delta_y", number, nil}}},
	{"fill", []param{{"bid", text, nil}, {"value", text, nil}}},
	{"select_option", []param{{"bid", text, nil}, {"options", texts, nil}}},
	{"click", []param{{"bid", text, nil}, {"button", text, "left"}, {"modifiers", texts, []any{}}}},
	{"dblclick", []param{{"bid", text, nil}, {"button", text, "left"}, {"modifiers", texts, []any{}}}},
	{"hover", []param{{"bid", text, nil}}},
	{"press", []param{{"bid", text, nil}, {"key_comb", text, nil}}},
	{"focus", []param{{"bid", text, nil}}},
	{"clear", []param{{"bid", text, nil}}},
	{"drag_and_drop", []param{{"from_bid", text, nil}, {"to_bid", text, nil}}},
	{"upload_file", []param{{"bid", text, nil}, {"file", texts, nil}}},
	{"new_tab", nil},
	{"tab_focus", []param{{"index", number, nil}}},
	{"tab_close", nil},
	{"send_msg_to_user", []param{{"text", text, nil}}},
	{"report_infeasible", []param{{"reason", text, nil}}},
}

// bind matches arguments to the parameters of a call.
func bind(name string, positional []any, named map[string]any) (call, error) {
	for _, t := range table {
		if t.name != name {
			continue
		}
		if len(positional) > len(t.params) {
			return call{}, fail("TypeError", "%s takes %d arguments and was given %d", name, len(t.params), len(positional))
		}
		c := call{name: name}
		for i, p := range t.params {
			v, given := named[p.name]
			switch {
			case i < len(positional) && given:
				return call{}, fail("TypeError", "%s was given %s twice", name, p.name)
			case i < len(positional):
				v = positional[i]
			case !given && p.fallback == nil:
				return call{}, fail("TypeError", "%s needs the argument %s", name, p.name)
			case !given:
				v = p.fallback
			}
			delete(named, p.name)
			v, ok := p.kind.accept(v, p.name)
			if !ok {
				return call{}, fail("ValueError", "the argument %s of %s must be %v", p.name, name, p.kind)
			}
			c.args = append(c.args, v)
		}
		for unknown := range named {
			return call{}, fail("TypeError", "%s has no argument %s", name, clip(unknown, 100))
		}
		return c, nil
	}
	known := make([]string, 0, len(table))
	for _, t := range table {
		known = append(known, t.name)
	}
	return call{}, fail("NameError", "there is no action %s; there are %s", clip(name, 100), strings.Join(known, ", "))
}

// accept reports whether v is of the kind. It turns a number for a bid, which
// models write too, into a text.
func (k kind) accept(v any, name string) (any, bool) {
	if n, ok := v.(float64); ok && strings.HasSuffix(name, "bid") && n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		v = fmt.Sprintf("%.0f", n)
	}
	switch v := v.(type) {
	case string:
		return v, k != number
	case float64:
		return v, k == number
	case []any:
		return v, k == texts && !slices.ContainsFunc(v, func(item any) bool { _, ok := item.(string); return !ok })
	}
	return v, false
}

// failure is an error of a program or a call in the form of Python: a type and
// a message.
type failure struct{ kind, message string }

func (f *failure) Error() string { return f.kind + ": " + f.message }

func fail(kind, format string, args ...any) error {
	return &failure{kind, fmt.Sprintf(format, args...)}
}
