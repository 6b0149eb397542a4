package document

import (
	"archive/zip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/net/html/charset"
)

// archive is an Office document: parts of XML in a zip file.
type archive struct {
	parts map[string]*zip.File
	most  int64 // bytes of a part that are read
	left  int64 // bytes that may still be read
}

func openArchive(in io.ReaderAt, size int64) (*archive, error) {
	r, err := zip.NewReader(in, size)
	if err != nil {
		return nil, fmt.Errorf("it is not a zip archive, as documents of Office are: %w", err)
	}
	a := &archive{parts: make(map[string]*zip.File, len(r.File)), most: maxPart, left: maxParts}
	for _, f := range r.File {
		if name := partName(f.Name); a.parts[name] == nil {
			a.parts[name] = f
		}
	}
	return a, nil
}

// partName returns the name of a part as others are compared with it: without regard to case (ECMA-376, part 2, 6.2.2.3), and
// with the slashes that some programs write the other way.
func partName(name string) string {
	return strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(name, `\`, "/"), "/"))
}

// handler takes the elements and the text of a part, by names without their prefixes.
type handler struct {
	start func(xml.StartElement) error
	end   func(name string) error
	text  func(string) error
}

// walk reads a part. It fails where the part is missing or larger than it may be.
func (a *archive) walk(name string, h handler) error {
	f := a.parts[partName(name)]
	if f == nil {
		return fmt.Errorf("its part %s is missing", name)
	}
	r, err := f.Open()
	if err != nil {
		return fmt.Errorf("its part %s: %w", name, err)
	}
	defer func() { _ = r.Close() }()
	most := min(a.most, a.left)
	bounded := &io.LimitedReader{R: r, N: most}
	err = walkXML(bounded, h)
	a.left -= most - bounded.N
	if bounded.N == 0 && !errors.Is(err, errEnough) {
		return fmt.Errorf("its part %s is too large: parts have at most %d MiB, and %d MiB together", name, a.most>>20, maxParts>>20)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("its part %s: %w", name, err)
	}
	return err
}

func walkXML(r io.Reader, h handler) error {
	d := xml.NewDecoder(r)
	d.CharsetReader = charset.NewReaderLabel
	skip := 0 // depth inside of a part for other programs
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if skip > 0 || t.Name.Local == "Fallback" {
				skip++
			} else if h.start != nil {
				err = h.start(t)
			}
		case xml.EndElement:
			if skip > 0 {
				skip--
			} else if h.end != nil {
				err = h.end(t.Name.Local)
			}
		case xml.CharData:
			if skip == 0 && h.text != nil {
				err = h.text(string(t))
			}
		}
		if err != nil {
			return err
		}
	}
}

// relation is a link from one part to another, or to an address.
type relation struct{ kind, target string }

// relations returns the links of a part by their ids; none where the part has none.
func (a *archive) relations(part string) (map[string]relation, error) {
	dir, file := path.Split(part)
	name := dir + "_rels/" + file + ".rels"
	if a.parts[partName(name)] == nil {
		return nil, nil //nolint:nilnil // no links
	}
	found := map[string]relation{}
	return found, a.walk(name, handler{start: func(e xml.StartElement) error {
		if e.Name.Local == "Relationship" {
			target := attr(e, "Target")
			if attr(e, "TargetMode") != "External" {
				if !strings.HasPrefix(target, "/") {
					target = path.Join(dir, target)
				}
				target = strings.TrimPrefix(target, "/")
			}
			found[attr(e, "Id")] = relation{path.Base(attr(e, "Type")), target}
		}
		return nil
	}})
}

// attr returns an attribute by its name without a prefix.
func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
