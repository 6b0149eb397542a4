package client

import (
	"context"
	"errors"
	"fmt"
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
var ErrForeign = errors.New("the workspace changed while another action ran")

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

// keepBefore makes the checkpoint of a loop.
func (c *Client) keepBefore(ctx context.Context, r api.CheckpointRequest, expires time.Duration) (api.Checkpoint, error) {
	r.Expires = expires.Seconds()
	return c.Checkpoint(ctx, r)
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
