package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

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
	answered := *refusal
	answered.Code = cmp.Or(refusal.Code, strings.ReplaceAll(strings.ToLower(http.StatusText(refusal.Status)), " ", "_"))
	path := r.URL.Path
	if native(r) && refusal.Status != http.StatusUnauthorized { // which has OAuth's form
		path = "/v1/"
	}
	switch refusal.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", api.Challenge(refusal))
	}
	httpserver.WriteBody(w, refusal.Status, httpserver.JSON, api.EncodeRefusal(&answered, path, id))
}

// refusalOf returns the refusal for an error, or nil for a fault of the gateway.
func refusalOf(ctx context.Context, err error) *api.Error {
	if refusal, ok := errors.AsType[*api.Error](err); ok {
		return refusal
	}
	is := func(target error) bool { return errors.Is(err, target) }
	_, lifeless := errors.AsType[*sandbox.StartError](err)
	var status int
	code := ""
	switch {
	case is(errStopping):
		return unavailable("stopping", "%v", errStopping)
	case ctx.Err() != nil && (is(ctx.Err()) || is(context.Cause(ctx))):
		return &api.Error{
			Status: httpserver.ClientGone,
			Detail: "The client closed the connection before the response",
		}
	case is(sandbox.ErrUnknown):
		status, code = http.StatusServiceUnavailable, "unreachable"
	case is(sandbox.ErrEgress):
		status, code = http.StatusServiceUnavailable, "egress_down"
	case is(sandbox.ErrNotFound):
		status = http.StatusNotFound
	case is(sandbox.ErrUnsupported):
		status, code = http.StatusConflict, "unsupported"
	case is(sandbox.ErrConflict), is(sandbox.ErrClaimed), is(sandbox.ErrAmbiguous):
		status = http.StatusConflict
	case is(sandbox.ErrQuota):
		status = http.StatusTooManyRequests
	case lifeless:
		status, code = http.StatusUnprocessableEntity, "start_failed"
	case is(sandbox.ErrInvalid), is(sandbox.ErrNoImage), is(sandbox.ErrNoNetwork):
		status = http.StatusUnprocessableEntity
	default:
		return nil
	}
	return &api.Error{Status: status, Detail: err.Error(), Code: code}
}

// refuse returns a refusal with a status.
func refuse(status int, format string, args ...any) error {
	return &api.Error{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// coded returns a refusal with a word for programs and a status.
func coded(code string, status int, format string, args ...any) *api.Error {
	return &api.Error{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// unavailable returns a refusal with status 503. Clients send the request again, so no
// part of it may have been done.
func unavailable(code, format string, args ...any) *api.Error {
	return coded(code, http.StatusServiceUnavailable, format, args...)
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
