// Package reply is how both HTTP servers of the house answer.
package reply

import (
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
	"strings"

	"github.com/actiond/actiond/api"
)

// JSON is the media type of nearly all answers.
const JSON = "application/json"

// ClientGone is the status for logs and metrics, and for clients that only
// closed their sending side, where nobody waits for the answer; the name is
// nginx's.
const ClientGone = 499

// Recorder remembers what was answered.
type Recorder struct {
	http.ResponseWriter
	Status int // 0 while nothing was sent
	Bytes  int64
}

// WriteHeader remembers the final status.
func (w *Recorder) WriteHeader(status int) {
	if w.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts.
func (w *Recorder) Write(p []byte) (int, error) {
	if w.Status == 0 {
		w.Status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.Bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController through.
func (w *Recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Class is that of the status, such as "2xx", for metrics; "1xx" is a connection
// that became a WebSocket, and "cut" one that ended without an answer.
func (w *Recorder) Class() string {
	switch w.Status / 100 {
	case 0:
		return "cut"
	case 1, 2, 3, 4:
		return strconv.Itoa(w.Status/100) + "xx"
	}
	return "5xx"
}

// Body sends a whole answer. An error here means that the client is gone, which
// is its affair.
func Body(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// Value answers with a value of api that has no encoder of its own. The error
// says that it could not be encoded, and then nothing was sent.
func Value(w http.ResponseWriter, status int, v any) error {
	body, err := api.Encode(v)
	if err != nil {
		return fmt.Errorf("encoding answer: %w", err)
	}
	Body(w, status, JSON, body)
	return nil
}

// Description returns what answers with an OpenAPI document, unless the client has
// it already.
func Description(document []byte) func(w http.ResponseWriter, r *http.Request) error {
	current := fmt.Sprintf(`"%x"`, sha256.Sum256(document)) // changes when the document does
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Etag", current)
		for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
			if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == current {
				w.WriteHeader(http.StatusNotModified)
				return nil
			}
		}
		Body(w, http.StatusOK, "application/yaml", document)
		return nil
	}
}

// Recover lets fail answer for the panics of a handler. The server goes on: no
// lock is held across one.
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

// Begun tells whether a part of the answer was sent already.
func Begun(w http.ResponseWriter) bool {
	rec, ok := w.(*Recorder)
	return ok && rec.Status != 0
}

// LogBroken logs why a request broke, once and with the error's chain, and returns
// the id to find it by, which is all that the caller is told.
func LogBroken(log *slog.Logger, r *http.Request, err error) (id string) {
	id = rand.Text()[:12]
	log.ErrorContext(r.Context(), "request broke", "id", id, "method", r.Method, "path", r.URL.Path, "error", err)
	return id
}

// UnreadBody says what is wrong with a body that could not be read: an *api.Error,
// or the end of the request's context.
func UnreadBody(r *http.Request, err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &api.Error{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("The body is larger than %d bytes, the most that %s takes", tooLarge.Limit, r.URL.Path),
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return api.BadRequest("The body came too slowly")
	case r.Context().Err() != nil:
		return fmt.Errorf("reading body: %w", context.Cause(r.Context()))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return api.BadRequest("The body ended too early")
	}
	return api.BadRequest(fmt.Sprintf("The body could not be read: %v", err))
}
