package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/docker"
)

// statusClientGone is for the log and the metrics; the name is nginx's.
const statusClientGone = 499

// fail answers with an error; it is the only place that turns errors into
// statuses. What is neither refused nor known to be unavailable is ours: it is
// logged with its chain under an id, and the caller gets the id.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	if rec, ok := w.(*recorder); ok && rec.status != 0 {
		panic(http.ErrAbortHandler) // so that half an answer does not look whole
	}
	refusal := refusalOf(ctx, err)
	if refusal == nil {
		id := rand.Text()[:12]
		g.log.ErrorContext(ctx, "request broke", "id", id, "method", r.Method, "path", r.URL.Path, "error", err)
		_ = writeJSON(w, http.StatusInternalServerError, brokenAnswer{ // two strings can be encoded
			Detail: "Internal server error: the gateway's log says more under " + id,
			ID:     id,
		})
		return
	}
	switch refusal.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	writeBody(w, refusal.Status, "application/json", api.EncodeError(refusal))
}

// brokenAnswer tells a caller where the reason is to be found.
type brokenAnswer struct {
	Detail string `json:"detail"`
	ID     string `json:"id"`
}

// refusalOf is what the caller is told of an error, nil where it is the
// gateway's fault.
func refusalOf(ctx context.Context, err error) *api.Error {
	if refusal, ok := errors.AsType[*api.Error](err); ok {
		return refusal
	}
	is := func(target error) bool { return errors.Is(err, target) }
	_, lifeless := errors.AsType[*docker.StartError](err)
	var status int
	switch {
	case is(errStopping):
		return unavailable("%v", errStopping)
	case ctx.Err() != nil && (is(ctx.Err()) || is(context.Cause(ctx))):
		return &api.Error{
			Status: statusClientGone,
			Detail: "The client closed the connection before the answer was there",
		}
	case is(docker.ErrUnknown):
		status = http.StatusServiceUnavailable
	case is(docker.ErrNotFound):
		status = http.StatusNotFound
	case is(docker.ErrConflict), is(docker.ErrClaimed), is(docker.ErrAmbiguous):
		status = http.StatusConflict
	case is(docker.ErrInvalid), is(docker.ErrNoImage), lifeless:
		status = http.StatusUnprocessableEntity
	default:
		return nil
	}
	return &api.Error{Status: status, Detail: err.Error()}
}

// refuse returns a refusal with a status.
func refuse(status int, format string, args ...any) *api.Error {
	return &api.Error{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// unavailable says that nothing can be known or done at the moment. Clients take
// it for leave to send the request again, so nothing of it must have been done.
func unavailable(format string, args ...any) *api.Error {
	return refuse(http.StatusServiceUnavailable, format, args...)
}

// writeJSON answers with a value of api: compact, UTF-8 as it is.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encoding answer: %w", err)
	}
	writeBody(w, status, "application/json", bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
	return nil
}

// writeBody sends a whole answer. An error here means that the client is gone,
// which is its affair.
func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// readBody reads a whole body of at most maxBody bytes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, bodyError(r, err)
	}
	return body, nil
}

// bodyError says what is wrong with a body that could not be read.
func bodyError(r *http.Request, err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, "The body is larger than %d bytes, the most that %s takes", tooLarge.Limit, r.URL.Path)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusBadRequest, "The body came too slowly")
	case r.Context().Err() != nil:
		return fmt.Errorf("reading body: %w", context.Cause(r.Context()))
	}
	return refuse(http.StatusBadRequest, "The body could not be read: %v", err)
}
