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
	list := []api.ChangeEntry{}
	err := c.entries(ctx, limit, func(e api.ChangeEntry) bool {
		list = append(list, e)
		return true
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// entries calls each with at most limit entries of the log of changes, the newest first, by pages, until it returns false
// for the last one of a page.
func (c *Client) entries(ctx context.Context, limit int, each func(api.ChangeEntry) (more bool)) error {
	if limit <= 0 || limit > maxActions {
		limit = maxActions
	}
	for before, more := uint64(0), true; ; {
		query := queryOf(map[string]string{"limit": strconv.Itoa(min(limit, actionsPage))})
		if before > 0 {
			query.Set("before", strconv.FormatUint(before, 10))
		}
		var page api.ChangeLog
		if err := c.get(ctx, "/v1/changes/log?"+query.Encode(), &page, maxNames); err != nil {
			return err
		}
		for _, e := range page.Entries[:min(limit, len(page.Entries))] {
			more = each(e)
		}
		limit -= len(page.Entries)
		switch {
		case !more || limit <= 0 || page.Next == 0:
			return nil
		case before > 0 && page.Next >= before:
			return errors.New("reading the answer of /v1/changes/log: its pages do not end")
		}
		before = page.Next
	}
}
