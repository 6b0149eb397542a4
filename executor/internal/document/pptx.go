package document

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

func readPPTX(in io.ReaderAt, size int64, o *output) error {
	a, err := openArchive(in, size)
	if err != nil {
		return err
	}
	const main = "ppt/presentation.xml"
	links, err := a.relations(main)
	if err != nil {
		return err
	}
	var slides []string
	err = a.walk(main, handler{start: func(e xml.StartElement) error {
		if e.Name.Local == "sldId" && len(slides) < maxPages {
			slides = append(slides, links[relationID(e)].target)
		}
		return nil
	}})
	if err != nil {
		return err
	}
	for i, part := range slides {
		if err := readSlide(a, part, i+1, o); err != nil {
			return err
		}
	}
	return nil
}

// relationID returns the attribute r:id, beside which an id without a prefix may be.
func relationID(e xml.StartElement) string {
	for _, a := range e.Attr {
		if a.Name.Local == "id" && a.Name.Space != "" {
			return a.Value
		}
	}
	return ""
}

// readSlide reads a slide and its notes.
func readSlide(a *archive, part string, number int, o *output) error {
	if err := o.block(fmt.Sprintf("<!-- Slide number: %d -->", number)); err != nil {
		return err
	}
	s := &slide{o: o}
	if err := a.walk(part, s.handler()); err != nil {
		return err
	}
	links, err := a.relations(part)
	if err != nil {
		return err
	}
	for _, link := range links {
		if link.kind == "notesSlide" {
			return a.walk(link.target, (&slide{o: o, notes: true}).handler())
		}
	}
	return nil
}

// slide is the state of reading a slide's shapes.
type slide struct {
	o      *output
	notes  bool // only the notes are of interest
	kind   string
	name   string // of the picture or shape, and its description
	about  string
	text   strings.Builder
	inText bool
	cells  []string
	table  *table
}

func (s *slide) handler() handler { return handler{start: s.start, end: s.end, text: s.chars} }

func (s *slide) start(e xml.StartElement) error {
	switch e.Name.Local {
	case "sp", "pic", "graphicFrame":
		s.kind = ""
		s.text.Reset()
	case "cNvPr":
		s.name, s.about = attr(e, "name"), attr(e, "descr")
	case "ph":
		s.kind = attr(e, "type")
	case "t":
		s.inText = true
	case "br":
		s.text.WriteByte('\n')
	case "tbl":
		s.table = &table{o: s.o}
	case "tc":
		s.text.Reset()
	}
	return nil
}

func (s *slide) chars(text string) error {
	if s.inText {
		s.text.WriteString(text)
	}
	return nil
}

func (s *slide) end(name string) error {
	switch name {
	case "t":
		s.inText = false
	case "p":
		s.text.WriteByte('\n')
	case "tc":
		s.cells = append(s.cells, s.text.String())
		s.text.Reset()
	case "tr":
		cells := s.cells
		s.cells = nil
		if s.table != nil && !s.notes {
			return s.table.row(cells)
		}
	case "tbl":
		s.table = nil
		return s.o.add("\n")
	case "sp":
		return s.shape()
	case "pic":
		if !s.notes {
			return s.o.block("![" + strings.Join(strings.Fields(s.about), " ") + "](" + fileName(s.name) + ")")
		}
	}
	return nil
}

// shape writes the text of a shape.
func (s *slide) shape() error {
	text := strings.TrimSpace(s.text.String())
	s.text.Reset()
	switch {
	case text == "", s.notes && s.kind != "body":
		return nil
	case s.notes:
		return s.o.block("### Notes:\n" + text)
	case s.kind == "title", s.kind == "ctrTitle":
		return s.o.block("# " + strings.Join(strings.Fields(text), " "))
	case s.kind == "sldNum", s.kind == "dt", s.kind == "ftr":
		return nil
	}
	return s.o.block(text)
}
