package api

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"unicode/utf8"
)

// modern rewrites arguments of older event streams. It changes args. An old
// images_urls belongs to messages, which no sandbox carries out, so that it is
// unknown here under both its names.
func modern(args map[string]any) map[string]any {
	delete(args, "timestamp")
	delete(args, "keep_prompt")
	delete(args, "task_completed")
	if v, ok := args["is_confirmed"]; ok {
		delete(args, "is_confirmed")
		if v != nil {
			args["confirmation_state"] = v
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
func mergeTranslated(args map[string]any, code any) {
	const prefix, suffix = "print(file_editor(**", "))"
	text, _ := code.(string)
	if strings.HasPrefix(text, prefix+"{") && strings.HasSuffix(text, "}"+suffix) {
		l := literal{text: text[len(prefix) : len(text)-len(suffix)], budget: maxArgs}
		v, ok := l.value(0)
		if members, isDict := v.(map[string]any); ok && isDict && l.pos == len(l.text) {
			maps.Copy(args, members)
		}
	}
	if args["command"] == "view" { // a read has no such argument
		delete(args, "command")
	}
}

// literal reads what Python's repr prints of dicts, lists, tuples, strings,
// numbers, booleans and None.
type literal struct {
	text   string
	pos    int
	budget int // values that may still be built
}

func (l *literal) peek() byte {
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; c {
		case ' ', '\t', '\n', '\r':
			l.pos++
		default:
			return c
		}
	}
	return 0
}

func (l *literal) accept(c byte) bool {
	if l.peek() != c || l.pos >= len(l.text) {
		return false
	}
	l.pos++
	return true
}

// value reads one value in the vocabulary of parser; false where it cannot.
func (l *literal) value(depth int) (any, bool) {
	const deepest = 50
	if l.budget--; l.budget < 0 || depth > deepest {
		return nil, false
	}
	switch l.peek() {
	case '{':
		return l.dict(depth)
	case '[':
		return l.list(depth, ']')
	case '(':
		return l.list(depth, ')')
	case '\'', '"':
		return l.str()
	}
	return l.word()
}

func (l *literal) dict(depth int) (any, bool) {
	l.pos++
	members := map[string]any{}
	for !l.accept('}') {
		if c := l.peek(); c != '\'' && c != '"' {
			return nil, false
		}
		name, ok := l.str()
		if !ok || !l.accept(':') {
			return nil, false
		}
		v, ok := l.value(depth + 1)
		if !ok {
			return nil, false
		}
		members[name] = v
		if !l.accept(',') && l.peek() != '}' {
			return nil, false
		}
	}
	return members, true
}

func (l *literal) list(depth int, bracket byte) (any, bool) {
	l.pos++
	elements := []any{}
	for !l.accept(bracket) {
		v, ok := l.value(depth + 1)
		if !ok {
			return nil, false
		}
		elements = append(elements, v)
		if !l.accept(',') && l.peek() != bracket {
			return nil, false
		}
	}
	return elements, true
}

// word reads a number or a name.
func (l *literal) word() (any, bool) {
	start := l.pos
	for l.pos < len(l.text) && !strings.ContainsRune(" \t\r\n,:]})", rune(l.text[l.pos])) {
		l.pos++
	}
	switch w := l.text[start:l.pos]; w {
	case "None":
		return nil, true
	case "True":
		return true, true
	case "False":
		return false, true
	default:
		p := parser{data: []byte(w)}
		n, err := p.number()
		return json.Number(n), err == nil && p.end() == nil
	}
}

// str reads a string in single or double quotes.
func (l *literal) str() (string, bool) {
	quote := l.text[l.pos]
	l.pos++
	var b strings.Builder
	for l.pos < len(l.text) {
		c := l.text[l.pos]
		l.pos++
		switch c {
		case quote:
			return b.String(), true
		case '\n':
			return "", false
		case '\\':
			if !l.escape(&b) {
				return "", false
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// escape reads what follows a backslash.
func (l *literal) escape(b *strings.Builder) bool {
	if l.pos >= len(l.text) {
		return false
	}
	c := l.text[l.pos]
	l.pos++
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits > 0 {
		if len(l.text)-l.pos < digits {
			return false
		}
		n, err := strconv.ParseUint(l.text[l.pos:l.pos+digits], 16, 31)
		l.pos += digits
		r := rune(n)
		if err != nil || !utf8.ValidRune(r) {
			return false
		}
		b.WriteRune(r)
		return true
	}
	i := strings.IndexByte(`'"\nrtabfv`, c)
	if i < 0 {
		return false
	}
	b.WriteByte("'\"\\\n\r\t\a\b\f\v"[i])
	return true
}
