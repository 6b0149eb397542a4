// Package tools turns tool calls of models into actions: a tool name and arguments in
// the dialect that the model family was trained on. It holds the table of dialects and
// tools, and makes the definitions for model APIs from it. It does not run actions.
package tools

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/actiond/actiond/api"
)

// Default is the dialect of calls that name none.
const Default = "openhands"

// Call is a parsed tool call that passed every check that needs no sandbox.
type Call struct {
	// Action is the action to run, nil without one.
	Action api.Action
	// Timeout is the model's timeout in seconds, nil for none.
	Timeout *float64
	// Answer is the observation of a call without an action, otherwise nil.
	Answer api.Observation
	// Workspace is a call about the changes of the workspace, which has neither; nil for others.
	Workspace *Workspace
	// Background is a call about programs that go on after their answer; nil for others.
	Background *Background
	// Repaired lists, in a sentence each, the repairs of arguments that were invalid JSON;
	// nil if they were valid.
	Repaired []string
}

// Parse parses one tool call. arguments is the text of a JSON object, as the model
// wrote it; "" is an empty object. An empty dialect is Default. The checks are, in this
// order: the name of the tool, the syntax of the arguments, missing ones, unknown ones,
// their types, their values. The error is for the model: it names the tool, the argument,
// its value and the allowed values. Parse may be called concurrently.
func Parse(dialect, name, arguments string) (Call, *Error) {
	return parse(dialect, name, arguments, false)
}

// ParseKnown is Parse for protocols whose clients send members beside the arguments: what the
// tool does not take is ignored.
func ParseKnown(dialect, name, arguments string) (Call, *Error) {
	return parse(dialect, name, arguments, true)
}

func parse(dialect, name, arguments string, ignore bool) (Call, *Error) {
	t, problem := find(dialect, name)
	if problem != nil {
		return Call{}, problem
	}
	members, repaired, err := parseArguments(arguments)
	if err != nil {
		return Call{}, t.problem(InvalidJSON, "the arguments %s", err)
	}
	v, problem := t.check(members, ignore)
	if problem != nil {
		return Call{}, problem
	}
	call, err := t.build(v)
	if missing, ok := errors.AsType[missingError](err); ok {
		return Call{}, t.problem(MissingArgument, "%s", missing)
	} else if err != nil {
		return Call{}, t.problem(InvalidArgument, "%s", err)
	}
	if run, ok := call.Action.(api.RunAction); ok {
		run.Advice = api.RunAdvice(t.name, t.takes("is_input"), t.takes("timeout"))
		call.Action = run
	}
	call.Repaired = repaired
	return call, nil
}

// takes reports whether a tool has an argument.
func (t *tool) takes(name string) bool {
	return slices.ContainsFunc(t.params, func(p param) bool { return p.name == name })
}

// Dialects returns the names of the dialects, sorted.
func Dialects() []string {
	return slices.Sorted(maps.Keys(dialects()))
}

// Choices say which dialect and which formats fit a model, for people.
var Choices = []struct{ Model, Dialect, Formats string }{
	{"GPT and others", string(api.DialectActiond), "openai-responses or openai"},
	{"Claude", string(api.DialectAnthropic), "anthropic"},
	{"Claude's managed agents", string(api.DialectToolset), "anthropic"},
	{"Gemini", string(api.DialectGemini), "gemini"},
	{"OpenHands", string(api.DialectOpenHandsV1), "openai"},
	{"Strands", string(api.DialectStrands), "the model's"},
}

// CheckDialect returns an error for the caller, unless the dialect exists; the empty one is Default.
func CheckDialect(dialect string) error {
	return check("dialect", cmp.Or(dialect, Default), Dialects(), "format", Formats)
}

// CheckFormat returns an error for the caller, unless the format exists; the empty one is the default one.
func CheckFormat(format string) error {
	return check("format", cmp.Or(format, Formats[0]), Formats, "dialect", Dialects())
}

// check returns an error for a name that is not one of a kind. The error names these, and the choices.
func check(kind, name string, names []string, otherKind string, others []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	text := fmt.Sprintf("%s %s is unknown; %ss are %s", kind, api.Excerpt(name), kind, strings.Join(names, ", "))
	if slices.Contains(others, name) {
		text += fmt.Sprintf("; %s is a %s: %s=%s", name, otherKind, otherKind, name)
	}
	var fitting []string
	for _, c := range Choices {
		fitting = append(fitting, fmt.Sprintf("%s %s (%s)", c.Model, c.Dialect, c.Formats))
	}
	return errors.New(text + "; dialect (format) by model: " + strings.Join(fitting, ", "))
}

// dialects is the table of all tools that a model may call.
var dialects = sync.OnceValue(func() map[string][]tool {
	return map[string][]tool{
		Default:                        slices.Concat(openHands, workspaceTools),
		string(api.DialectOpenHandsV1): with(slices.Concat(openHandsV1, workspaceTools), summary),
		string(api.DialectGemini):      with(slices.Concat(gemini, backgroundTools, workspaceTools), summary, waitForPrevious), // of which the agent SDK has some
		string(api.DialectStrands):     slices.Concat(strands, workspaceTools),
		string(api.DialectAnthropic):   slices.Concat(anthropic, workspaceTools),
		string(api.DialectToolset):     slices.Concat(toolset, workspaceTools),
		string(api.DialectActiond):     actiond,
	}
})

// find looks a tool up by one of its names.
func find(dialect, name string) (*tool, *Error) {
	dialect = cmp.Or(dialect, Default)
	tools, ok := dialects()[dialect]
	if !ok {
		return nil, &Error{Code: UnknownTool, Text: CheckDialect(dialect).Error()}
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
