package browse

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/actiond/actiond/internal/shorten"
)

// shortened replaces the omitted middle of a text. Commands use the same words.
const shortened = "\n[... Observation truncated due to length ...]\n"

// clip is shorten.Text.
func clip(s string, limit int) string { return shorten.Text(s, limit) }

// repr formats a text as Python does.
func repr(s string) string {
	quote := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	var out strings.Builder
	out.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\\' || r == quote:
			out.WriteByte('\\')
			out.WriteRune(r)
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
	}
	out.WriteRune(quote)
	return out.String()
}
