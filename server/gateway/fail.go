package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/server/reply"
)

// fail answers with an error; it is the only place that turns errors into
// statuses. What is neither refused nor known to be unavailable is ours: it is
// logged with its chain under an id, and the caller gets the id.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	if reply.Begun(w) {
		panic(http.ErrAbortHandler) // so that half an answer does not look whole
	}
	refusal := refusalOf(ctx, err)
	if refusal == nil {
		id := reply.LogBroken(g.log, r, err)
		_ = reply.Value(w, http.StatusInternalServerError, api.Broken{ // two strings can be encoded
			Detail: "Internal server error: the gateway's log says more under " + id,
			ID:     id,
		})
		return
	}
	switch refusal.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	reply.Body(w, refusal.Status, reply.JSON, api.EncodeError(refusal))
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
			Status: reply.ClientGone,
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

// readBody reads a whole body of at most maxBody bytes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, reply.UnreadBody(r, err)
	}
	return body, nil
}
