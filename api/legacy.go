package api

import (
	stdjson "encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/actiond/actiond/internal/pyliteral"
)

// modernize rewrites arguments of older event streams. It changes args. An old
// images_urls belongs to messages, which no sandbox carries out, so that it is
// unknown here under both its names.
func modernize(args members) members {
	delete(args, "timestamp")
	delete(args, "keep_prompt")
	delete(args, "task_completed")
	if raw, ok := args["is_confirmed"]; ok {
		delete(args, "is_confirmed")
		if isSet(raw) {
			args["confirmation_state"] = raw
		}
	}
	if code, ok := args["translated_ipython_code"]; ok {
		delete(args, "translated_ipython_code")
		mergeTranslated(args, code)
	}
	return args
}

// mergeTranslated reads the arguments out of a print(file_editor(**{…})), the
// form in which file actions were once kept. Anything else is dropped.
func mergeTranslated(args members, code jsontext.Value) {
	const prefix, suffix = "print(file_editor(**", "))"
	text, _ := anyOf(code).(string)
	if strings.HasPrefix(text, prefix+"{") && strings.HasSuffix(text, "}"+suffix) {
		v, ok := literal(text[len(prefix) : len(text)-len(suffix)])
		if given, isDict := v.(map[string]any); ok && isDict {
			for name, v := range given {
				if raw, err := Encode(v); err == nil {
					args[name] = raw
				}
			}
		}
	}
	if command, ok := args["command"]; ok && anyOf(command) == "view" { // a read has no such argument
		delete(args, "command")
	}
}

// literal reads Python's repr of dicts, lists, tuples, strings, numbers, booleans and
// None, in the types of [DecodeJSON]. It returns false for any other text.
func literal(text string) (any, bool) {
	const deepest = 50
	r := pyliteral.Reader{Rest: text, Line: 1, Repr: true, MaxDepth: deepest, Budget: maxValues}
	v, err := r.Value()
	if err != nil || r.Rest != "" {
		return nil, false
	}
	return jsonNumbers(v), true
}

// jsonNumbers turns the numbers of a literal into those of [DecodeJSON].
func jsonNumbers(v any) any {
	switch v := v.(type) {
	case pyliteral.Number:
		return stdjson.Number(v)
	case []any:
		for i := range v {
			v[i] = jsonNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = jsonNumbers(v[name])
		}
	}
	return v
}

// python prints a value of [DecodeJSON] as Python's repr does, a text cut short.
func python(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case stdjson.Number:
		return string(v)
	case string:
		text := Excerpt(v)
		end := strings.LastIndexByte(text, '"')
		return "'" + text[1:end] + "'" + text[end+1:]
	case []any:
		texts := make([]string, 0, len(v))
		for _, e := range v {
			texts = append(texts, python(e))
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	return Describe(v)
}
