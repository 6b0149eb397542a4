package mcp

import (
	"slices"
	"strings"
	"sync"
)

// tail keeps the end of what was written to it. It may be used concurrently.
type tail struct {
	// secrets are variables whose values are not told.
	secrets map[string]string

	mu   sync.Mutex
	data []byte
	cut  bool
}

// maxTail is about a screen: the last words of a program are the useful ones.
const maxTail = 4 << 10

// margin is how much more is kept: what is cut in half is not recognized.
func (t *tail) margin() (longest int) {
	for _, value := range t.secrets {
		longest = max(longest, len(value))
	}
	return longest
}

// Write keeps the end of p.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	most := maxTail + t.margin()
	t.data = append(t.data, p[max(0, len(p)-most):]...)
	if over := len(t.data) - most; over > 0 || len(p) > most {
		t.data = slices.Delete(t.data, 0, max(0, over))
		t.cut = true
	}
	return len(p), nil
}

// String returns the end, without secrets.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := mask(string(t.data), t.secrets)
	if t.cut { // it may begin with a part of one
		text = text[min(len(text), t.margin()):]
	}
	return strings.TrimSpace(strings.ToValidUTF8(text[max(0, len(text)-maxTail):], "\uFFFD"))
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
