package egress

import (
	"bytes"
	"io"
	"net/http"
)

// forms are the texts that must not pass, none of them empty.
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

// begun returns the length of the longest end of text with which a form may begin.
func (f forms) begun(text []byte) int {
	longest := 0
	for _, form := range f {
		tail := text[max(0, len(text)-len(form)+1):]
		for len(tail) > longest {
			at := bytes.IndexByte(tail, form[0])
			if at < 0 {
				break
			}
			if tail = tail[at:]; bytes.HasPrefix(form, tail) {
				longest = max(longest, len(tail))
				break
			}
			tail = tail[1:]
		}
	}
	return longest
}

func (f forms) longest() int {
	longest := 0
	for _, form := range f {
		longest = max(longest, len(form))
	}
	return longest
}

func hide(text []byte) {
	for i := range text {
		text[i] = '*'
	}
}

// scrub replaces the forms in the values of a header by asterisks.
func (f forms) scrub(h map[string][]string) {
	for _, values := range h {
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

const scrubPortion = 16 << 10 // bytes that are read at once

// scrubber is a body in which forms are replaced by asterisks of the same length. Of a stream it holds back
// nothing but what a form may begin with, so that it is not held up; of a body whose length is known, always
// as much as a form can have before its last byte, because the sandbox sees what is held back: a host that
// ends a response with text of the sandbox's would let it find a value piece by piece. It takes scrubPortion
// and the length of the longest form of memory. It stops echoes: a host that transforms a value, or sends
// parts of it for a range, still gets it through.
type scrubber struct {
	io.ReadCloser

	forms  forms
	stream bool   // its length is not known
	ended  func() // called once at the end of the body

	buf       []byte // begins at its first Read
	at, ready int    // buf[at:ready] is scrubbed and to be returned
	end       int    // buf[ready:end] is held back as it came
	hidden    int    // bytes of that which are hidden by a form that began before it
	err       error
}

// scrubBody has a response scrubbed, its trailers as well.
func scrubBody(res *http.Response, f forms) {
	res.Body = &scrubber{ReadCloser: res.Body, forms: f, stream: res.ContentLength < 0, ended: func() { f.scrub(res.Trailer) }}
}

func (s *scrubber) Read(p []byte) (int, error) {
	for s.at == s.ready {
		if s.err != nil {
			return 0, s.err
		}
		s.fill()
	}
	n := copy(p, s.buf[s.at:s.ready])
	s.at += n
	return n, nil
}

// fill reads, and scrubs as much as it can.
func (s *scrubber) fill() {
	if s.buf == nil {
		s.buf = make([]byte, s.forms.longest()+scrubPortion)
	}
	held := copy(s.buf, s.buf[s.ready:s.end])
	n, err := s.ReadCloser.Read(s.buf[held:])
	text := s.buf[:held+n]
	ready := len(text)
	switch {
	case err != nil:
		s.err = err
		s.ended()
	case s.stream:
		ready -= s.forms.begun(text)
	default:
		ready -= min(ready, max(0, s.forms.longest()-1))
	}
	found := s.forms.find(text)
	hide(text[:min(s.hidden, ready)])
	s.hidden = max(0, s.hidden-ready)
	for _, one := range found { // those in what is held back will be found again
		if one.from < ready {
			hide(text[one.from:min(one.to, ready)])
			s.hidden = max(s.hidden, one.to-ready)
		}
	}
	s.at, s.ready, s.end = 0, ready, len(text)
}
