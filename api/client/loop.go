package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
)

// Loops of a client, [Client.Attempt] and [Client.Bisect], keep the state before them as a checkpoint. Its name begins
// with one of these.
const (
	attemptPrefix = "attempt/"
	bisectPrefix  = "before-bisect-"
)

// loopExpires is how long the checkpoint of a loop goes last where there is no room. Until then the loop is taken to go on.
const loopExpires = 24 * time.Hour

// ErrForeign reports that the workspace changed in the middle of a loop while an action, upload or restore of another client ran.
var ErrForeign = errors.New("another client changed the workspace")

// LeftError reports a loop that did not end, as its client was killed or goes on, or that could not end, and names its
// checkpoint, which has the state before.
type LeftError struct {
	Checkpoint string
	Err        error
}

// Error names the checkpoint.
func (e *LeftError) Error() string {
	return fmt.Sprintf("%v; the checkpoint %s has the state before", e.Err, oneLine(e.Checkpoint))
}

// Unwrap returns the reason.
func (e *LeftError) Unwrap() error { return e.Err }

// goesOn returns an error if one of the checkpoints is of a loop that did not end, of the kinds with a prefix.
func goesOn(list []api.Checkpoint, prefixes ...string) error {
	for _, point := range list {
		for _, prefix := range prefixes {
			if id, ok := strings.CutPrefix(point.Name, prefix); ok && time.Now().Before(point.Expires) {
				what := "a bisect"
				if prefix == attemptPrefix {
					what = "the attempt " + oneLine(id)
				}
				return &LeftError{point.Name, fmt.Errorf("%s is open, which began at %s", what, point.Time.Format(time.RFC3339))}
			}
		}
	}
	return nil
}

// loopEnd bounds the removal of a checkpoint, also after an interrupt.
const loopEnd = 10 * time.Second

// keepBefore makes the checkpoint of a loop. Where no answer comes, it removes it, and the error is a *LeftError if that fails too.
func (c *Client) keepBefore(ctx context.Context, r api.CheckpointRequest) (api.Checkpoint, error) {
	point, err := c.Checkpoint(ctx, r)
	if err == nil || refused(err) {
		return point, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loopEnd)
	defer cancel()
	if left := c.RemoveCheckpoint(ctx, r.Name); left != nil && !refused(left) {
		err = &LeftError{r.Name, err}
	}
	return point, err
}

// refused reports whether err is an answer of the server that nothing was done.
func refused(err error) bool {
	answer, ok := errors.AsType[*StatusError](err)
	return ok && answer.Status < http.StatusInternalServerError
}

// since returns the entries of the log after a state, the newest first. Those of actions that ended together may be in
// another order, and one whose state is not known is left out.
func (c *Client) since(ctx context.Context, state string) (list []api.ChangeEntry, err error) {
	first, _ := api.StateNumber(state)
	err = c.entries(ctx, maxActions, func(e api.ChangeEntry) bool {
		after, known := api.StateNumber(e.After)
		if after > first {
			list = append(list, e)
		}
		return after > first || !known
	})
	return list, err
}

// foreign returns ErrForeign if the log has a change after a state that a client asked for and that is not the loop's own:
// of an action, by its number, or of a restore, by the state after it.
func (c *Client) foreign(ctx context.Context, state string, own func(n uint64, after string) bool) error {
	list, err := c.since(ctx, state)
	for _, e := range list {
		switch {
		case e.N != nil && !own(*e.N, ""):
			return fmt.Errorf("%w: action %d (%s), after which it was %s", ErrForeign, *e.N, oneLine(e.Kind), oneLine(e.After))
		case e.Cause == api.CauseUpload, e.Cause == api.CauseRestore && !own(0, e.After):
			return fmt.Errorf("%w: %s, after which it was %s", ErrForeign, oneLine(e.Cause), oneLine(e.After))
		}
	}
	return err
}
