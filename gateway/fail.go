package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/sandbox"
)

// fail answers with an error; it is the only function of the gateway that turns errors
// into statuses. An error that is neither a refusal nor a known unavailability is the
// gateway's fault: it is logged with its chain under an id, and the caller gets the id.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	if httpserver.Begun(w) {
		panic(http.ErrAbortHandler) // so that half an answer does not look whole
	}
	refusal := refusalOf(ctx, err)
	id := ""
	if refusal == nil {
		id = httpserver.LogBroken(g.log, r, err)
		refusal = &api.Error{
			Status: http.StatusInternalServerError,
			Detail: "Internal server error: the gateway's log says more under " + id,
		}
	}
	switch refusal.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", api.Challenge(refusal))
	}
	httpserver.WriteBody(w, refusal.Status, httpserver.JSON, api.EncodeRefusal(refusal, r.URL.Path, id))
}

// refusalOf returns the refusal for an error, or nil for a fault of the gateway.
func refusalOf(ctx context.Context, err error) *api.Error {
	if refusal, ok := errors.AsType[*api.Error](err); ok {
		return refusal
	}
	is := func(target error) bool { return errors.Is(err, target) }
	_, lifeless := errors.AsType[*sandbox.StartError](err)
	var status int
	switch {
	case is(errStopping):
		return &api.Error{Status: http.StatusServiceUnavailable, Detail: errStopping.Error()}
	case ctx.Err() != nil && (is(ctx.Err()) || is(context.Cause(ctx))):
		return &api.Error{
			Status: httpserver.ClientGone,
			Detail: "The client closed the connection before the response",
		}
	case is(sandbox.ErrUnknown), is(sandbox.ErrEgress):
		status = http.StatusServiceUnavailable
	case is(sandbox.ErrNotFound):
		status = http.StatusNotFound
	case is(sandbox.ErrConflict), is(sandbox.ErrClaimed), is(sandbox.ErrAmbiguous), is(sandbox.ErrUnsupported):
		status = http.StatusConflict
	case is(sandbox.ErrQuota):
		status = http.StatusTooManyRequests
	case is(sandbox.ErrInvalid), is(sandbox.ErrNoImage), is(sandbox.ErrNoNetwork), lifeless:
		status = http.StatusUnprocessableEntity
	default:
		return nil
	}
	return &api.Error{Status: status, Detail: err.Error()}
}

// refuse returns a refusal with a status.
func refuse(status int, format string, args ...any) error {
	return &api.Error{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// unavailable returns a refusal with status 503. Clients send the request again, so no
// part of it may have been done.
func unavailable(format string, args ...any) error {
	return refuse(http.StatusServiceUnavailable, format, args...)
}

// writeJSON answers with a value of package api.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	return httpserver.WriteJSON(w, status, v, api.Encode)
}

// readJSON reads a whole body of at most maxBody bytes that says it is JSON, as the
// server of a sandbox demands it.
func readJSON(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if !httpserver.SaysJSON(r) {
		return nil, &api.Error{
			Status: http.StatusUnprocessableEntity,
			Detail: "Invalid request parameters",
			Errors: fmt.Sprintf("header.Content-Type: must be application/json, got %q", r.Header.Get("Content-Type")),
		}
	}
	return readBody(w, r)
}

// readBody reads a whole body of at most maxBody bytes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, httpserver.UnreadBody(r, err, refuse)
	}
	return body, nil
}
