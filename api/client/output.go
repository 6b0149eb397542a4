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

// OutputPart selects the part of an output that [Client.Output] writes. The zero value is
// all of it.
type OutputPart struct {
	// Stream is api.StreamStdout or api.StreamStderr, of a program; "" is both in the order
	// of arrival.
	Stream string
	// Offset is the offset of the first byte in the stream.
	Offset int64
	// Tail selects the last lines; 0 selects all.
	Tail int64
	// Grep is a regular expression in RE2's syntax that selects lines, of those that Tail
	// selects; "" selects all. Context is the number of lines around each match, at most 50.
	Grep    string
	Context int
}

// Output writes the output of an action so far to w, each byte once, even if the connection
// breaks. It returns the number of bytes that the sandbox no longer retains. The error is a
// *StatusError of 404 if the action does not exist, of 410 if its record has expired, and of
// 416 if the offset is beyond the output.
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

// searchOutput writes the matching lines. After the first byte was written, a broken
// connection is an error, because lines must not be written twice.
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
	part    OutputPart // the rest
	end     int64      // the length of the output at the first request; -1 before it
	missed  int64
	written uint64
	w       io.Writer
}

// read writes the next contiguous bytes.
func (r *outputReader) read(ctx context.Context) error {
	answer, err := r.c.send(ctx, nil, http.MethodGet, actionPath(r.id)+"/output?"+r.part.query().Encode(), "", nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	offset, err := strconv.ParseInt(answer.header.Get(api.OutputOffsetHeader), 10, 64)
	if err != nil || offset < r.part.Offset {
		return fmt.Errorf("reading the answer of %s: output begins at offset %q, before %d", answer.path,
			answer.header.Get(api.OutputOffsetHeader), r.part.Offset)
	}
	if r.end < 0 {
		total := answer.header.Get(api.OutputTotalHeader)
		if r.end, err = strconv.ParseInt(total, 10, 64); err != nil || r.end < 0 {
			return fmt.Errorf("reading the answer of %s: invalid output length %q", answer.path, total)
		}
	}
	offset = max(min(offset, r.end), r.part.Offset)
	if r.part.Tail > 0 { // earlier lines were not requested
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

// callersWriter marks errors of the caller's writer, to distinguish them from those of a
// connection.
type callersWriter struct{ io.Writer }

// Write calls the caller's writer.
func (w callersWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = callersError{err}
	}
	return n, err
}
