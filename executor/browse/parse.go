package browse

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxProgram = 256 << 10
	maxCalls   = 200
	maxDepth   = 8 // of lists in lists
)

// parse reads a program: calls in Python's syntax, on lines of their own, with
// semicolons between them, or, as BrowserGym has it, with nothing. Arguments are literals. Nothing is evaluated.
//
//	program  = { call | comment | newline | ";" }
//	call     = name "(" [ argument { "," argument } [ "," ] ] ")"
//	argument = [ name "=" ] value
//	value    = string { string } | number | "True" | "False" | "None" | list
//	list     = "[" [ value { "," value } [ "," ] ] "]", or the same in parentheses
func parse(program string) ([]call, error) {
	if len(program) > maxProgram {
		return nil, fail("ValueError", "the program is longer than %d bytes", maxProgram)
	}
	p := &parser{rest: program, line: 1}
	var calls []call
	for {
		p.blanks(true)
		switch {
		case p.rest == "" && calls == nil:
			return nil, fail("ValueError", "the program is empty; write calls such as click(\"12\"), one on each line")
		case p.rest == "":
			return calls, nil
		case p.take(";"):
			continue
		case len(calls) == maxCalls:
			return nil, fail("ValueError", "the program has more than %d calls", maxCalls)
		}
		c, err := p.call()
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
}

type parser struct {
	rest string
	line int
}

// fail says what was expected where the parser is.
func (p *parser) fail(wanted string) error {
	found := "the end"
	if p.rest != "" {
		line, _, _ := strings.Cut(p.rest, "\n")
		found = strconv.Quote(clip(line, 40))
	}
	return fail("SyntaxError", "line %d: expected %s, found %s", p.line, wanted, found)
}

func (p *parser) skip(n int) {
	p.line += strings.Count(p.rest[:n], "\n")
	p.rest = p.rest[n:]
}

// take skips token if it is next.
func (p *parser) take(token string) bool {
	if strings.HasPrefix(p.rest, token) {
		p.skip(len(token))
		return true
	}
	return false
}

// blanks skips blanks and comments, and line ends too if asked.
func (p *parser) blanks(lines bool) {
	for p.rest != "" {
		switch c := p.rest[0]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\f' || lines && c == '\n':
			p.skip(1)
		case c == '#':
			end := strings.IndexByte(p.rest, '\n')
			if end < 0 {
				end = len(p.rest)
			}
			p.skip(end)
		default:
			return
		}
	}
}

func (p *parser) name() string {
	end := strings.IndexFunc(p.rest, func(r rune) bool {
		return r != '_' && (r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	})
	if end < 0 {
		end = len(p.rest)
	}
	name := p.rest[:end]
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		return ""
	}
	p.skip(end)
	return name
}

func (p *parser) call() (call, error) {
	name := p.name()
	if name == "" {
		return call{}, p.fail(`a call such as click("12")`)
	}
	p.blanks(false)
	if !p.take("(") {
		return call{}, p.fail("( after " + clip(name, 100))
	}
	var positional []any
	named := map[string]any{}
	for {
		p.blanks(true)
		if p.take(")") {
			return bind(name, positional, named)
		}
		key, v, err := p.argument()
		switch _, twice := named[key]; {
		case err != nil:
			return call{}, err
		case twice:
			return call{}, fail("SyntaxError", "line %d: the argument %s is given twice", p.line, clip(key, 100))
		case key != "":
			named[key] = v
		case len(named) > 0:
			return call{}, fail("SyntaxError", "line %d: an argument without a name follows one with a name", p.line)
		default:
			positional = append(positional, v)
		}
		p.blanks(true)
		if !p.take(",") && !strings.HasPrefix(p.rest, ")") {
			return call{}, p.fail(", or ) in " + clip(name, 100) + "(…)")
		}
	}
}

func (p *parser) argument() (key string, v any, err error) {
	ahead := *p
	if key = ahead.name(); key != "" {
		ahead.blanks(true)
		if strings.HasPrefix(ahead.rest, "=") && !strings.HasPrefix(ahead.rest, "==") {
			ahead.skip(1)
			ahead.blanks(true)
			*p = ahead
			v, err = p.value(0)
			return key, v, err
		}
	}
	v, err = p.value(0)
	return "", v, err
}

func (p *parser) value(depth int) (any, error) {
	const wanted = "a string, a number or a list of them"
	if p.rest == "" || depth > maxDepth {
		return nil, p.fail(wanted)
	}
	switch c := p.rest[0]; {
	case p.quoted():
		return p.strings()
	case c == '[':
		return p.list("[", "]", depth)
	case c == '(':
		return p.list("(", ")", depth)
	case c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9':
		return p.number()
	}
	ahead := *p
	v, known := map[string]any{"True": true, "False": false, "None": nil}[ahead.name()]
	if !known {
		return nil, p.fail(wanted)
	}
	*p = ahead
	return v, nil
}

func (p *parser) list(open, end string, depth int) (any, error) {
	p.take(open)
	list := []any{}
	for {
		p.blanks(true)
		if p.take(end) {
			return list, nil
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		p.blanks(true)
		if !p.take(",") && !strings.HasPrefix(p.rest, end) {
			return nil, p.fail(", or " + end)
		}
	}
}

func (p *parser) number() (any, error) {
	end := strings.IndexFunc(p.rest, func(r rune) bool { return !strings.ContainsRune("+-.0123456789eE_", r) })
	if end < 0 {
		end = len(p.rest)
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(p.rest[:end], "_", ""), 64)
	if err != nil {
		return nil, p.fail("a number")
	}
	p.skip(end)
	return n, nil
}

// quoted tells whether a string begins here.
func (p *parser) quoted() bool {
	rest := strings.TrimLeft(p.rest, "rRuU")
	return len(p.rest)-len(rest) <= 1 && rest != "" && (rest[0] == '"' || rest[0] == '\'')
}

// strings reads strings that stand side by side, which are one.
func (p *parser) strings() (any, error) {
	var all strings.Builder
	for p.quoted() {
		if err := p.string(&all); err != nil {
			return nil, err
		}
		p.blanks(true)
	}
	return strings.ToValidUTF8(all.String(), "�"), nil
}

func (p *parser) string(out *strings.Builder) error {
	start := *p
	raw := p.rest[0] == 'r' || p.rest[0] == 'R'
	if p.rest[0] != '"' && p.rest[0] != '\'' {
		p.skip(1)
	}
	quote := p.rest[:1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(p.rest, triple) {
		quote = triple
	}
	p.skip(len(quote))
	for {
		switch {
		case p.rest == "", len(quote) == 1 && p.rest[0] == '\n':
			return start.fail("a string that ends")
		case p.take(quote):
			return nil
		case p.rest[0] == '\\' && len(p.rest) > 1 && raw:
			out.WriteString(p.rest[:2])
			p.skip(2)
		case p.rest[0] == '\\' && len(p.rest) > 1:
			if err := p.escape(out); err != nil {
				return err
			}
		default:
			out.WriteByte(p.rest[0])
			p.skip(1)
		}
	}
}

// escape reads what a backslash begins. As in Python, an unknown escape stands
// for itself.
func (p *parser) escape(out *strings.Builder) error {
	const letters, meaning = "abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\""
	c := p.rest[1]
	if i := strings.IndexByte(letters, c); i >= 0 {
		out.WriteByte(meaning[i])
		p.skip(2)
		return nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	switch {
	case c == '\n':
		p.skip(2)
	case digits > 0:
		if len(p.rest) < 2+digits {
			return p.fail("hexadecimal digits")
		}
		code, err := strconv.ParseUint(p.rest[2:2+digits], 16, 32)
		if err != nil || code > unicode.MaxRune {
			return p.fail("a character's code in hexadecimal digits")
		}
		out.WriteRune(rune(code))
		p.skip(2 + digits)
	case c >= '0' && c <= '7':
		end := 2
		for end < 4 && end < len(p.rest) && p.rest[end] >= '0' && p.rest[end] <= '7' {
			end++
		}
		code, _ := strconv.ParseUint(p.rest[1:end], 8, 16)
		out.WriteRune(rune(code))
		p.skip(end)
	default:
		out.WriteByte('\\')
		p.skip(1)
	}
	return nil
}
