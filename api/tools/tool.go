package tools

import "github.com/actiond/actiond/api"

// tool is one thing that a model may call.
type tool struct {
	name string
	// also are other names that it is known by and that are not offered.
	also []string
	// about is the description for the model: what, when, limits.
	about string
	// example is the text of arguments that pass, shown in the description.
	example string
	params  []param
	// needs is the action that a sandbox must be capable of for the tool to be
	// offered, "" for none.
	needs string
	// build makes the call of checked values. The error is a wrong value.
	build func(v values) (Call, error)
}

// kind is the type of a parameter.
type kind int

const (
	text kind = iota
	integer
	lineNumber // an integer that is judged where the file is known
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
	// required arguments must come, unless the one of that name does; neededBy
	// are the values of "command" that want this one.
	required bool
	unless   string
	neededBy []string
	// hidden arguments are understood and not offered.
	hidden bool
	about  string
	enum   []string // of a text
	// words makes a flag travel as one of the strings "true" and "false" in the
	// schema, as some models were trained to send it.
	words  bool
	min    *int    // of an integer
	length int     // of integers, 0 for any
	items  []param // of objects
}

// The values of optional arguments; zero values where they did not come.

func (v values) text(name string) string {
	s, _ := v[name].(string)
	return s
}

func (v values) textOrNil(name string) *string {
	if s, ok := v[name].(string); ok {
		return &s
	}
	return nil
}

func (v values) flag(name string, def bool) bool {
	if b, ok := v[name].(bool); ok {
		return b
	}
	return def
}

func (v values) integer(name string, def int) int {
	if n, ok := v[name].(int); ok {
		return n
	}
	return def
}

func (v values) integerOrNil(name string) *int {
	if n, ok := v[name].(int); ok {
		return &n
	}
	return nil
}

func (v values) seconds(name string) *float64 {
	if x, ok := v[name].(float64); ok {
		return &x
	}
	return nil
}

func (v values) integers(name string) []int {
	ns, _ := v[name].([]int)
	return ns
}

func (v values) texts(name string) []string {
	ss, _ := v[name].([]string)
	return ss
}

func (v values) items(name string) []values {
	items, _ := v[name].([]values)
	return items
}

// common is what every call may carry. A risk that is no risk is dropped, as
// the original does.
func (v values) common() api.Common {
	c := api.Common{Thought: v.text("thought"), SecurityRisk: -1}
	switch risk, _ := v["security_risk"].(string); risk {
	case "LOW":
		c.SecurityRisk = 0
	case "MEDIUM":
		c.SecurityRisk = 1
	case "HIGH":
		c.SecurityRisk = 2
	}
	return c
}
