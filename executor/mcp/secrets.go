package mcp

import (
	"slices"
	"strings"

	"github.com/actiond/actiond/executor/tail"
)

// maxTail is about a screen: the last words of a program are the useful ones.
const maxTail = 4 << 10

// newTail keeps what lastWords tells. It keeps more, for what is cut in half is
// not recognized.
func newTail(secrets map[string]string) *tail.Buffer { return tail.New(maxTail + longest(secrets)) }

func longest(secrets map[string]string) (most int) {
	for _, value := range secrets {
		most = max(most, len(value))
	}
	return most
}

// lastWords returns the end of what a program wrote, without secrets: variables
// whose values are not told.
func lastWords(stderr *tail.Buffer, secrets map[string]string) string {
	kept, cut := stderr.Kept()
	text := mask(kept, secrets)
	if cut { // it may begin with a part of one
		text = text[min(len(text), longest(secrets)):]
	}
	return tail.Text(text[max(0, len(text)-maxTail):])
}

// minSecret is the length below which a value is no secret: masking a "1"
// would mask every number.
const minSecret = 4

// mask puts the names of variables in the place of their values. Of two values
// one of which holds the other, the longer one goes first.
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
