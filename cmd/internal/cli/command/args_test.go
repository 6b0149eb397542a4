package command_test

import (
	"math"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
)

func TestParseBytes(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]int64{
		"0": 0, "1": 1, "10b": 10, "1k": 1 << 10, "2K": 2 << 10, "512m": 512 << 20, "512MB": 512 << 20, "1.5g": 3 << 29, "1T": 1 << 40, "1 MiB": 1 << 20,
	} {
		if got, err := command.ParseBytes(word); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", word, got, err, want)
		}
	}
	for _, word := range []string{"", "m", "-1", "0x10", "inf", "nan", "inf ", "nan ", "1mm", "99999999t", "b"} {
		if got, err := command.ParseBytes(word); err == nil {
			t.Errorf("%q: got %d, want an error", word, got)
		}
	}
}

// Whatever is typed, bytes are a number that is not negative or an error.
func FuzzParseBytes(f *testing.F) {
	for _, seed := range []string{"512m", "1.5g", "-1", "9e99t", "inf"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if got, err := command.ParseBytes(word); err == nil && (got < 0 || got == math.MaxInt64) {
			t.Errorf("%q is %d", word, got)
		}
	})
}
