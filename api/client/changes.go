package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/actiond/actiond/api"
)

// DoWithChanges runs one action as [Client.Do] does, by the rules of /v1/actions, and also returns its changes of the
// workspace: as much as r asks for, by default the facts. Changes are nil where the server knows none.
func (c *Client) DoWithChanges(ctx context.Context, r api.Request) (o api.Observation, changes *api.Changes, err error) {
	r.Changes = cmp.Or(r.Changes, api.ChangesFacts)
	body, err := api.EncodeRequest(r)
	if err != nil {
		return nil, nil, err
	}
	err = c.once(ctx, r.Key, new(uint64), func(header http.Header) error {
		data, err := c.exchange(ctx, header, http.MethodPost, "/v1/actions", "application/json", bytes.NewReader(body), c.maxAnswer(r))
		if err != nil {
			return err
		}
		if o, err = api.DecodeObservation(data); err == nil {
			changes, err = api.ChangesIn(data)
		}
		return err
	})
	o, err = known(o, err)
	return o, changes, err
}

// Changes returns the net changes of the workspace between two states. The error is a *StatusError of 404 for a state
// that never was, and of 410 for one that is no longer kept.
func (c *Client) Changes(ctx context.Context, q ChangesQuery) (api.Changes, error) {
	var changes api.Changes
	return changes, c.get(ctx, "/v1/changes?"+q.values().Encode(), &changes, c.maxResponse)
}

// ChangeLog returns at most limit entries of the log of changes, the newest first; 0 means all.
func (c *Client) ChangeLog(ctx context.Context, limit int) ([]api.ChangeEntry, error) {
	if limit <= 0 || limit > maxActions {
		limit = maxActions
	}
	list := []api.ChangeEntry{}
	for before := uint64(0); ; {
		query := queryOf(map[string]string{"limit": strconv.Itoa(min(limit-len(list), actionsPage))})
		if before > 0 {
			query.Set("before", strconv.FormatUint(before, 10))
		}
		var page api.ChangeLog
		if err := c.get(ctx, "/v1/changes/log?"+query.Encode(), &page, maxNames); err != nil {
			return nil, err
		}
		list = append(list, page.Entries[:min(limit-len(list), len(page.Entries))]...)
		switch {
		case len(list) >= limit || page.Next == 0:
			return list, nil
		case before > 0 && page.Next >= before:
			return nil, errors.New("reading the answer of /v1/changes/log: its pages do not end")
		}
		before = page.Next
	}
}
