// Package tools turns what a model says into what a sandbox does: a tool
// name and arguments, in the dialect that the family of the model was trained
// on, become an action. It holds the one table of dialects and tools, from
// which the definitions for model APIs are made as well, and knows nothing
// about who carries actions out.
package tools

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
)

// Default is the dialect of calls that name none.
const Default = "openhands"

// Call is a tool call that was understood and passed every check that needs no
// sandbox.
type Call struct {
	// Action is what is to be done, nil where nothing is.
	Action api.Action
	// Timeout is the limit in seconds that the model asked for, nil for none.
	Timeout *float64
	// Answer is the observation of a call with nothing to do, nil otherwise.
	Answer api.Observation
	// Repaired says in a sentence each what of the arguments was no JSON and
	// what was made of it; nil when they were in order.
	Repaired []string
}

// Parse understands one tool call. arguments is the text of a JSON object, as
// the model wrote it; empty, it is an object without members. An empty dialect
// is Default. Checks come in this order: the tool is known, the arguments
// parse, the required ones are there, there are no others, their types, their
// values. The error is meant for the model: it names the tool, the argument,
// what came and what is allowed. Parse may be called concurrently.
func Parse(dialect, name, arguments string) (Call, *Error) {
	t, problem := find(dialect, name)
	if problem != nil {
		return Call{}, problem
	}
	members, repaired, err := parseArguments(arguments)
	if err != nil {
		return Call{}, t.problem(InvalidJSON, "the arguments %s", err)
	}
	v, problem := t.check(members)
	if problem != nil {
		return Call{}, problem
	}
	call, err := t.build(v)
	if missing, ok := errors.AsType[missingError](err); ok {
		return Call{}, t.problem(MissingArgument, "%s", missing)
	} else if err != nil {
		return Call{}, t.problem(InvalidArgument, "%s", err)
	}
	call.Repaired = repaired
	return call, nil
}

// Dialects returns the names of the dialects, sorted.
func Dialects() []string {
	return slices.Sorted(maps.Keys(dialects))
}

// Known tells whether there is a dialect of that name; the empty one is Default.
func Known(dialect string) bool {
	_, ok := dialects[cmp.Or(dialect, Default)]
	return ok
}

// dialects is the table of everything that a model may say.
var dialects = map[string][]tool{
	Default:                        openHands,
	string(api.DialectOpenHandsV1): openHandsV1,
	string(api.DialectGemini):      gemini,
	string(api.DialectStrands):     strands,
	string(api.DialectAnthropic):   anthropic,
}

// find looks a tool up by its name or another that it is known by.
func find(dialect, name string) (*tool, *Error) {
	dialect = cmp.Or(dialect, Default)
	tools, ok := dialects[dialect]
	if !ok {
		return nil, &Error{Code: UnknownTool, Text: fmt.Sprintf("dialect %s is unknown; dialects are %s", api.Excerpt(dialect), strings.Join(Dialects(), ", "))}
	}
	var names []string
	for i := range tools {
		if tools[i].name == name || slices.Contains(tools[i].also, name) {
			return &tools[i], nil
		}
		names = append(names, tools[i].name)
	}
	for i := range legacy {
		if legacy[i].name == name {
			return &legacy[i], nil
		}
	}
	text := fmt.Sprintf("tool %s is unknown in the dialect %q", api.Excerpt(name), dialect)
	if close := closest(name, names); close != "" {
		text += fmt.Sprintf("; did you mean %q?", close)
	}
	return nil, &Error{Code: UnknownTool, Text: text + "; tools are " + strings.Join(names, ", ")}
}
