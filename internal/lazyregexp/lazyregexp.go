// Package lazyregexp compiles a regular expression when it is first used. The programs that
// link a package start often, and most never need its expressions.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the expression. It may be called concurrently, and
// panics where the expression is not valid.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
