package browse

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/chromedp/chromedp/kb"
)

// modifiers are the bits of the keys that are held.
var modifiers = map[string]int64{"Alt": 1, "Control": 2, "ControlOrMeta": 2, "Meta": 4, "Shift": 8}

// parseKeys reads a combination such as Control+Shift+a, or one key: a name, as
// in Playwright, or a character.
func parseKeys(comb string) (k *kb.Key, held int64, err error) {
	name := comb
	for {
		first, rest, more := strings.Cut(name, "+")
		if !more || rest == "" && first == "" { // a plus
			break
		}
		m, known := modifiers[first]
		if !known || rest == "" {
			return nil, 0, fail("ValueError", "%q is no combination of keys: write modifiers (Alt, Control, Meta, Shift) and one key, as in Control+a", clip(comb, 100))
		}
		held |= m
		name = rest
	}
	if k = namedKey(name); k != nil {
		return k, held, nil
	}
	char, size := utf8.DecodeRuneInString(name)
	if size == 0 || size != len(name) {
		return nil, 0, fail("ValueError", "there is no key %q: use a character or a name such as Enter, Tab, Escape, Backspace, Delete, ArrowDown, Home, PageDown, F1", clip(name, 100))
	}
	if held&modifiers["Shift"] != 0 && char < utf8.RuneSelf {
		char = unicode.ToUpper(char)
	}
	if k = kb.Keys[char]; k == nil || char > unicode.MaxASCII { // the private numbers of named keys begin above
		k = &kb.Key{Key: name, Text: name}
	}
	return k, held, nil
}

// namedKey returns the key with this name, or at this place of a US keyboard, such
// as Enter, KeyA or Digit1; nil if there is none.
func namedKey(name string) *kb.Key {
	for char, k := range kb.Keys {
		named := k.Key == name && (char > unicode.MaxASCII || !unicode.IsPrint(char)) // not a character
		if !named && k.Code != name || k.Shift {
			continue
		}
		// Pages see one number for the left and the right key.
		if left := map[string]int64{"Shift": 16, "Control": 17, "Alt": 18}[k.Key]; left != 0 {
			return &kb.Key{Code: k.Code, Key: k.Key, Windows: left}
		}
		return k
	}
	return nil
}
