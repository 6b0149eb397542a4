package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
)

// ErrUnknown reports an action whose result is lost because the server died while it ran.
// The action does not run again.
var ErrUnknown = errors.New("the result of the action is unknown")

// ErrGone is for the dial function of a [Config.HTTPClient]: after an error that wraps it
// an action is not sent again, because no server will answer.
var ErrGone = errors.New("the server does not come back")

// ErrCut reports that the connection broke after an action was sent, and that reconnecting
// failed for half a minute, or until the context ended. The action may be running; look it up
// by its idempotency key with [Client.Action].
var ErrCut = errors.New("the connection broke and does not come back")

// unknownPrefix begins the observation of such an action.
const unknownPrefix = "the result is unknown:"

// maxSends bounds how often one action is sent without progress. The pauses in between
// add up to half a minute.
const maxSends = 13

// once calls send until the action with the given idempotency key was answered. It sends
// again only after the connection broke, and only to a server that deduplicates keys. The
// count of attempts starts again whenever progress has grown.
func (c *Client) once(ctx context.Context, key string, progress *uint64, send func(header http.Header) error) error {
	if key == "" {
		key = random.UUID7()
	}
	knows := false // the server deduplicates keys
	var first error
	seen := *progress
	for tries := 1; ; tries++ {
		err := send(http.Header{api.IdentityHeader: {key}})
		lost := broken(ctx, err) || unanswered(err) || first != nil && refusedForNow(err)
		if err == nil || !lost || first == nil && notSent(err) {
			return err
		}
		if first == nil {
			first = err
		}
		if refusedForNow(err) {
			err = first // this attempt alone was refused
		}
		if *progress > seen {
			seen, tries = *progress, 1
		}
		if tries >= maxSends || knows && !c.pause(ctx, tries) {
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		for ; !knows; tries++ {
			if !c.pause(ctx, tries) || tries >= maxSends {
				return fmt.Errorf("%w: %w", ErrCut, err)
			}
			_, probe := c.Actions(ctx, ActionFilter{Limit: 1})
			if knows = probe == nil; !knows && !broken(ctx, probe) && !unanswered(probe) && !refusedForNow(probe) {
				return err // an older server, to which it must not be sent again
			}
		}
	}
}

// clientGone is the status of a request whose connection the server saw closed.
const clientGone = 499

// cutWords are the details of a server's answers to a truncated request: its own, that of
// its HTTP library, and none if the answer was truncated too.
var cutWords = []string{"The body ended too early", "400 Bad Request", ""}

// unanswered reports an answer that only says that the connection broke, either before the
// server had the request or between it and a proxy.
func unanswered(err error) bool {
	failed, ok := errors.AsType[*StatusError](err)
	if !ok {
		return false
	}
	switch failed.Status {
	case http.StatusBadRequest:
		return slices.Contains(cutWords, failed.Detail)
	case http.StatusRequestTimeout, clientGone, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// refusedForNow reports a refusal because of load, which says nothing about earlier attempts.
func refusedForNow(err error) bool {
	failed, ok := errors.AsType[*StatusError](err)
	return ok && (failed.Status == http.StatusTooManyRequests || failed.Status == http.StatusServiceUnavailable)
}

// ActionFilter selects the actions that [Client.Actions] lists.
type ActionFilter struct {
	// Session and State must equal those of the action; "" matches all. State is one of
	// the states in package api.
	Session, State string
	// Limit bounds the number of actions; 0 means 100,000, the maximum.
	Limit int
}

const (
	maxActions  = 100_000
	actionsPage = 1000 // the most that a server lists at once
)

// Actions returns the recorded actions that match a filter, newest first.
func (c *Client) Actions(ctx context.Context, f ActionFilter) ([]api.RecordedAction, error) {
	left := f.Limit
	if left <= 0 || left > maxActions {
		left = maxActions
	}
	query := queryOf(map[string]string{"session": f.Session, "state": f.State})
	list := []api.RecordedAction{}
	for before := uint64(0); ; {
		query.Set("limit", strconv.Itoa(min(left, actionsPage)))
		var page api.RecordedActions
		if err := c.get(ctx, "/v1/actions?"+query.Encode(), &page, maxNames); err != nil {
			return nil, err
		}
		list = append(list, page.Actions[:min(left, len(page.Actions))]...)
		left -= len(page.Actions)
		switch {
		case left <= 0 || page.Next == 0:
			return list, nil
		case len(page.Actions) == 0 || before > 0 && page.Next >= before:
			return nil, errors.New("reading the answer of /v1/actions: its pages do not end")
		}
		before = page.Next
		query.Set("before", strconv.FormatUint(before, 10))
	}
}

// Action returns the record of an action, by its idempotency key. It waits at most wait
// for the end of the action, rounded up to seconds and at most 10 minutes. The error is a
// *StatusError of 404 if the action does not exist, and of 410 if its record has expired.
func (c *Client) Action(ctx context.Context, id string, wait time.Duration) (api.RecordedAction, error) {
	return c.recorded(ctx, http.MethodGet, id, wait)
}

// pollTime is how long one request waits for the end of an action.
const pollTime = 30 * time.Second

// Wait waits until an action has ended, across broken connections, and returns its record.
// Errors are those of [Client.Action].
func (c *Client) Wait(ctx context.Context, id string) (a api.RecordedAction, err error) {
	var polls uint64
	err = c.once(ctx, id, &polls, func(http.Header) error {
		for {
			a, err = c.Action(ctx, id, pollTime)
			if err != nil || a.State != api.StateReserved && a.State != api.StateRunning {
				return err
			}
			polls++
		}
	})
	return a, err
}

// Cancel cancels an action: a reserved one never runs, and a running one is ended. It waits
// for the end as [Client.Action] does, and returns the record. An action that has ended is
// unchanged. The error is a *StatusError of 409 if the action left its command running, or
// cannot be cancelled; its detail says how to end the command.
func (c *Client) Cancel(ctx context.Context, id string, wait time.Duration) (api.RecordedAction, error) {
	return c.recorded(ctx, http.MethodDelete, id, wait)
}

func (c *Client) recorded(ctx context.Context, method, id string, wait time.Duration) (api.RecordedAction, error) {
	var a api.RecordedAction
	seconds := int((max(wait, 0) + time.Second - 1) / time.Second)
	return a, c.call(ctx, method, actionPath(id)+"?wait="+strconv.Itoa(seconds), "", nil, &a, c.maxResponse)
}

// WriteInput appends data to the input of a program that was started with StdinStream, and
// ends the input if end is set. offset is that of the first byte of data. Bytes before the
// current end are not written again, so that a call can be repeated after a broken connection.
// WriteInput waits at most half a minute for the program to read the data, and returns the offset of
// the next byte; ended says that all data was taken and the input has ended. The error is a
// *StatusError of 409 if the program takes no more input.
func (c *Client) WriteInput(
	ctx context.Context, id string, offset int64, data []byte, end bool,
) (next int64, ended bool, err error) {
	query := url.Values{"offset": {strconv.FormatInt(offset, 10)}, "end": {strconv.FormatBool(end)}}
	taken := api.ProgramInput{}
	err = c.upload(ctx, actionPath(id)+"/input?"+query.Encode(), "application/octet-stream", bytes.NewReader(data), &taken)
	if err != nil {
		return offset, false, err
	}
	return taken.Offset, taken.Ended, nil
}

// feedSize bounds the input of one request, in bytes.
const feedSize = 256 << 10

// Feed copies r to the input of a program that was started with StdinStream, as fast as the
// program reads, and ends the input at the end of r. After a broken connection it sends lost
// bytes again; if reconnecting fails, the error is ErrCut. It returns nil if the program stops
// reading before the end of r. ctx does not interrupt a read of r.
func (c *Client) Feed(ctx context.Context, id string, r io.Reader) error {
	buf := make([]byte, feedSize)
	for offset := int64(0); ; {
		n, read := r.Read(buf)
		end := errors.Is(read, io.EOF)
		err := c.feed(ctx, id, offset, buf[:n], end)
		switch failed, ok := errors.AsType[*StatusError](err); {
		case ok && failed.Status == http.StatusConflict:
			return nil
		case err != nil || end:
			return err
		case read != nil:
			return callersError{read}
		}
		offset += int64(n)
	}
}

// feed writes data until the program has all of it.
func (c *Client) feed(ctx context.Context, id string, offset int64, data []byte, end bool) error {
	for tries := 1; ; tries++ {
		next, ended, err := c.WriteInput(ctx, id, offset, data, end)
		taken := next - offset
		switch {
		case err == nil && taken == int64(len(data)) && ended == end:
			return nil
		case err == nil && taken >= 0 && taken <= int64(len(data)): // it does not read at the moment
			offset, data, tries = next, data[taken:], 0
		case err == nil:
			return fmt.Errorf("the sandbox reports %d bytes of input taken, but only %d were sent", next,
				offset+int64(len(data)))
		case !broken(ctx, err) && !unanswered(err):
			return err
		case tries == maxSends || !c.pause(ctx, tries):
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
	}
}

// Signal sends a signal, such as "SIGHUP", to the process group of a program.
func (c *Client) Signal(ctx context.Context, id, signal string) error {
	return c.post(ctx, actionPath(id)+"/signal", api.ProgramSignal{Signal: signal}, nil)
}

// Resize sets the size of a program's terminal.
func (c *Client) Resize(ctx context.Context, id string, size api.TTY) error {
	return c.post(ctx, actionPath(id)+"/resize", size, nil)
}

func actionPath(id string) string { return "/v1/actions/" + url.PathEscape(id) }

// pause waits longer after each attempt. It returns false if ctx ended.
func (c *Client) pause(ctx context.Context, tries int) bool {
	return channel.Sleep(ctx, min(c.limits.pause<<(tries-1), 40*c.limits.pause)) == nil
}

// broken reports whether an error is caused by a broken connection.
func broken(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, ErrTooSlow) || errors.Is(err, ErrGone) || errors.As(err, new(callersError)) {
		return false
	}
	return errors.Is(err, errSilent) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error)) ||
		errors.As(err, new(*url.Error))
}

// callersError is an error of the caller's function, reader or writer.
type callersError struct{ error }

// Unwrap returns the caller's error.
func (e callersError) Unwrap() error { return e.error }

// notSent reports whether no connection could be made.
func notSent(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial"
}

// known returns the observation of an answer, or ErrUnknown with it; err is that of the call.
func known(o api.Observation, err error) (api.Observation, error) {
	if err != nil {
		return nil, err
	}
	if e, ok := o.(api.ErrorObservation); ok && strings.HasPrefix(e.Content, unknownPrefix) {
		return o, fmt.Errorf("%w%s", ErrUnknown, strings.TrimPrefix(e.Content, strings.TrimSuffix(unknownPrefix, ":")))
	}
	return o, nil
}
