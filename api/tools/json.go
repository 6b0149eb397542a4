package tools

import (
	"encoding/json"
	"fmt"
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

// repair reads a text that is JSON except for a code fence around it, raw line ends and
// tabs in its strings, and commas before closing brackets. repaired is nil for any other
// text.
func repair(text string) (v any, repaired []string) {
	note := func(changed bool, what string) {
		if changed {
			repaired = append(repaired, what)
		}
	}
	text, fenced := unfence(text)
	note(fenced, "the code fence around the object was taken off")
	fixed, raw, commas := escapeRaw(text)
	note(raw, "raw line ends or tabs in strings were escaped")
	note(commas, "commas before closing brackets were dropped")
	if repaired == nil {
		return nil, nil
	}
	v, err := api.DecodeJSON(fixed)
	if err != nil {
		return nil, nil
	}
	return v, repaired
}

// unfence removes a Markdown code fence around the whole text.
func unfence(text string) (inner string, fenced bool) {
	const fence = "```"
	inner, opened := strings.CutPrefix(text, fence)
	inner, closed := strings.CutSuffix(inner, fence)
	if !opened || !closed {
		return text, false
	}
	// The rest of the fence's line is the name of a language.
	first, rest, ok := strings.Cut(inner, "\n")
	if ok && strings.Trim(first, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \t\r") == "" {
		inner = rest
	}
	return strings.Trim(inner, " \t\r\n"), true
}

// escapeRaw escapes line ends and tabs inside strings, and drops commas before
// closing brackets outside of them. It only looks at quotes and backslashes;
// the parser decides whether the result is JSON.
func escapeRaw(text string) (fixed string, raw, commas bool) {
	var b strings.Builder
	b.Grow(len(text) + len(text)/16)
	inString := false
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
		case inString && (c == '\n' || c == '\r' || c == '\t'):
			raw = true
			b.WriteString(map[byte]string{'\n': `\n`, '\r': `\r`, '\t': `\t`}[c])
			continue
		case !inString && c == ',' && closesNext(text[i+1:]):
			commas = true
			continue
		}
		b.WriteByte(c)
	}
	return b.String(), raw, commas
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
