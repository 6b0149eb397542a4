package api

// DecodeJSON reads one JSON text as strictly as everything on the wire is read
// (RFC 8259): at most 10,000 values, at most 1000 levels deep. Values are nil,
// bool, json.Number, string, []any and map[string]any; of equal names the last
// one wins. A string with half of a surrogate pair, which JSON can write and
// UTF-8 cannot, comes as a value of no such type, which Describe knows. The
// error says what stands at which byte where something else is wanted.
func DecodeJSON(text string) (any, error) {
	p, err := newParser([]byte(text))
	if err != nil {
		return nil, err
	}
	p.halves = true
	p.budget = maxArgs
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	return v, p.end()
}

// Describe says what a value of DecodeJSON is, in words and short, for
// messages: "the string \"x\"", "the number 3", "a list".
func Describe(v any) string { return describe(v) }

// Excerpt quotes a text of a caller's and keeps it short, for messages.
func Excerpt(s string) string { return excerpt(s) }
