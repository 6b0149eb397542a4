package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
)

// writeYAML writes what JSON can say as YAML, members in their order. Strings
// that could be taken for something else are quoted as in JSON, which YAML
// reads too.
func writeYAML(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	y := yamlWriter{in: d}
	if err := y.value("", false); err != nil {
		return err
	}
	_, err = w.Write(y.out.Bytes())
	return err
}

// yamlWriter turns the tokens of a JSON value into YAML.
type yamlWriter struct {
	in  *json.Decoder
	out bytes.Buffer
}

// value writes the next value, which a "-" or a name may stand before, and ends
// the line. indent is that of its members.
func (y *yamlWriter) value(indent string, named bool) error {
	token, err := y.in.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'), json.Delim('['):
		return y.members(token, indent, named)
	}
	if named {
		y.out.WriteByte(' ')
	}
	y.out.WriteString(yamlScalar(token) + "\n")
	return nil
}

// members writes an object or a list up to its end.
func (y *yamlWriter) members(open json.Token, indent string, named bool) error {
	if !y.in.More() {
		if named {
			y.out.WriteByte(' ')
		}
		y.out.WriteString(map[json.Token]string{json.Delim('{'): "{}\n", json.Delim('['): "[]\n"}[open])
		_, err := y.in.Token()
		return err
	}
	if named {
		y.out.WriteByte('\n')
	}
	for y.in.More() {
		y.out.WriteString(indent)
		if open == json.Delim('[') {
			y.out.WriteByte('-')
		} else {
			name, err := y.in.Token()
			if err != nil {
				return err
			}
			y.out.WriteString(yamlScalar(name) + ":")
		}
		if err := y.value(indent+"  ", true); err != nil {
			return err
		}
	}
	_, err := y.in.Token()
	return err
}

// yamlPlain is what needs no quotes; yamlWord, among it, what means something
// else without them.
var (
	yamlPlain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)
	yamlWord  = regexp.MustCompile(`(?i)^(null|true|false|yes|no|on|off|y|n)$`)
)

func yamlScalar(token json.Token) string {
	text, ok := token.(string)
	if !ok {
		if token == nil {
			return "null"
		}
		return fmt.Sprint(token)
	}
	if yamlPlain.MatchString(text) && !yamlWord.MatchString(text) {
		return text
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can be encoded
	}
	var b strings.Builder
	for _, r := range string(quoted) {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			_, _ = fmt.Fprintf(&b, `\U%08x`, r)
		default: // YAML ends lines at some that JSON does not
			_, _ = fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
