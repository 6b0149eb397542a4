package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/random"
)

// Stream runs one action as [Client.Do] does, and calls output with its output as it
// arrives, each part once, even if the connection breaks. The command never waits for
// output; the next call counts the bytes that were dropped. An error of output ends the wait
// and is returned; the command keeps running. A refusal is a *StatusError.
func (c *Client) Stream(ctx context.Context, r api.Request, output func(api.Output) error) (api.Observation, error) {
	body, err := api.EncodeRequest(r)
	if err != nil {
		return nil, err
	}
	var o api.Observation
	var at position
	err = c.once(ctx, r.Key, &at.events, func(header http.Header) (err error) {
		o, err = c.follow(ctx, header, body, &at, c.maxAnswer(r), output)
		return err
	})
	return known(o, err)
}

// Start sends one action and returns at once with its idempotency key, for Follow, Wait and
// Cancel. A refusal is a *StatusError.
func (c *Client) Start(ctx context.Context, r api.Request) (id string, err error) {
	r.Key = cmp.Or(r.Key, random.UUID7())
	body, err := api.EncodeRequest(r)
	if err != nil {
		return "", err
	}
	err = c.once(ctx, r.Key, new(uint64), func(header http.Header) error {
		header.Set("Prefer", "respond-async")
		_, err := c.exchange(ctx, header, http.MethodPost, "/v1/actions", "application/json", bytes.NewReader(body),
			c.maxAnswer(r))
		return err
	})
	return r.Key, err
}

// position is the progress in the events of an action.
type position struct {
	last   uint64 // the number of the last event with output that was delivered
	events uint64 // how many new events arrived, heartbeats too: they prove that the server is alive
}

// follow sends an action and reads its events from a position on. If output was delivered
// before, it requests only the remaining events.
func (c *Client) follow(
	ctx context.Context, header http.Header, body []byte, at *position, most int64, output func(api.Output) error,
) (api.Observation, error) {
	header.Set("Accept", linesType)
	var answer *answer
	var err error
	if at.last > 0 {
		rest := fmt.Sprintf("%s/events?after=%d", actionPath(header.Get(api.IdentityHeader)), at.last)
		answer, err = c.send(ctx, header.Clone(), http.MethodGet, rest, "", nil)
	}
	if failed, ok := errors.AsType[*StatusError](err); at.last == 0 || ok && (failed.Status == http.StatusNotFound || failed.Status == http.StatusBadRequest) {
		answer, err = c.send(ctx, header, http.MethodPost, "/v1/actions", "application/json", bytes.NewReader(body))
	}
	if err != nil {
		return nil, err
	}
	return answer.events(at, most, output)
}

// Follow calls output with the output of an action from its beginning to its end, as
// [Client.Stream] does, and returns its observation. ctx bounds the wait only. The error is a
// *StatusError of 404 if the action does not exist, and of 410 if its record has expired.
func (c *Client) Follow(ctx context.Context, id string, output func(api.Output) error) (api.Observation, error) {
	var o api.Observation
	var at position
	err := c.once(ctx, id, &at.events, func(http.Header) error {
		header := http.Header{"Accept": {linesType}}
		answer, err := c.send(ctx, header, http.MethodGet, fmt.Sprintf("%s/events?after=%d", actionPath(id), at.last), "",
			nil)
		if err != nil {
			return err
		}
		o, err = answer.events(&at, c.maxResponse, output)
		return err
	})
	return known(o, err)
}

// events reads the events of an action from a position to the last, and closes the answer.
func (a *answer) events(at *position, most int64, output func(api.Output) error) (api.Observation, error) {
	defer func() { _ = a.Close() }()
	lines := bufio.NewReaderSize(a, 64<<10)
	for {
		line, err := a.line(lines, most)
		if err != nil {
			return nil, fmt.Errorf("reading the answer of %s: %w", a.path, a.cause(err))
		}
		event, err := api.DecodeEvent(line)
		if err != nil {
			return nil, fmt.Errorf("reading the answer of %s: %w", a.path, err)
		}
		switch e := event.(type) {
		case api.Output:
			if e.Seq > 0 && e.Seq <= at.last {
				continue
			}
			if e.Seq > 0 {
				at.last = e.Seq
				at.events++
			}
			if err := output(e); err != nil {
				return nil, callersError{err}
			}
		case api.Heartbeat:
			at.events++
		case api.Finished:
			return e.Observation, nil
		case api.Failed:
			return nil, &StatusError{Status: e.Status, Detail: e.Detail}
		}
	}
}

// linesType is the media type of the streams that this client reads.
const linesType = "application/x-ndjson"

// line reads one line of most bytes, within a time limit from its first byte on. At the end
// of the stream it fails with io.ErrUnexpectedEOF.
func (a *answer) line(r *bufio.Reader, most int64) ([]byte, error) {
	a.pace.quiet.Reset(a.pace.limits.quiet)
	_, err := r.Peek(1)
	a.pace.quiet.Stop()
	if err != nil {
		return nil, endOf(err)
	}
	a.pace.begin()
	defer a.pace.rest()
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		a.pace.count(len(part))
		switch {
		case err == nil:
			return line, nil
		case int64(len(line)) > most:
			return nil, ErrTooLarge
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, endOf(err)
		}
	}
}

// endOf returns io.ErrUnexpectedEOF for io.EOF.
func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
