package browse

import (
	"strings"
	"unicode/utf8"
)

// key is a key of a keyboard as the protocol wants it described.
type key struct {
	key, code string
	number    int // as Windows numbers keys, which the web took over
	text      string
}

const (
	alt = 1 << iota
	control
	meta
	shift
)

var modifiers = map[string]int{
	"Alt": alt, "Control": control, "ControlOrMeta": control, "Meta": meta, "Shift": shift,
}

var namedKeys = map[string]key{
	"Enter": {"Enter", "Enter", 13, "\r"}, "Tab": {"Tab", "Tab", 9, ""}, "Space": {" ", "Space", 32, " "},
	"Backspace": {"Backspace", "Backspace", 8, ""}, "Delete": {"Delete", "Delete", 46, ""},
	"Insert": {"Insert", "Insert", 45, ""}, "Escape": {"Escape", "Escape", 27, ""},
	"Home": {"Home", "Home", 36, ""}, "End": {"End", "End", 35, ""},
	"PageUp": {"PageUp", "PageUp", 33, ""}, "PageDown": {"PageDown", "PageDown", 34, ""},
	"ArrowLeft": {"ArrowLeft", "ArrowLeft", 37, ""}, "ArrowUp": {"ArrowUp", "ArrowUp", 38, ""},
	"ArrowRight": {"ArrowRight", "ArrowRight", 39, ""}, "ArrowDown": {"ArrowDown", "ArrowDown", 40, ""},
	"Alt": {"Alt", "AltLeft", 18, ""}, "Control": {"Control", "ControlLeft", 17, ""},
	"Meta": {"Meta", "MetaLeft", 91, ""}, "Shift": {"Shift", "ShiftLeft", 16, ""},
	"F1": {"F1", "F1", 112, ""}, "F2": {"F2", "F2", 113, ""}, "F3": {"F3", "F3", 114, ""}, "F4": {"F4", "F4", 115, ""},
	"F5": {"F5", "F5", 116, ""}, "F6": {"F6", "F6", 117, ""}, "F7": {"F7", "F7", 118, ""}, "F8": {"F8", "F8", 119, ""},
	"F9": {"F9", "F9", 120, ""}, "F10": {"F10", "F10", 121, ""}, "F11": {"F11", "F11", 122, ""}, "F12": {"F12", "F12", 123, ""},
}

// parseKeys reads a combination such as Control+Shift+a, or one key: a name, as
// in Playwright, or a character.
func parseKeys(comb string) (k key, held int, err error) {
	name := comb
	for {
		first, rest, more := strings.Cut(name, "+")
		if !more || rest == "" && first == "" { // a plus
			break
		}
		m, known := modifiers[first]
		if !known || rest == "" {
			return key{}, 0, fail("ValueError", "%q is no combination of keys: write modifiers (Alt, Control, Meta, Shift) and one key, as in Control+a", clip(comb, 100))
		}
		held |= m
		name = rest
	}
	if k, known := namedKeys[name]; known {
		return k, held, nil
	}
	if char := typed(name); char != "" {
		name = char
	}
	if utf8.RuneCountInString(name) != 1 {
		return key{}, 0, fail("ValueError", "there is no key %q: use a character or a name such as Enter, Tab, Escape, Backspace, Delete, ArrowDown, Home, PageDown, F1", clip(name, 100))
	}
	return character(name, held), held, nil
}

// placed are the keys of a US keyboard that have a name of their own and type a
// character; letters and digits do too, as KeyA and Digit1.
var placed = map[string]string{
	"Backquote": "`", "Minus": "-", "Equal": "=", "BracketLeft": "[", "BracketRight": "]", "Backslash": "\\",
	"Semicolon": ";", "Quote": "'", "Comma": ",", "Period": ".", "Slash": "/",
}

// typed is the character of a key that is named by its place; "" if it is none.
func typed(name string) string {
	letter, isLetter := strings.CutPrefix(name, "Key")
	digit, isDigit := strings.CutPrefix(name, "Digit")
	switch {
	case isLetter && len(letter) == 1 && letter[0] >= 'A' && letter[0] <= 'Z':
		return strings.ToLower(letter)
	case isDigit && len(digit) == 1 && digit[0] >= '0' && digit[0] <= '9':
		return digit
	}
	return placed[name]
}

// character is the key that types a character on a US keyboard.
func character(s string, held int) key {
	k := key{key: s, text: s}
	upper := strings.ToUpper(s)
	switch c := upper[0]; {
	case len(s) > 1:
	case c >= 'A' && c <= 'Z':
		k.code, k.number = "Key"+upper, int(c)
		if held&shift != 0 {
			k.key, k.text = upper, upper
		}
	case c >= '0' && c <= '9':
		k.code, k.number = "Digit"+s, int(c)
	case s == " ":
		k.code, k.number = "Space", 32
	}
	return k
}
