package tools

import "github.com/actiond/actiond/api"

// tool is one thing that a model may call.
type tool struct {
	name string
	// also are other names that are accepted and not offered.
	also []string
	// about is the description for the model: purpose, use, limits.
	about string
	// example is the text of valid arguments, shown in the description.
	example string
	params  []param
	// needs is the action that a sandbox must support for the tool to be offered, ""
	// for none.
	needs string
	// build makes a call from checked values. The error reports a wrong value.
	build func(v values) (Call, error)
}

// kind is the type of a parameter.
type kind int

const (
	text kind = iota
	integer
	lineNumber // an integer that the editor checks
	seconds
	flag
	integers
	texts
	objects
	object
	anything
)

// param is one argument of a tool.
type param struct {
	name    string
	aliases []string
	kind    kind
	// required arguments must be sent, unless the one named by unless is; neededBy are
	// the values of "command" that require this one.
	required bool
	unless   string
	neededBy []string
	// hidden arguments are accepted and not offered.
	hidden bool
	about  string
	enum   []string // of a text
	// synonyms are other words for those of enum, in lower case and without separators.
	synonyms map[string]string
	numbers  bool // a text may be a number
	literal  bool // of a text: the word null is no sign that it was left out
	// words makes a flag one of the strings "true" and "false" in the schema, as some
	// models were trained to send it.
	words  bool
	min    *int    // of an integer
	length int     // of integers, 0 for any
	items  []param // of objects
}

// optional returns the value of an argument, or def without one.
func optional[T any](v values, name string, def T) T {
	if value, ok := v[name].(T); ok {
		return value
	}
	return def
}

// optionalOrNil returns the value of an argument, or nil without one.
func optionalOrNil[T any](v values, name string) *T {
	if value, ok := v[name].(T); ok {
		return &value
	}
	return nil
}

func (v values) text(name string) string          { return optional(v, name, "") }
func (v values) textOrNil(name string) *string    { return optionalOrNil[string](v, name) }
func (v values) flag(name string, def bool) bool  { return optional(v, name, def) }
func (v values) integer(name string, def int) int { return optional(v, name, def) }
func (v values) integerOrNil(name string) *int    { return optionalOrNil[int](v, name) }
func (v values) seconds(name string) *float64     { return optionalOrNil[float64](v, name) }
func (v values) integers(name string) []int       { return optional[[]int](v, name, nil) }
func (v values) texts(name string) []string       { return optional[[]string](v, name, nil) }
func (v values) items(name string) []values       { return optional[[]values](v, name, nil) }

var risks = map[string]api.Risk{"LOW": api.RiskLow, "MEDIUM": api.RiskMedium, "HIGH": api.RiskHigh}

// common returns the arguments that every tool accepts. Any other risk is dropped, as the
// original does.
func (v values) common() api.Common {
	c := api.Common{Thought: v.text("thought"), SecurityRisk: api.RiskUnknown}
	if risk, ok := risks[v.text("security_risk")]; ok {
		c.SecurityRisk = risk
	}
	return c
}
