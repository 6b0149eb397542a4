package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/actiond/actiond/api"
)

// OutputPart says which part of an output [Client.Output] writes. The zero value is all.
type OutputPart struct {
	// Stream is api.StreamStdout or api.StreamStderr, of a program; "" is all in the order
	// of arrival.
	Stream string
	// Offset is where to begin, in bytes of the stream.
	Offset int64
	// Tail is how many of the last lines are wanted; 0 is all.
	Tail int64
	// Grep is an expression of RE2 that lines must match, of those that Tail leaves, and
	// Context how many lines around each come too, 50 at most; "" is all.
	Grep    string
	Context int
}

// Output writes what an action has printed so far to w, each byte once also where the
// connection breaks. It returns how many bytes of it the sandbox does not keep. A
// *StatusError of 404 says that there is no such action, one of 410 that it is
// forgotten, and one of 416 that it did not print so much.
func (c *Client) Output(ctx context.Context, id string, part OutputPart, w io.Writer) (missed int64, err error) {
	if part.Grep != "" {
		return 0, c.searchOutput(ctx, id, part, w)
	}
	r := outputReader{c: c, id: id, part: part, end: -1, w: w}
	err = c.once(ctx, id, &r.written, func(http.Header) error {
		for r.part.Offset < r.end || r.end < 0 {
			if err := r.read(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return r.missed, err
}

// searchOutput writes lines that match. What was written is not written again: a connection
// that breaks then is an error.
func (c *Client) searchOutput(ctx context.Context, id string, part OutputPart, w io.Writer) error {
	query := part.query()
	query.Set("grep", part.Grep)
	query.Set("context", strconv.Itoa(part.Context))
	return c.once(ctx, id, new(uint64), func(http.Header) error {
		answer, err := c.send(ctx, nil, http.MethodGet, actionPath(id)+"/output?"+query.Encode(), "", nil)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Close() }()
		n, err := io.Copy(callersWriter{w}, answer)
		switch {
		case err != nil && n > 0:
			return fmt.Errorf("reading the answer of %s: %v", answer.path, answer.cause(err)) //nolint:errorlint // it is not sent again
		case err != nil:
			return fmt.Errorf("reading the answer of %s: %w", answer.path, answer.cause(err))
		}
		return nil
	})
}

func (p OutputPart) query() url.Values {
	query := url.Values{"offset": {strconv.FormatInt(p.Offset, 10)}}
	if p.Stream != "" {
		query.Set("stream", p.Stream)
	}
	if p.Tail > 0 {
		query.Set("tail", strconv.FormatInt(p.Tail, 10))
	}
	return query
}

// outputReader reads an output by several requests.
type outputReader struct {
	c       *Client
	id      string
	part    OutputPart // what is not read yet
	end     int64      // of what had been printed at the first request; -1 before it
	missed  int64
	written uint64
	w       io.Writer
}

// read writes the next bytes that follow each other.
func (r *outputReader) read(ctx context.Context) error {
	answer, err := r.c.send(ctx, nil, http.MethodGet, actionPath(r.id)+"/output?"+r.part.query().Encode(), "", nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	offset, err := strconv.ParseInt(answer.header.Get(api.OutputOffsetHeader), 10, 64)
	if err != nil || offset < r.part.Offset {
		return fmt.Errorf("reading the answer of %s: output at offset %q, from %d on", answer.path, answer.header.Get(api.OutputOffsetHeader), r.part.Offset)
	}
	if r.end < 0 {
		total := answer.header.Get(api.OutputTotalHeader)
		if r.end, err = strconv.ParseInt(total, 10, 64); err != nil || r.end < 0 {
			return fmt.Errorf("reading the answer of %s: %q bytes of output", answer.path, total)
		}
	}
	offset = max(min(offset, r.end), r.part.Offset)
	if r.part.Tail > 0 { // what comes before was not asked for
		r.part.Offset, r.part.Tail = offset, 0
	}
	n, err := io.Copy(callersWriter{r.w}, io.LimitReader(answer, r.end-offset))
	r.written += uint64(n) //nolint:gosec // not negative
	if n > 0 || err == nil {
		r.missed += offset - r.part.Offset
		r.part.Offset = offset + n
	}
	if n == 0 && err == nil { // the sandbox keeps no more
		r.missed += max(r.end-offset, 0)
		r.part.Offset = r.end
	}
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", answer.path, answer.cause(err))
	}
	return nil
}

// callersWriter tells errors of the caller's writer from those of a connection.
type callersWriter struct{ io.Writer }

// Write calls the caller's writer.
func (w callersWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = callersError{err}
	}
	return n, err
}
