package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/random"
)

// attemptWait is how long an action of an attempt waits until the contents that it may destroy are kept, in seconds.
const attemptWait = 10.0

// Attempt is an action whose effects are to be kept or discarded.
type Attempt struct {
	// Attempt is its id, which is also that of the action, and Before the state before it.
	Attempt string    `json:"attempt"`
	Before  string    `json:"before"`
	Time    time.Time `json:"time"`
}

// Attempt keeps the present state as the checkpoint attempt/ID, and runs one action as [Client.Stream] does: until
// [Client.KeepAttempt] or [Client.DiscardAttempt] is called with the id, which is also that of the action, the attempt
// is open. The id has at most 92 letters, digits and -_.:/ therefore. The error is a *LeftError while another attempt or
// a bisect is open, and the action did not run then; one that names the checkpoint attempt/ID says that this attempt may be
// open. Two clients that begin at the same moment may both have one.
func (c *Client) Attempt(ctx context.Context, r api.Request, output func(api.Output) error) (id string, o api.Observation, err error) {
	r.Key = cmp.Or(r.Key, random.UUID7())
	name := attemptPrefix + r.Key
	list, err := c.Checkpoints(ctx)
	sent := slices.ContainsFunc(list, func(p api.Checkpoint) bool { return p.Name == name }) // before
	if err == nil && !sent {
		if err = goesOn(list, attemptPrefix, bisectPrefix); err == nil {
			_, err = c.keepBefore(ctx, api.CheckpointRequest{Name: name, Wait: new(attemptWait), Expires: loopExpires.Seconds()})
		}
	}
	if err != nil {
		return r.Key, nil, err
	}
	o, err = c.Stream(ctx, r, output)
	switch {
	case refused(err) && !sent:
		_ = c.RemoveCheckpoint(context.WithoutCancel(ctx), name) // it expires
	case err != nil:
		err = &LeftError{name, err}
	}
	return r.Key, o, err
}

// Attempts returns the open attempts, the oldest first.
func (c *Client) Attempts(ctx context.Context) (open []Attempt, err error) {
	list, err := c.Checkpoints(ctx)
	for _, point := range list {
		if id, ok := strings.CutPrefix(point.Name, attemptPrefix); ok {
			open = append(open, Attempt{Attempt: id, Before: point.State, Time: point.Time})
		}
	}
	return open, err
}

// KeepAttempt ends an open attempt and keeps its effects. The answer has them, as far as they are known.
func (c *Client) KeepAttempt(ctx context.Context, id string) (api.Changes, error) {
	changes, err := c.Changes(ctx, ChangesQuery{Since: attemptPrefix + id})
	if _, answered := errors.AsType[*StatusError](err); err != nil && !answered {
		return changes, err
	}
	if changes.Paths == nil { // the state is not known any longer
		changes.Paths = []api.ChangedPath{}
	}
	return changes, c.RemoveCheckpoint(ctx, attemptPrefix+id)
}

// DiscardAttempt ends an open attempt and takes back all that changed since its begin, as [Client.Restore] does. The
// error is ErrForeign, and nothing was done, where other actions, uploads or restores changed something since; force
// takes that back too, also while actions run. Where one came in during the restore, the error is ErrForeign too, names the
// state with its effects, which Before of the answer has, and the attempt stays open.
func (c *Client) DiscardAttempt(ctx context.Context, id string, force bool) (api.Restored, error) {
	open, err := c.Attempts(ctx)
	if err != nil {
		return api.Restored{}, err
	}
	i := slices.IndexFunc(open, func(a Attempt) bool { return a.Attempt == id })
	if i < 0 {
		return api.Restored{}, &StatusError{Status: http.StatusNotFound, Detail: "There is no open attempt " + id}
	}
	var restored api.Restored
	var number uint64
	own := func(n uint64, after string) bool {
		return n > 0 && n == number || after != "" && after == restored.After
	}
	if !force {
		a, err := c.Action(ctx, id, 0)
		if _, answered := errors.AsType[*StatusError](err); err != nil && !answered { // 404 if it never came
			return restored, err
		}
		number = a.N
		if err := c.foreign(ctx, open[i].Before, own); err != nil {
			return restored, err
		}
	}
	restored, err = c.Restore(ctx, api.RestoreRequest{To: api.StateRef(attemptPrefix + id), Force: force})
	if err == nil && !force { // one may have come in between
		if err = c.foreign(ctx, open[i].Before, own); err != nil {
			err = fmt.Errorf("%w; the state before the restore is %s", err, oneLine(restored.Before))
		}
	}
	if err == nil {
		err = c.RemoveCheckpoint(ctx, attemptPrefix+id)
	}
	return restored, err
}
