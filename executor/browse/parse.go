package browse

import (
	"errors"
	"strings"

	"github.com/actiond/actiond/internal/pyliteral"
)

const (
	maxProgram = 256 << 10
	maxCalls   = 200
	maxDepth   = 8 // of lists in lists
)

// parse reads a program of calls in the syntax of Python. Calls are on lines of
// their own, separated by semicolons or, as in BrowserGym, by nothing.
// Arguments are literals. Nothing is evaluated.
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
	p := &parser{pyliteral.Reader{Rest: program, Line: 1, MaxDepth: maxDepth, Budget: maxProgram}}
	var calls []call
	for {
		p.Blanks(true)
		switch {
		case p.Rest == "" && calls == nil:
			return nil, fail("ValueError", "the program is empty; write calls such as click(\"12\"), one on each line")
		case p.Rest == "":
			return calls, nil
		case p.Take(";"):
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

type parser struct{ pyliteral.Reader }

// fail returns an error that names the expected syntax.
func (p *parser) fail(wanted string) error { return asFailure(p.Fail(wanted)) }

func (p *parser) value() (any, error) {
	v, err := p.Value()
	return v, asFailure(err)
}

// asFailure turns a syntax error into a *failure.
func asFailure(err error) error {
	if e, ok := errors.AsType[*pyliteral.SyntaxError](err); ok {
		return fail("SyntaxError", "%v", e)
	}
	return err
}

func (p *parser) call() (call, error) {
	name := p.Name()
	if name == "" {
		return call{}, p.fail(`a call such as click("12")`)
	}
	p.Blanks(false)
	if !p.Take("(") {
		return call{}, p.fail("( after " + clip(name, 100))
	}
	var positional []any
	named := map[string]any{}
	for {
		p.Blanks(true)
		if p.Take(")") {
			return bind(name, positional, named)
		}
		key, v, err := p.argument()
		switch _, twice := named[key]; {
		case err != nil:
			return call{}, err
		case twice:
			return call{}, fail("SyntaxError", "line %d: the argument %s is given twice", p.Line, clip(key, 100))
		case key != "":
			named[key] = v
		case len(named) > 0:
			return call{}, fail("SyntaxError", "line %d: an argument without a name follows one with a name", p.Line)
		default:
			positional = append(positional, v)
		}
		p.Blanks(true)
		if !p.Take(",") && !strings.HasPrefix(p.Rest, ")") {
			return call{}, p.fail(", or ) in " + clip(name, 100) + "(…)")
		}
	}
}

func (p *parser) argument() (key string, v any, err error) {
	ahead := *p
	if key = ahead.Name(); key != "" {
		ahead.Blanks(true)
		if strings.HasPrefix(ahead.Rest, "=") && !strings.HasPrefix(ahead.Rest, "==") {
			ahead.Take("=")
			ahead.Blanks(true)
			*p = ahead
			v, err = p.value()
			return key, v, err
		}
	}
	v, err = p.value()
	return "", v, err
}
