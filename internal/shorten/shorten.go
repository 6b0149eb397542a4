// Package shorten cuts long texts short, for people and models. It never cuts a
// character in two.
package shorten

import (
	"strconv"
	"unicode/utf8"
)

// Bytes returns the longest beginning of s that has at most that many bytes and
// ends between two characters.
func Bytes(s string, most int) string {
	if len(s) <= most {
		return s
	}
	// An incomplete character has at most 3 bytes; longer ones are not UTF-8 and
	// may be cut anywhere.
	for cut := most; cut > most-utf8.UTFMax && cut >= 0; cut-- {
		if utf8.RuneStart(s[cut]) {
			return s[:cut]
		}
	}
	return s[:most]
}

// Text is [Bytes] with dots in place of the part that was left out.
func Text(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return Bytes(s, most) + "…"
}

// Quoted is [Text] in quotes, with the escapes of Go, and the dots behind them.
func Quoted(s string, most int) string {
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(Bytes(s, most)) + "…"
}

// Middle returns a text of more than head+tail characters with its middle, all
// but the first head and the last tail, replaced by a note.
func Middle(s string, head, tail int, note string) string {
	if len(s) <= head+tail || utf8.RuneCountInString(s) <= head+tail {
		return s
	}
	begin, end := 0, len(s)
	for range head {
		_, size := utf8.DecodeRuneInString(s[begin:])
		begin += size
	}
	for range tail {
		_, size := utf8.DecodeLastRuneInString(s[:end])
		end -= size
	}
	return s[:begin] + note + s[end:]
}
