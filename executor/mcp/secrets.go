package mcp

import (
	"slices"
	"strings"

	"github.com/actiond/actiond/internal/tail"
)

// maxTail is the length of a program's last output that errors show, in bytes:
// about a screen.
const maxTail = 4 << 10

// newTail keeps more than lastWords returns, because mask does not find a
// secret that is cut.
func newTail(secrets map[string]string) *tail.Buffer { return tail.New(maxTail + longest(secrets)) }

func longest(secrets map[string]string) (most int) {
	for _, value := range secrets {
		most = max(most, len(value))
	}
	return most
}

// lastWords returns the end of the output of a program, with the values of its
// variables masked.
func lastWords(stderr *tail.Buffer, secrets map[string]string) string {
	kept, cut := stderr.Kept()
	text := mask(kept, secrets)
	if cut { // it may begin with a part of a secret
		text = text[min(len(text), longest(secrets)):]
	}
	return tail.Text(text[max(0, len(text)-maxTail):])
}

// minSecret is the least length of a secret, in bytes: masking a "1" would mask
// all numbers.
const minSecret = 4

// mask replaces the values of variables by their names. It replaces longer
// values first, because a value may contain another.
func mask(text string, env map[string]string) string {
	var names []string
	for name, value := range env {
		if len(value) >= minSecret {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := len(env[b]) - len(env[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		text = strings.ReplaceAll(text, env[name], "["+name+"]")
	}
	return text
}
