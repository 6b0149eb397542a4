// Package regex compiles regular expressions of clients.
package regex

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

// MaxLen bounds an expression, in bytes, and maxSize its program, in instructions.
const (
	MaxLen  = 4096
	maxSize = 5000
)

// Errors of Compile.
var (
	ErrLong   = fmt.Errorf("the regular expression is longer than %d bytes", MaxLen)
	ErrCostly = errors.New("the regular expression repeats too much")
)

// Compile bounds the cost of an expression: the program of package regexp grows with the
// repetitions, and its time with the program. An error is ErrLong, ErrCostly or that of
// package regexp.
func Compile(text string) (*regexp.Regexp, error) {
	if len(text) > MaxLen {
		return nil, ErrLong
	}
	re, err := regexp.Compile(text)
	if err == nil && size(text) > maxSize {
		return nil, ErrCostly
	}
	return re, err
}

// size returns the size of an expression's program.
func size(text string) int {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(program.Inst)
}
