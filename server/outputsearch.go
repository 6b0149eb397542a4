package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

const (
	// maxContext bounds the lines around a match, and maxLine a line that is matched whole,
	// in bytes: a longer one is matched in parts.
	maxContext = 50
	maxLine    = 32 << 10
	// searchTime bounds one search.
	searchTime = time.Minute
)

// kept is the output of an action, or one stream of it, in an interval of offsets.
type kept struct {
	a        *journal.Action
	place    func(journal.Output) (at int64, ok bool)
	from, to int64
}

// each calls visit with what is kept, in order, until that returns false. Data is valid during the call.
func (k kept) each(visit func(at int64, data []byte) bool) error {
	cursor := k.a.From(k.from)
	defer cursor.Close()
	buf := make([]byte, journal.ChunkSize)
	for {
		o, more, err := cursor.Next(buf)
		if errors.Is(err, io.EOF) || err == nil && more != nil {
			return nil
		}
		if err != nil {
			return err
		}
		at, ok := k.place(o)
		data := o.Data
		if !ok || at+int64(len(data)) <= k.from {
			continue
		}
		if at < k.from {
			at, data = k.from, data[k.from-at:]
		}
		if at >= k.to {
			return nil
		}
		if data = data[:min(int64(len(data)), k.to-at)]; !visit(at, data) {
			return nil
		}
	}
}

// stretch returns where the first bytes are that follow each other, and how many.
func (k kept) stretch() (begin, length int64, err error) {
	err = k.each(func(at int64, data []byte) bool {
		if length == 0 {
			begin = at
		}
		if at > begin+length {
			return false
		}
		length += int64(len(data))
		return true
	})
	return begin, length, err
}

// write answers with at most left bytes: the first ones, as far as they follow each other.
// The offset of the first is in a header.
func (k kept) write(w http.ResponseWriter, left int64) {
	begun, end := false, k.from
	_ = k.each(func(at int64, data []byte) bool { // what was read before an error is sent
		switch {
		case left == 0 || begun && at > end:
			return false
		case !begun:
			w.Header().Set(api.OutputOffsetHeader, strconv.FormatInt(at, 10))
			begun = true
		}
		data = data[:min(int64(len(data)), left)]
		end, left = at+int64(len(data)), left-int64(len(data))
		_, err := w.Write(data)
		return err == nil && left > 0 // otherwise the client is gone
	})
	if !begun {
		w.Header().Set(api.OutputOffsetHeader, strconv.FormatInt(k.from, 10))
		w.WriteHeader(http.StatusOK)
	}
}

// lastLines returns the offset of the last n lines: of those behind the last bytes that are not kept.
func (k kept) lastLines(n int64) (int64, error) {
	begin, end, lines := k.from, k.from, int64(0)
	whole := true // the last line has an end
	err := k.each(func(at int64, data []byte) bool {
		if at != end {
			begin, lines = at, 0
		}
		lines += int64(bytes.Count(data, []byte("\n")))
		end, whole = at+int64(len(data)), data[len(data)-1] == '\n'
		return true
	})
	if !whole {
		lines++
	}
	skip := lines - n
	if skip <= 0 || err != nil {
		return begin, err
	}
	found := end
	k.from, k.to = begin, end
	err = k.each(func(at int64, data []byte) bool {
		for i, c := range data {
			if c != '\n' {
				continue
			}
			if skip--; skip == 0 {
				found = at + int64(i) + 1
				return false
			}
		}
		return true
	})
	return found, err
}

// search writes the lines that match an expression, each as it is, and so many lines around
// them, as grep -C does. It needs the memory of these lines. What is not kept, and where
// it stopped because of the limit or the time, is told in a line of its own.
type search struct {
	w       io.Writer
	re      *regexp.Regexp
	context int
	left    int64 // bytes that may be written

	line      []byte   // is yet to end
	begin     int64    // its offset
	number    int64    // its number
	before    [][]byte // the lines before it that are not written
	after     int      // lines that are yet to be written behind a match
	written   int64    // the number of the last line that was written
	separated bool     // a line of its own came since
	err       error    // of w, or errLimit
}

// run searches what is kept.
func (s *search) run(k kept) {
	s.begin = k.from
	deadline := time.Now().Add(searchTime)
	err := k.each(func(at int64, data []byte) bool {
		if end := s.begin + int64(len(s.line)); at > end {
			if s.endLine(); s.err != nil {
				return false
			}
			s.tell(fmt.Sprintf("%d bytes are not kept", at-end))
			s.begin, s.before, s.after = at, nil, 0
		}
		for len(data) > 0 && s.err == nil {
			n := min(bytes.IndexByte(data, '\n')+1, maxLine-len(s.line))
			if n <= 0 {
				n = min(len(data), maxLine-len(s.line))
			}
			s.line = append(s.line, data[:n]...)
			data = data[n:]
			if s.line[len(s.line)-1] == '\n' || len(s.line) == maxLine {
				s.endLine()
			}
		}
		if s.err == nil && time.Now().After(deadline) {
			s.err = errStopped
		}
		return s.err == nil
	})
	s.endLine()
	if err != nil {
		s.tell(fmt.Sprintf("the rest from offset %d on cannot be read", s.begin))
	}
	if s.err == errStopped { //nolint:errorlint // it is never wrapped
		s.err = nil
		s.tell(fmt.Sprintf("the search stopped: go on with offset=%d", s.begin))
	}
}

// errStopped says that a search stopped before the end.
var errStopped = fmt.Errorf("stopped")

// endLine looks at a line.
func (s *search) endLine() {
	if len(s.line) == 0 || s.err != nil {
		return
	}
	s.number++
	matches := s.re.Match(bytes.TrimRight(s.line, "\r\n"))
	if !matches && s.after == 0 {
		if s.context > 0 {
			if len(s.before) == s.context {
				s.before = s.before[1:]
			}
			s.before = append(s.before, bytes.Clone(s.line))
		}
		s.next()
		return
	}
	size := int64(len(s.line))
	for _, line := range s.before {
		size += int64(len(line))
	}
	if size > s.left && s.written > 0 { // one match is written whatever the limit: a client goes on from there
		s.err = errStopped
		return
	}
	s.left -= size
	if first := s.number - int64(len(s.before)); s.context > 0 && s.written > 0 && first > s.written+1 && !s.separated {
		s.write([]byte("--\n"))
	}
	for _, line := range s.before {
		s.write(line)
	}
	s.write(s.line)
	s.before, s.written, s.separated = nil, s.number, false
	if s.after--; matches {
		s.after = s.context
	}
	s.next()
}

// next begins the next line.
func (s *search) next() {
	s.begin += int64(len(s.line))
	s.line = s.line[:0]
}

// tell writes a line of our own.
func (s *search) tell(what string) {
	s.write([]byte("[... " + what + " ...]\n"))
	s.separated = true
}

// write writes a line, with its end.
func (s *search) write(line []byte) {
	if s.err != nil {
		return
	}
	if _, s.err = s.w.Write(line); s.err == nil && line[len(line)-1] != '\n' {
		_, s.err = s.w.Write([]byte("\n"))
	}
}
