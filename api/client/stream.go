package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/actiond/actiond/api"
)

// Stream carries out one action as Do does, and calls output for what comes out
// of the session's terminal, as it comes. The command never waits for output;
// what a slow one misses, the next call counts. An error of output ends the
// waiting and is returned; the command goes on. That the action was refused is
// a *StatusError, whenever it turned out.
func (c *Client) Stream(ctx context.Context, r api.Request, output func(api.Output) error) (api.Observation, error) {
	body, err := api.EncodeRequest(r)
	if err != nil {
		return nil, err
	}
	const path = "/v1/actions"
	response, err := c.sendFor(ctx, linesType, http.MethodPost, path, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReaderSize(response.Body, 64<<10)
	for {
		line, err := c.readLine(lines)
		if err != nil {
			return nil, fmt.Errorf("reading the answer of %s: %w", path, err)
		}
		event, err := api.DecodeEvent(line)
		if err != nil {
			return nil, fmt.Errorf("reading the answer of %s: %w", path, err)
		}
		switch e := event.(type) {
		case api.Output:
			if err := output(e); err != nil {
				return nil, err
			}
		case api.Heartbeat:
		case api.Finished:
			return e.Observation, nil
		case api.Failed:
			return nil, &StatusError{Status: e.Status, Detail: e.Detail}
		}
	}
}

// linesType is the form of a stream that this client reads.
const linesType = "application/x-ndjson"

// readLine reads one line, io.ErrUnexpectedEOF where the stream ends before it.
func (c *Client) readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case int64(len(line)) > c.maxResponse:
			return nil, ErrTooLarge
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
