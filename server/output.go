package server

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/regex"
)

// actionOutput answers with bytes that an action printed, from an offset on and as far as
// they follow each other, or the lines of these that match. It does not wait for more.
func (s *Server) actionOutput(w http.ResponseWriter, r *http.Request) error {
	run, err := s.findAction(r)
	if err != nil {
		return err
	}
	q, err := readOutputQuery(r)
	if err != nil {
		return err
	}
	name := r.URL.Query().Get("stream")
	out, ok := run.Output(name)
	if !ok {
		return invalid("query.stream: must be %s or %s, got %s", api.StreamStdout, api.StreamStderr, api.Describe(name))
	}
	if out.From = q.offset; out.From > out.Total {
		return refuse(http.StatusRequestedRangeNotSatisfiable, "Offset %d is beyond the %d bytes of output so far", out.From,
			out.Total)
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set(api.OutputTotalHeader, strconv.FormatInt(out.Total, 10))
	if q.tail < math.MaxInt64 {
		if out.From, err = out.LastLines(q.tail); err != nil {
			return fmt.Errorf("reading the output of action %q: %w", run.ID(), err)
		}
	}
	if q.grep != nil {
		taken, err := s.shares.Take(r.Context(), q.context*actions.MaxLine)
		if err != nil {
			return err
		}
		defer s.shares.Give(taken)
		h.Set(api.OutputOffsetHeader, strconv.FormatInt(out.From, 10))
		out.Search(w, q.grep, int(q.context), q.limit)
		return nil
	}
	h.Set("Accept-Ranges", "bytes")
	left := q.limit
	if begin, end, asked := byteRange(r, out.Total); asked {
		out.From, out.To = begin, end
		if out.From, left, err = out.Stretch(); err != nil {
			return fmt.Errorf("reading the output of action %q: %w", run.ID(), err)
		}
		if left == 0 {
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", out.Total))
			return refuse(http.StatusRequestedRangeNotSatisfiable,
				"None of the requested range is retained (output so far: %d bytes)", out.Total)
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", out.From, out.From+left-1, out.Total))
		h.Set("Content-Length", strconv.FormatInt(left, 10))
		h.Set(api.OutputOffsetHeader, strconv.FormatInt(out.From, 10))
		w.WriteHeader(http.StatusPartialContent)
	}
	h.Set(api.OutputOffsetHeader, strconv.FormatInt(out.From, 10)) // where nothing is kept
	out.Write(w, left, func(at int64) { h.Set(api.OutputOffsetHeader, strconv.FormatInt(at, 10)) })
	return nil
}

// outputQuery selects a part of the output of an action.
type outputQuery struct {
	offset, limit int64
	tail          int64          // lines; math.MaxInt64 for all
	grep          *regexp.Regexp // nil for all lines
	context       int64          // lines around each of grep
}

func readOutputQuery(r *http.Request) (q outputQuery, err error) {
	for _, n := range []struct {
		name          string
		value         *int64
		missing, most uint64
	}{
		{"offset", &q.offset, 0, math.MaxInt64},
		{"limit", &q.limit, math.MaxInt64, math.MaxInt64},
		{"tail", &q.tail, math.MaxInt64, math.MaxInt64},
		{"context", &q.context, 0, actions.MaxContext},
	} {
		value, err := number(r, n.name, n.missing, n.most)
		if err != nil {
			return q, err
		}
		*n.value = int64(value) //nolint:gosec // at most MaxInt64
	}
	if text := r.URL.Query().Get("grep"); text != "" {
		if q.grep, err = regex.Compile(text); err != nil {
			return q, invalid("query.grep: %v", err)
		}
	}
	return q, nil
}

// byteRange returns the interval of so many bytes that the Range header asks for, which may
// be empty. asked is false where the query names the range, and for headers that RFC 9110
// (14.2) lets a server ignore: several ranges, and conditional ones.
func byteRange(r *http.Request, total int64) (begin, end int64, asked bool) {
	spec, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	first, last, single := strings.Cut(spec, "-")
	query := r.URL.Query()
	if !ok || !single || r.Header.Get("If-Range") != "" || query.Has("offset") || query.Has("limit") || query.Has("tail") {
		return 0, 0, false
	}
	number := func(text string) int64 {
		n, err := strconv.ParseUint(text, 10, 63)
		ok = ok && err == nil
		return int64(n)
	}
	switch {
	case first == "":
		begin, end = max(0, total-number(last)), total
	case last == "":
		begin, end = number(first), total
	default:
		begin, end = number(first), number(last)
		ok = ok && begin <= end
		end = min(end, total-1) + 1
	}
	return begin, end, ok
}
