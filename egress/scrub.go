package egress

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// forms are the texts that must not pass, of visible ASCII characters and none of them empty.
type forms [][]byte

// span is a part of a text.
type span struct{ from, to int }

// find returns where the forms are in text. Spans may overlap.
func (f forms) find(text []byte) (found []span) {
	for _, form := range f {
		first := len(found)
		for from := 0; ; from++ {
			at := bytes.Index(text[from:], form)
			if at < 0 {
				break
			}
			from += at
			if last := len(found) - 1; last >= first && found[last].to >= from {
				found[last].to = from + len(form)
				continue
			}
			found = append(found, span{from, from + len(form)})
		}
	}
	return found
}

// partialMatch returns the offset in text, at or after from, of the first form that the end of text may
// cut off, judged by its first known bytes; len(text) if none.
func (f forms) partialMatch(text []byte, from, known int) int {
	first := len(text)
	for _, form := range f {
		at := max(from, len(text)-len(form)+1)
		if i := bytes.Index(text[at:], form[:known]); i >= 0 {
			first = min(first, at+i)
		}
	}
	return first
}

// lengths returns those of the shortest form and of the longest; 0 without forms.
func (f forms) lengths() (shortest, longest int) {
	for i, form := range f {
		if longest = max(longest, len(form)); i == 0 || len(form) < shortest {
			shortest = len(form)
		}
	}
	return shortest, longest
}

func hide(text []byte) {
	for i := range text {
		text[i] = '*'
	}
}

// scrub replaces the forms in the values of a header by asterisks, and drops fields whose names have one, in
// whatever case: names arrive in another one than they were sent.
func (f forms) scrub(h map[string][]string) {
	for name, values := range h {
		if f.inName(name) {
			delete(h, name)
			continue
		}
		for i, value := range values {
			found := f.find([]byte(value))
			if len(found) == 0 {
				continue
			}
			text := []byte(value)
			for _, s := range found {
				hide(text[s.from:s.to])
			}
			values[i] = string(text)
		}
	}
}

func (f forms) inName(name string) bool {
	return slices.ContainsFunc(f, func(form []byte) bool {
		return len(form) <= len(name) && strings.Contains(strings.ToLower(name), strings.ToLower(string(form)))
	})
}

const (
	scrubPortion = 16 << 10               // bytes that are read at once
	scrubPause   = 100 * time.Millisecond // after which a stream is not held back
	maxGuess     = 8                      // bytes that a client must guess at once to see that a form begins with them
)

// scrubber is a body in which forms are replaced by asterisks of the same length. The sandbox sees how a body
// is cut, and when each part comes, and may have the host send it any text: if that depended on how much of the
// text a form begins with, it would find a value byte by byte. So the text behind the last byte that no form can
// have is held back, as much as a form can have before its last byte, whatever it is. Only a stream whose host
// pauses is passed on without its rest, for which its client may wait. By pauses, which a sandbox can bring
// about, it may find the first bytes of a form: less than maxGuess are passed on, or than half of the shortest form,
// and where so many are there, the rest is held back until the host goes on.
//
// It takes scrubPortion and the length of the longest form of memory. It stops echoes: a host that transforms
// a value, or sends parts of it for a range, still gets it through.
type scrubber struct {
	io.ReadCloser

	forms   forms
	longest int    // of forms
	guess   int    // see maxGuess; of short forms at most half
	stream  bool   // its length is not known
	ended   func() // called once at the end of the body

	buf       []byte       // begins at its first Read
	at, ready int          // buf[at:ready] is to be returned
	end       int          // buf[ready:end] is held back
	settled   int          // no form that begins in buf[:settled] goes on behind buf[:end]
	found     []span       // forms in buf[:end]; the first may have begun before it
	coming    chan portion // of a stream that is being read; nil otherwise
	paused    bool         // nothing came since what could be was passed on
	err       error
}

// portion is the result of a Read.
type portion struct {
	n   int
	err error
}

// scrubBody has a response scrubbed, its trailers as well. Without forms it does nothing.
func scrubBody(res *http.Response, f forms) {
	if len(f) == 0 {
		return
	}
	f.scrub(res.Trailer) // the names of those to come
	shortest, longest := f.lengths()
	res.Body = &scrubber{
		ReadCloser: res.Body, forms: f, longest: longest, guess: min(maxGuess, shortest/2),
		stream: res.ContentLength < 0, ended: func() { f.scrub(res.Trailer) },
	}
}

func (s *scrubber) Read(p []byte) (int, error) {
	for s.at == s.ready {
		if s.err != nil {
			return 0, s.err
		}
		s.fill()
	}
	n := copy(p, s.buf[s.at:s.ready])
	for _, one := range s.found {
		if from, to := max(0, one.from-s.at), min(n, one.to-s.at); from < to {
			hide(p[from:to])
		}
	}
	s.at += n
	return n, nil
}

// Close waits for the end of a Read that is under way.
func (s *scrubber) Close() error {
	err := s.ReadCloser.Close()
	if s.coming != nil {
		<-s.coming
		s.coming = nil
	}
	return err
}

// fill reads, or waits for a pause, and makes the text ready that can be passed on.
func (s *scrubber) fill() {
	got, ok := s.read()
	text := s.buf[:s.end+got.n]
	s.end, s.paused = len(text), !ok
	switch {
	case got.err == io.EOF: //nolint:errorlint // as by io.Copy
		s.settled, s.ready = s.end, s.end
	case ok && got.err == nil:
		s.settled = max(s.settled, s.end-s.longest+1)
		for at := s.end; at > s.settled; at-- {
			if !isVisible(rune(text[at-1])) {
				s.settled = at
			}
		}
		s.ready = max(s.ready, s.settled)
	default:
		s.ready = max(s.ready, s.forms.partialMatch(text, s.settled, s.guess))
	}
	s.found = append(s.found, s.forms.find(text)...) // also after a pause, before which drop forgot them
	if got.err != nil {
		s.err = got.err
		s.ended()
	}
}

// read reads once. It returns false if the host of a stream of which something is held back pauses before.
func (s *scrubber) read() (got portion, ok bool) {
	if s.coming == nil {
		s.drop()
		into := s.buf[s.end:]
		if !s.stream {
			got.n, got.err = s.ReadCloser.Read(into)
			return got, true
		}
		came := make(chan portion, 1)
		go func() {
			n, err := s.ReadCloser.Read(into)
			came <- portion{n, err}
		}()
		s.coming = came
	}
	var late <-chan time.Time
	if s.ready < s.end && !s.paused {
		timer := time.NewTimer(scrubPause)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case got = <-s.coming:
		s.coming = nil
		return got, true
	case <-late:
		return portion{}, false
	}
}

// drop makes room behind the text that is kept: held back, or passed on though a form may begin in it.
func (s *scrubber) drop() {
	if s.buf == nil {
		s.buf = make([]byte, s.longest+scrubPortion)
	}
	hidden := 0
	for _, one := range s.found {
		if one.from < s.settled {
			hidden = max(hidden, one.to-s.settled)
		}
	}
	s.found = append(s.found[:0], span{-1, hidden}) // the others will be found again
	copy(s.buf, s.buf[s.settled:s.end])
	s.at, s.ready, s.end, s.settled = s.at-s.settled, s.ready-s.settled, s.end-s.settled, 0
}
