package api

import (
	"fmt"
	"net/http"
	"strings"
)

// Error is a refusal: the caller is wrong and nothing was done.
type Error struct {
	// Status is the HTTP status of the answer, 4xx.
	Status int
	// Detail is the message: the problem, the thing that has it, and the next step.
	Detail string
	// Errors is the message where Detail is a fixed sentence (status 422); empty
	// otherwise.
	Errors string
	// Fault is the file that the refusal is about; zero for other refusals.
	Fault Fault
	// Code is a word for programs, such as "stopped", and Reason says why a sandbox ended; both
	// may be "". The legacy protocol has neither.
	Code, Reason string
}

// Fault is the error of a file.
type Fault struct {
	// Code is a word of ErrorCode in openapi.yaml.
	Code string `json:"code"`
	// Path is the absolute path of the file.
	Path string `json:"path"`
	// Errno is the name of the system's error, such as "ENOENT", or "".
	Errno string `json:"errno,omitzero"`
}

// FileError refuses a request because of a file, with the status that fits the fault.
func FileError(f Fault, detail string) *Error {
	e := &Error{Status: http.StatusBadRequest, Detail: detail, Fault: f}
	switch f.Code {
	case "file_not_found":
		e.Status = http.StatusNotFound
	case "permission_denied":
		e.Status = http.StatusForbidden
	case "already_exists", "directory_not_empty", "conflict":
		e.Status = http.StatusConflict
	case "file_too_large":
		e.Status = http.StatusRequestEntityTooLarge
	case "no_space":
		e.Status = http.StatusInsufficientStorage
	}
	return e
}

// Error returns the detail.
func (e *Error) Error() string { return e.Detail }

// invalidToken is OAuth's error code for the status 401.
const invalidToken = "invalid_token"

// EncodeError returns the JSON body of a refusal on a route of the legacy protocol,
// or of MCP: {"detail":…}, with "errors"
// where e has them; one with status 401 has OAuth's form,
// {"error":…,"error_description":…}.
func EncodeError(e *Error) []byte {
	body := struct {
		Error       string  `json:"error,omitzero"`
		Description string  `json:"error_description,omitzero"`
		Detail      *string `json:"detail,omitzero"`
		Errors      string  `json:"errors,omitzero"`
	}{Detail: &e.Detail, Errors: e.Errors}
	if e.Status == http.StatusUnauthorized {
		body.Error, body.Description, body.Detail = invalidToken, e.Detail, nil
	}
	data, _ := Encode(body) // texts can always be encoded
	return data
}

// Refusal is the body of every refusal and failure on the routes under /v1/.
type Refusal struct {
	// Detail is the message: the problem, the thing that has it, and the next step.
	Detail string `json:"detail"`
	// Errors lists the errors in the body or the query, as texts, or the error of a file,
	// as a [Fault]; it is empty, and not null, for other problems.
	Errors []any `json:"errors"`
	// Code is a word for programs; "" where there is none, and for the error of a file, which has its own.
	Code string `json:"code,omitzero"`
	// Reason is why the sandbox ended, such as "deadline", or "".
	Reason string `json:"reason,omitzero"`
	// ID finds the failure in the server's log; "" for a refusal.
	ID string `json:"id,omitzero"`
}

// NewRefusal returns the body for an error, and the id of its entry in the log.
func NewRefusal(e *Error, id string) Refusal {
	body := Refusal{Detail: e.Detail, Errors: []any{}, Code: e.Code, Reason: e.Reason, ID: id}
	switch {
	case e.Errors != "":
		body.Detail, body.Errors = e.Errors, []any{e.Errors}
	case e.Fault != Fault{}:
		body.Errors = []any{e.Fault}
	}
	return body
}

// EncodeRefusal returns the JSON body of a refusal on a route at path, or of a failure that
// the log has under id: in the one shape of the routes under /v1/, or in that of the legacy
// protocol.
func EncodeRefusal(e *Error, path, id string) []byte {
	var body any
	switch {
	case strings.HasPrefix(path, "/v1/"):
		body = NewRefusal(e, id)
	case id != "":
		body = Broken{Detail: e.Detail, ID: id}
	default:
		return EncodeError(e)
	}
	data, _ := Encode(body) // texts can always be encoded
	return data
}

// Challenge is the WWW-Authenticate header that goes with a status 401.
func Challenge(e *Error) string {
	return fmt.Sprintf("Bearer error=%q, error_description=%q", invalidToken, e.Detail)
}

// BadRequest refuses a wrong request.
func BadRequest(detail string) *Error { return &Error{Status: http.StatusBadRequest, Detail: detail} }

// Unprocessable refuses a request that is well formed and names a thing that does not exist.
func Unprocessable(detail string) *Error {
	return &Error{Status: http.StatusUnprocessableEntity, Detail: detail}
}

// Invalid refuses a body or a query, and lists its errors.
func Invalid(errors string) *Error {
	return &Error{Status: http.StatusUnprocessableEntity, Detail: "Invalid request parameters", Errors: errors}
}

// NotFound refuses a request for a thing that does not exist.
func NotFound(detail string) *Error { return &Error{Status: http.StatusNotFound, Detail: detail} }

// TooMany refuses a request because of load: nothing was done, and the caller may try
// again later.
func TooMany(detail string) *Error { return &Error{Status: http.StatusTooManyRequests, Detail: detail} }

// Conflict refuses a request that does not fit the current state.
func Conflict(detail string) *Error { return &Error{Status: http.StatusConflict, Detail: detail} }

// Unmet refuses a request whose own condition does not hold.
func Unmet(detail string) *Error {
	return &Error{Status: http.StatusPreconditionFailed, Detail: detail}
}

// NoSpace refuses a request that needs more storage than is left.
func NoSpace(detail string) *Error {
	return &Error{Status: http.StatusInsufficientStorage, Detail: detail}
}
