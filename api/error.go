package api

import (
	"fmt"
	"net/http"
)

// Error is a refusal: the caller is wrong and nothing was done.
type Error struct {
	// Status is the HTTP status of the answer, 4xx.
	Status int
	// Detail says what is wrong, with which thing, and what to do next.
	Detail string
	// Errors says more where Detail is a fixed sentence (status 422); empty
	// otherwise.
	Errors string
}

// Error returns the detail.
func (e *Error) Error() string { return e.Detail }

// invalidToken is OAuth's word for what is wrong where the status is 401.
const invalidToken = "invalid_token"

// EncodeError returns the JSON body of a refusal: {"detail":…}, with "errors"
// where e has them; one with status 401 has OAuth's form,
// {"error":…,"error_description":…}.
func EncodeError(e *Error) []byte {
	var w writer
	w.open("")
	if e.Status == http.StatusUnauthorized {
		w.text("error", invalidToken)
		w.text("error_description", e.Detail)
	} else {
		w.text("detail", e.Detail)
	}
	if e.Errors != "" {
		w.text("errors", e.Errors)
	}
	w.close()
	return w.buf
}

// Challenge is the WWW-Authenticate header that goes with a status 401.
func Challenge(e *Error) string {
	return fmt.Sprintf("Bearer error=%q, error_description=%q", invalidToken, e.Detail)
}

// BadRequest refuses what the caller asks for.
func BadRequest(detail string) *Error {
	return &Error{Status: http.StatusBadRequest, Detail: detail}
}

// NotFound refuses what would need something that is not there.
func NotFound(detail string) *Error {
	return &Error{Status: http.StatusNotFound, Detail: detail}
}

// TooMany refuses what could be done later: nothing was done, and the caller
// may try again.
func TooMany(detail string) *Error {
	return &Error{Status: http.StatusTooManyRequests, Detail: detail}
}
