package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/actiond/actiond/api"
)

// Restore brings the workspace back to another state, or only reports the changes that this would make. Paths that
// cannot be restored are named in the answer, and are no error. The error is a *StatusError of 404 or 410 for a state
// that never was or is no longer kept, and of 409 while an action runs. The request is sent once: after a broken
// connection it may have been carried out.
func (c *Client) Restore(ctx context.Context, r api.RestoreRequest) (api.Restored, error) {
	var restored api.Restored
	return restored, c.long(ctx, "/v1/restore", r, &restored)
}

// Checkpoint gives the present state of the workspace a name, once its contents are kept. Missing of the answer says
// how many are not.
func (c *Client) Checkpoint(ctx context.Context, r api.CheckpointRequest) (api.Checkpoint, error) {
	var made api.Checkpoint
	return made, c.long(ctx, "/v1/checkpoints", r, &made)
}

// Checkpoints returns the checkpoints, the oldest first.
func (c *Client) Checkpoints(ctx context.Context) ([]api.Checkpoint, error) {
	var list api.Checkpoints
	return list.Checkpoints, c.get(ctx, "/v1/checkpoints", &list, maxNames)
}

// RemoveCheckpoint removes the name of a state, which is then kept no longer than others.
func (c *Client) RemoveCheckpoint(ctx context.Context, name string) error {
	return c.quick(ctx, http.MethodDelete, "/v1/checkpoints/"+url.PathEscape(name), nil, nil, maxSmall)
}

// ChangesQuery says which changes [Client.Changes] and [Client.WatchChanges] return. States are named as in
// [api.Changes], by the name of a checkpoint, or by the number of the action that ended with them.
type ChangesQuery struct {
	// Since is the earlier state; "" means the first one, and for a watch the present.
	Since string
	// Until is the later one; "" means the present. A watch has none.
	Until string
	// Path leaves out the changes that are not at or below it; "" leaves out none.
	Path string
	// Diff asks for the lines of text files.
	Diff bool
}

func (q ChangesQuery) values() url.Values {
	query := queryOf(map[string]string{"since": q.Since, "until": q.Until, "path": q.Path})
	if q.Diff {
		query.Set("diff", "1")
	}
	return query
}

// WatchChanges calls change with each change as it happens, until ctx ends or change fails, whose error is returned.
// After a broken connection it goes on from the last state that change was called with, or from Since. The error is a
// *StatusError of 410 if that is no longer kept.
func (c *Client) WatchChanges(ctx context.Context, q ChangesQuery, change func(api.Changes) error) error {
	q.Until = ""
	var progress uint64
	return c.once(ctx, "", &progress, func(http.Header) error {
		query := q.values()
		query.Set("watch", "1")
		answer, err := c.send(ctx, http.Header{"Accept": {linesType}}, http.MethodGet, "/v1/changes?"+query.Encode(), "", nil)
		if err != nil {
			return err
		}
		return lines(answer, c.maxResponse, func(line watchLine) (more bool, err error) {
			progress++
			switch {
			case line.Event == "error":
				return false, &StatusError{Status: line.Status, Detail: line.Detail}
			case line.Paths == nil: // a heartbeat
				return true, nil
			}
			if line.After != "" {
				q.Since = line.After
			}
			if line.None() && line.Exact { // the present, from which a watch begins
				return true, nil
			}
			if err := change(line.Changes); err != nil {
				return false, callersError{err}
			}
			return true, nil
		})
	})
}

// watchLine is a line of a watch: changes, or an event of another kind.
type watchLine struct {
	api.Changes

	Event  string `json:"event"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// long posts JSON, unless v is nil, and waits as long as the request needs.
func (c *Client) long(ctx context.Context, path string, v, answer any) error {
	if v == nil {
		return c.call(ctx, http.MethodPost, path, "", nil, answer, c.maxResponse)
	}
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("calling %s: %w", path, err)
	}
	return c.call(ctx, http.MethodPost, path, "application/json", bytes.NewReader(body), answer, c.maxResponse)
}

// lines calls each with the lines of an answer, of most bytes, until there are to be no more, and closes it.
func lines[T any](a *answer, most int64, each func(T) (more bool, err error)) error {
	defer func() { _ = a.Close() }()
	in := bufio.NewReaderSize(a, 64<<10)
	for {
		line, err := a.line(in, most)
		if err != nil {
			return fmt.Errorf("reading the answer of %s: %w", a.path, a.cause(err))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return fmt.Errorf("reading the answer of %s: %w", a.path, err)
		}
		if more, err := each(v); err != nil || !more {
			return err
		}
	}
}
