package actions

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

const (
	// MaxContext bounds the lines around a match.
	MaxContext = 50
	// MaxLine bounds a line that is matched whole, in bytes: a longer one is matched in parts.
	MaxLine = 32 << 10
	// searchTime bounds one search.
	searchTime = time.Minute
)

// Search writes the lines in the interval that match an expression, each as it is, and so many
// lines around them, as grep -C does: limit bytes at most, but at least one match. It needs the
// memory of these lines. A missing part, and the offset at which it stopped because of the
// limit or the time, is reported in a line of its own.
func (o Output) Search(w io.Writer, re *regexp.Regexp, context int, limit int64) {
	(&search{w: w, re: re, context: context, left: limit}).run(o)
}

// search is the state of one Search.
type search struct {
	w       io.Writer
	re      *regexp.Regexp
	context int
	left    int64 // bytes that may be written

	line      []byte   // the current, unfinished one
	begin     int64    // its offset
	number    int64    // its number
	before    [][]byte // the lines before it that are not written
	after     int      // lines that are yet to be written behind a match
	written   int64    // the number of the last line that was written
	separated bool     // a line of its own came since
	err       error    // of w, or errStopped
}

// run searches the kept output.
func (s *search) run(o Output) {
	s.begin = o.From
	deadline := time.Now().Add(searchTime)
	err := o.each(func(at int64, data []byte) bool {
		if end := s.begin + int64(len(s.line)); at > end {
			if s.endLine(); s.err != nil {
				return false
			}
			s.note(fmt.Sprintf("%d bytes are not kept", at-end))
			s.begin, s.before, s.after = at, nil, 0
		}
		for len(data) > 0 && s.err == nil {
			n := min(bytes.IndexByte(data, '\n')+1, MaxLine-len(s.line))
			if n <= 0 {
				n = min(len(data), MaxLine-len(s.line))
			}
			s.line = append(s.line, data[:n]...)
			data = data[n:]
			if s.line[len(s.line)-1] == '\n' || len(s.line) == MaxLine {
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
		s.note(fmt.Sprintf("the rest from offset %d on cannot be read", s.begin))
	}
	if s.err == errStopped { //nolint:errorlint // it is never wrapped
		s.err = nil
		s.note(fmt.Sprintf("the search stopped: go on with offset=%d", s.begin))
	}
}

// errStopped says that a search stopped before the end.
var errStopped = errors.New("stopped")

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

// note writes a note.
func (s *search) note(text string) {
	s.write([]byte("[... " + text + " ...]\n"))
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
