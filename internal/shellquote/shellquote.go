// Package shellquote quotes texts for POSIX shells.
package shellquote

import "strings"

// Word makes one word of a text, which the shell takes as it is. A shell can hold
// no NUL bytes; they are left out.
func Word(text string) string {
	text = strings.ReplaceAll(text, "\x00", "")
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
