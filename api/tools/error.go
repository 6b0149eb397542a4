package tools

import (
	"fmt"

	"github.com/actiond/actiond/api"
)

// The codes of errors in a call, before anything ran.
const (
	InvalidJSON     = "invalid_json"
	UnknownTool     = "unknown_tool"
	MissingArgument = "missing_argument"
	UnknownArgument = "unknown_argument"
	InvalidArgument = "invalid_argument"
)

// Error is an error in a call: nothing was done.
type Error struct {
	// Code is one of the constants.
	Code string
	// Text is for the model.
	Text string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Observation returns the error as an answer to the call.
func (e *Error) Observation() api.Observation {
	return api.ErrorObservation{Content: e.Text, Code: e.Code}
}

// problem is an error of this tool.
func (t *tool) problem(code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf("tool %q: ", t.name) + fmt.Sprintf(format, args...)}
}

// missingError reports a missing argument that only some calls need.
type missingError string

func (e missingError) Error() string { return string(e) }
