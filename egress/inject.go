package egress

import (
	"encoding/base64"
	"slices"
	"strings"
)

const (
	defaultFormat = "Bearer " + placeholder
	basicScheme   = "Basic "
)

// render returns the header, and the forms in which a host may send the value back.
func (s *Secret) render() (header string, found forms) {
	format, value := s.format(), string(s.Value)
	header = strings.Replace(format, placeholder, value, 1)
	texts := []string{value}
	if user, ok := strings.CutPrefix(header, basicScheme); ok && strings.Contains(format, ":") {
		encoded := base64.StdEncoding.EncodeToString([]byte(user))
		header = basicScheme + encoded
		texts = append(texts, strings.TrimRight(encoded, "="))
	}
	// Characters that encoders of URLs keep: in forms, by encodeURIComponent, by Python, in a part of a path, and by
	// encodeURI.
	for _, kept := range []string{"", "!'()*", "/", "$&+:=@", "!#$&'()*+,/:;=?@"} {
		texts = append(texts, escape(value, kept, "0123456789ABCDEF"), escape(value, kept, "0123456789abcdef"))
	}
	for _, escapes := range textEscapes {
		texts = append(texts, escapes.Replace(value))
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 { // bytes before the value, up to a multiple of 3
			encoded := encoding.EncodeToString(append(make([]byte, before), value...))
			// The characters at the ends depend on the bytes around the value.
			texts = append(texts, encoded[(before*8+5)/6:(before+len(value))*8/6])
		}
	}
	slices.Sort(texts)
	for _, text := range slices.Compact(texts) {
		found = append(found, []byte(text))
	}
	return header, found
}

// textEscapes write strings as most encoders of JSON do, as PHP's, as Go's and as Gson; and as encoders of HTML do:
// of text, of attributes in double quotes, Go, Python, PHP, lodash, Handlebars and Mustache.
var textEscapes = []*strings.Replacer{
	strings.NewReplacer(`"`, `\"`, `\`, `\\`),
	strings.NewReplacer(`"`, `\"`, `\`, `\\`, `/`, `\/`),
	strings.NewReplacer(`"`, `\"`, `\`, `\\`, `<`, `\u003c`, `>`, `\u003e`, `&`, `\u0026`),
	strings.NewReplacer(`"`, `\"`, `\`, `\\`, `<`, `\u003c`, `>`, `\u003e`, `&`, `\u0026`, `=`, `\u003d`, `'`, `\u0027`),
	newHTMLEscapes(),
	newHTMLEscapes(`"`, `&quot;`),
	newHTMLEscapes(`"`, `&#34;`, `'`, `&#39;`),
	newHTMLEscapes(`"`, `&quot;`, `'`, `&#x27;`),
	newHTMLEscapes(`"`, `&quot;`, `'`, `&#039;`),
	newHTMLEscapes(`"`, `&quot;`, `'`, `&#39;`),
	newHTMLEscapes(`"`, `&quot;`, `'`, `&#x27;`, "`", `&#x60;`, `=`, `&#x3D;`),
	newHTMLEscapes(`"`, `&quot;`, `'`, `&#39;`, "`", `&#x60;`, `=`, `&#x3D;`, `/`, `&#x2F;`),
}

func newHTMLEscapes(quotes ...string) *strings.Replacer {
	return strings.NewReplacer(append(quotes, `&`, `&amp;`, `<`, `&lt;`, `>`, `&gt;`)...)
}

// escape is the form of text in a URL that has the characters in kept as they are.
func escape(text, kept, digits string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', strings.IndexByte("-_.~", c) >= 0, strings.IndexByte(kept, c) >= 0:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}
