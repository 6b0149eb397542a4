package server

import (
	"bytes"
	"net/http"

	"github.com/actiond/actiond/internal/httpserver"
)

// maxSmallBody bounds the bodies that hold a path or a list of programs.
const maxSmallBody = 1 << 20

// readJSON reads a whole body of at most limit bytes that says it is JSON.
func readJSON(r *http.Request, limit int64) ([]byte, error) {
	if !httpserver.SaysJSON(r) {
		return nil, invalid("header.Content-Type: must be application/json, got %q", r.Header.Get("Content-Type"))
	}
	return readBody(r, limit)
}

// readBody reads a whole body of at most limit bytes.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, unreadBody(r, &http.MaxBytesError{Limit: limit})
	}
	// The buffer has the announced size up to a bound: the body may never come.
	const most = 1 << 20
	buf := bytes.NewBuffer(make([]byte, 0, max(0, min(r.ContentLength, most))+bytes.MinRead))
	if _, err := buf.ReadFrom(http.MaxBytesReader(nil, r.Body, limit)); err != nil {
		return nil, unreadBody(r, err)
	}
	return buf.Bytes(), nil
}

// decodeJSON reads a small body of JSON, and decodes it.
func decodeJSON[T any](r *http.Request, decode func([]byte) (T, error)) (value T, err error) {
	body, err := readJSON(r, maxSmallBody)
	if err != nil {
		return value, err
	}
	return decode(body)
}
