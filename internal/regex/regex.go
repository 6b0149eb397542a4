// Package regex compiles regular expressions of clients.
package regex

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

// MaxLen bounds an expression, in bytes, maxSize its program, in instructions, and maxRunes
// the characters and ends of ranges in it: \pL has 1,400.
const (
	MaxLen   = 4096
	maxSize  = 5000
	maxRunes = 1 << 17
)

// Errors of Compile.
var (
	ErrLong   = fmt.Errorf("the regular expression is longer than %d bytes", MaxLen)
	ErrCostly = errors.New("the regular expression repeats too much")
)

// compiling is a semaphore: while an expression is compiled, it takes some hundred times the
// memory of its text.
var compiling = make(chan struct{}, 1)

// Compile bounds the cost of an expression: the program of package regexp grows with the
// repetitions, and its time with the program. An error is ErrLong, ErrCostly or that of
// package regexp.
func Compile(text string) (*regexp.Regexp, error) {
	if len(text) > MaxLen {
		return nil, ErrLong
	}
	return bounded(text)
}

// CompileTree compiles an expression that was parsed, and perhaps changed since.
func CompileTree(parsed *syntax.Regexp) (*regexp.Regexp, error) { return bounded(parsed.String()) }

func bounded(text string) (*regexp.Regexp, error) {
	compiling <- struct{}{}
	defer func() { <-compiling }()
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if size(parsed) > maxSize || runes(parsed) > maxRunes {
		return nil, ErrCostly
	}
	return regexp.Compile(text)
}

// size returns the most instructions that a program for a tree has. It counts no further
// than just above maxSize, and makes none of the copies that a repetition is compiled to.
func size(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		if n += size(sub); n > maxSize {
			return n
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCapture:
		return n + 2 // its begin and its end
	case syntax.OpAlternate:
		return n + len(re.Sub) - 1
	case syntax.OpConcat:
		return n
	case syntax.OpRepeat: // x{2,4} becomes xx(x(x)?)?, and x{2,} becomes xx+
		if re.Max < 0 {
			return max(re.Min, 1)*n + 1
		}
		return re.Max*n + re.Max - re.Min
	default: // one instruction, and what is repeated
		return n + 1
	}
}

// runes returns the number of characters and ends of ranges, which repetitions share.
func runes(re *syntax.Regexp) int {
	n := len(re.Rune)
	for _, sub := range re.Sub {
		n += runes(sub)
	}
	return n
}
