package tools

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
)

// maxArguments bounds the text of the arguments, as the server does by default
// with a whole body.
const maxArguments = 64 << 20

// parseArguments reads the arguments of a call: strictly first, and if that fails with
// unambiguous repairs. The error continues "the
// arguments".
func parseArguments(text string) (members map[string]any, repaired []string, err error) {
	if len(text) > maxArguments {
		return nil, nil, fmt.Errorf("have %d bytes; allowed are %d", len(text), maxArguments)
	}
	text = strings.Trim(text, " \t\r\n")
	if text == "" {
		return map[string]any{}, nil, nil
	}
	v, err := api.DecodeJSON(text)
	if err != nil {
		if v, repaired = repair(text); repaired == nil {
			return nil, nil, fmt.Errorf("are %w; write one JSON object, with names and strings in double quotes", err)
		}
	}
	switch v := v.(type) {
	case nil:
		return map[string]any{}, repaired, nil
	case map[string]any:
		return v, repaired, nil
	case string: // some models encode the object twice
		inner, _ := api.DecodeJSON(v)
		if members, ok := inner.(map[string]any); ok {
			return members, append(repaired, "the object was taken out of a string that held it"), nil
		}
	}
	return nil, nil, fmt.Errorf("must be a JSON object, got %s", api.Describe(v))
}

// repair reads a text that is JSON except for what can only be meant one way: a byte order
// mark or a code fence around it, a doubled brace at its beginning, closing braces behind its
// end, escaped line ends between its tokens, raw control characters in its strings, and commas
// before closing brackets. repaired is nil for any other text.
func repair(text string) (v any, repaired []string) {
	var r repairs
	text, marked := strings.CutPrefix(text, "\ufeff")
	r.note(marked, "the byte order mark was taken off")
	text, fenced := unfence(strings.Trim(text, " \t\r\n"))
	r.note(fenced, "the code fence around the object was taken off")
	doubled := strings.HasPrefix(text, "{") && strings.HasPrefix(strings.TrimLeft(text[1:], " \t\r\n"), "{")
	r.note(doubled, "the doubled brace was taken off")
	if doubled {
		text = text[1:]
	}
	text = r.fix(text)
	if r == nil {
		return nil, nil
	}
	v, err := api.DecodeJSON(text)
	if err != nil {
		return nil, nil
	}
	return v, r
}

// unfence removes a Markdown code fence around the whole text, of which one end may be
// missing.
func unfence(text string) (inner string, fenced bool) {
	const fence = "```"
	inner, opened := strings.CutPrefix(text, fence)
	inner, closed := strings.CutSuffix(inner, fence)
	if !opened && !closed {
		return text, false
	}
	// The rest of the fence's line is the name of a language.
	first, rest, ok := strings.Cut(inner, "\n")
	if opened && ok && strings.Trim(first, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \t\r") == "" {
		inner = rest
	}
	return strings.Trim(inner, " \t\r\n"), true
}

// repairs are the repairs that were made, in a sentence each.
type repairs []string

func (r *repairs) note(made bool, what string) {
	if made && !slices.Contains(*r, what) {
		*r = append(*r, what)
	}
}

// fix escapes control characters inside strings, and drops commas before closing brackets,
// escaped white space outside of strings and closing braces behind the end. It only looks at
// quotes, backslashes and brackets; the parser decides whether the result is JSON.
func (r *repairs) fix(text string) string {
	var b strings.Builder
	b.Grow(len(text) + len(text)/16)
	inString, depth := false, 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case inString && c == '\\' && i+1 < len(text) && text[i+1] >= ' ':
			b.WriteByte(c)
			i++
			b.WriteByte(text[i])
			continue
		case c == '"':
			inString = !inString
		case inString && c < ' ':
			spaces := c == '\n' || c == '\r' || c == '\t'
			r.note(spaces, "raw line ends or tabs in strings were escaped")
			r.note(!spaces, "raw control characters in strings were escaped")
			fmt.Fprintf(&b, `\u%04x`, c)
			continue
		case inString:
		case c == '\\' && i+1 < len(text) && strings.IndexByte("nrt", text[i+1]) >= 0:
			r.note(true, "escaped line ends between values were dropped")
			i++
			continue
		case c == ',' && closesNext(text[i+1:]):
			r.note(true, "commas before closing brackets were dropped")
			continue
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth < 0 && c == '}' {
				r.note(true, "closing braces behind the end were dropped")
				continue
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// closesNext reports whether a closing bracket follows after white space.
func closesNext(rest string) bool {
	rest = strings.TrimLeft(rest, " \t\r\n")
	return rest != "" && (rest[0] == '}' || rest[0] == ']')
}

// integerOf returns an integer, also out of a string.
func integerOf(v any) (int, bool) {
	n, _ := number(v) // "" for anything else, which is not an integer either
	return api.Integral(string(n))
}

// number returns a number, also out of a string.
func number(v any) (json.Number, bool) {
	switch v := v.(type) {
	case json.Number:
		return v, true
	case string:
		inner, err := api.DecodeJSON(strings.TrimSpace(v))
		n, ok := inner.(json.Number)
		return n, ok && err == nil
	}
	return "", false
}
