package api

import "net/http"

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

// EncodeError returns the JSON body of a refusal: {"detail":…}, with "errors"
// where e has them.
func EncodeError(e *Error) []byte {
	var w writer
	w.open("")
	w.text("detail", e.Detail)
	if e.Errors != "" {
		w.text("errors", e.Errors)
	}
	w.close()
	return w.buf
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
