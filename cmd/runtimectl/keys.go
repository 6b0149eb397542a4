package main

import (
	"fmt"
	"strings"
)

// parseKeys takes keys as docker's --detach-keys does: single characters, or
// ctrl- and a letter or one of @ [ \ ] ^ _, with commas between them.
func parseKeys(text string) ([]byte, error) {
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

// detector finds keys in what is typed. What might be their beginning is held
// back until the next key tells.
type detector struct {
	keys []byte
	seen int // of keys
}

// pass returns what of the typed bytes is for the other side, and whether the
// keys were typed; what comes after them is dropped.
func (d *detector) pass(typed []byte) (through []byte, found bool) {
	for _, c := range typed {
		for d.seen > 0 && c != d.keys[d.seen] {
			// What was held back is no beginning, but its end might be one.
			held := d.keys[:d.seen]
			d.seen = longestBorder(held)
			through = append(through, held[:len(held)-d.seen]...)
		}
		if c != d.keys[d.seen] {
			through = append(through, c)
			continue
		}
		if d.seen++; d.seen == len(d.keys) {
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
