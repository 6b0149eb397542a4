package keys

import (
	"bytes"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ctrl-p,ctrl-q": "\x10\x11", "a": "a", "ctrl-@": "\x00", "CTRL-A,b": "\x01b", `ctrl-\`: "\x1c", "ctrl-],.": "\x1d.",
	} {
		if got, err := Parse(text); err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "ctrl-", "ctrl-1", "alt-x", "a,", "ctrl-ab"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: got %q, want an error", text, got)
		}
	}
}

func TestDetector(t *testing.T) {
	t.Parallel()
	tests := []struct {
		keys, typed, want string
		found             bool
	}{
		{"\x10\x11", "hello", "hello", false},
		{"\x10\x11", "a\x10b", "a\x10b", false},
		{"\x10\x11", "a\x10\x11b", "a", true},
		{"\x10\x11", "\x10\x10\x11", "\x10", true},
		{"aab", "aaab", "a", true},
		{"abab", "abaabab", "aba", true},
		{"x", "ax", "a", true},
		{"\x10\x11", "a\x10", "a", false}, // it waits
	}
	for _, tt := range tests {
		// In one piece, and byte by byte.
		for _, size := range []int{len(tt.typed), 1} {
			d := Detector{Keys: []byte(tt.keys)}
			var got []byte
			found := false
			for rest := []byte(tt.typed); len(rest) > 0 && !found; {
				n := min(size, len(rest))
				var part []byte
				part, found = d.Pass(rest[:n])
				got, rest = append(got, part...), rest[n:]
			}
			if string(got) != tt.want || found != tt.found {
				t.Errorf("%q in %q by %d: got %q, %v, want %q, %v", tt.keys, tt.typed, size, got, found, tt.want, tt.found)
			}
		}
	}
}

// However it is cut up, everything before the keys goes through, and nothing
// else.
func FuzzDetector(f *testing.F) {
	f.Add([]byte("\x10\x11"), []byte("a\x10\x10\x11b"), uint8(2))
	f.Add([]byte("aab"), []byte("aaaab"), uint8(1))
	f.Fuzz(func(t *testing.T, keys, typed []byte, size uint8) {
		if len(keys) == 0 || len(keys) > 8 || len(typed) > 100 || size == 0 {
			return
		}
		want, _, wantFound := bytes.Cut(typed, keys)
		d := Detector{Keys: keys}
		var got []byte
		found := false
		for rest := typed; len(rest) > 0 && !found; {
			n := min(int(size), len(rest))
			var part []byte
			part, found = d.Pass(rest[:n])
			got, rest = append(got, part...), rest[n:]
		}
		if !found {
			got = append(got, keys[:d.seen]...) // still held back
		}
		if found != wantFound || !bytes.Equal(got, want) {
			t.Errorf("%q in %q by %d: got %q, %v, want %q, %v", keys, typed, size, got, found, want, wantFound)
		}
	})
}
