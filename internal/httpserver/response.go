package httpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

// JSON is the media type of most responses.
const JSON = "application/json"

// ClientGone is the status of a request whose client has closed the connection: for
// logs, for metrics, and for clients that closed only their sending side. nginx uses
// the same number.
const ClientGone = 499

// WriteBody sends a complete response. It ignores errors, which mean that the client has
// disconnected.
func WriteBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// WriteParts writes parts one after the other: a copy of them together would take the memory of
// a large one twice.
func WriteParts(w io.Writer, parts ...[]byte) error {
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON sends a value that encode turns into JSON. If the value cannot be encoded,
// WriteJSON returns the error and sends nothing.
func WriteJSON(w http.ResponseWriter, status int, v any, encode func(any) ([]byte, error)) error {
	body, err := encode(v)
	if err != nil {
		return fmt.Errorf("encoding the response: %w", err)
	}
	WriteBody(w, status, JSON, body)
	return nil
}

// Document returns a handler for an OpenAPI document. Clients that send its Etag get
// status 304.
func Document(document []byte) Handler {
	etag := sync.OnceValue(func() string { return fmt.Sprintf(`"%x"`, sha256.Sum256(document)) })
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Etag", etag())
		w.Header().Set("Content-Type", "application/yaml")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(document))
		return nil
	}
}

// Recover passes panics of a handler to fail, which responds to the request and logs
// them once with an id; chi's Recoverer does neither. Handlers hold no lock across a
// panic, so the server can continue.
func Recover(fail func(http.ResponseWriter, *http.Request, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				switch v := recover(); v {
				case nil:
				case http.ErrAbortHandler: // meant to end the connection
					panic(v)
				default:
					fail(w, r, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
				}
			}()
			next.ServeHTTP(w, r)
		})
	}
}

// LogBroken logs an internal error with its chain and returns the id of the log
// entry. The client learns only the id.
func LogBroken(log *slog.Logger, r *http.Request, err error) (id string) {
	id = rand.Text()[:12]
	log.ErrorContext(r.Context(), "request broke", "id", id, "method", r.Method, "path", r.URL.Path, "error", err)
	return id
}

// UnreadBody turns an error from reading a body into a refusal, or into the cause that
// ended the request's context.
func UnreadBody(r *http.Request, err error, refuse Refuse) error {
	tooLarge, ok := errors.AsType[*http.MaxBytesError](err)
	switch {
	case ok:
		return refuse(http.StatusRequestEntityTooLarge, "The body is larger than %d bytes, the most that %s takes", tooLarge.Limit, r.URL.Path)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusBadRequest, "The body came too slowly")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF): // which ends the context too
		return refuse(http.StatusBadRequest, "The body ended too early")
	case r.Context().Err() != nil:
		return fmt.Errorf("reading body: %w", context.Cause(r.Context()))
	}
	return refuse(http.StatusBadRequest, "The body could not be read: %v", err)
}
