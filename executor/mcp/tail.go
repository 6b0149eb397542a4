package mcp

import (
	"slices"
	"strings"
	"sync"
)

// tail keeps the end of what was written to it. It may be used concurrently.
type tail struct {
	mu   sync.Mutex
	data []byte
}

// maxTail is about a screen: the last words of a program are the useful ones.
const maxTail = 4 << 10

// Write keeps the end of p.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p[max(0, len(p)-maxTail):]...)
	if over := len(t.data) - maxTail; over > 0 {
		t.data = slices.Delete(t.data, 0, over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.data), "\uFFFD"))
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
