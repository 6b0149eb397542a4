// Package keys parses the keys that detach from a terminal, and finds them in the input.
package keys

import (
	"fmt"
	"strings"
)

// Parse takes keys as docker's --detach-keys does: single characters, or
// ctrl- and a letter or one of @ [ \ ] ^ _, with commas between them.
func Parse(text string) ([]byte, error) {
	var keys []byte
	for word := range strings.SplitSeq(text, ",") {
		name, isControl := strings.CutPrefix(strings.ToLower(word), "ctrl-")
		switch {
		case len(word) == 1:
			keys = append(keys, word[0])
		case isControl && len(name) == 1 && (name[0] >= 'a' && name[0] <= 'z' || strings.ContainsAny(name, `@[\]^_`)):
			keys = append(keys, name[0]&0x1f)
		default:
			return nil, fmt.Errorf("%q is no key: write a character, or ctrl- and a letter, with commas between them", word)
		}
	}
	return keys, nil
}

// Detector finds keys in the input. It holds back a possible beginning of the keys
// until the next key decides.
type Detector struct {
	Keys []byte // at least one
	seen int    // of Keys
}

// Pass returns the typed bytes that are for the other side, and whether the keys were
// typed; it drops the bytes behind them.
func (d *Detector) Pass(typed []byte) (through []byte, found bool) {
	for _, c := range typed {
		for d.seen > 0 && c != d.Keys[d.seen] {
			// The held bytes do not begin the keys, but their end may.
			held := d.Keys[:d.seen]
			d.seen = longestBorder(held)
			through = append(through, held[:len(held)-d.seen]...)
		}
		if c != d.Keys[d.seen] {
			through = append(through, c)
			continue
		}
		if d.seen++; d.seen == len(d.Keys) {
			d.seen = 0
			return through, true
		}
	}
	return through, false
}

// longestBorder is the length of the longest proper beginning of keys that is
// also their end.
func longestBorder(keys []byte) int {
	for n := len(keys) - 1; n > 0; n-- {
		if string(keys[:n]) == string(keys[len(keys)-n:]) {
			return n
		}
	}
	return 0
}
