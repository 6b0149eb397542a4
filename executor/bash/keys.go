package bash

import (
	"strings"
	"unicode/utf8"
)

// keyPrefix begins the name of a control key.
const keyPrefix = "C-"

// Key returns what the terminal sends for a control key: text is, blanks at
// its ends aside, "C-" and one of a to z in either case, @ [ \ ] ^ _ or ?.
// Any other text is no key and to be sent as it is; ok says which.
func Key(text string) (sent []byte, ok bool) {
	name, found := strings.CutPrefix(strings.TrimSpace(text), keyPrefix)
	if !found || len(name) != 1 {
		return nil, false
	}
	switch c := name[0]; {
	case c == '?':
		return []byte{0x7f}, true
	case c >= '@' && c <= '_', c >= 'a' && c <= 'z':
		return []byte{c & 0x1f}, true
	}
	return nil, false
}

// KeyName returns the name of the key that text asked for, as it is told back
// ("CTRL+C was sent"): its last character, upper-cased.
func KeyName(text string) string {
	text = strings.TrimSpace(text)
	_, size := utf8.DecodeLastRuneInString(text)
	return strings.ToUpper(text[len(text)-size:])
}
