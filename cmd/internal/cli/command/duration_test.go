package command_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/actiond/actiond/cmd/internal/cli/command"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "0": 0, "0d": 0, "-2h": -2 * time.Hour,
	} {
		if got, err := parse(word); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", word, got, err, want)
		}
	}
	for _, word := range []string{"5", "", "d", "2 d", "-2d", "1d-2h", "1d2", "1.5d", "2w", "99999d99999d", "99999999d", "99999d2562047h"} {
		if got, err := parse(word); err == nil || !strings.Contains(err.Error(), "write 90s, 2h or 7d") {
			t.Errorf("%q: got %v, %v", word, got, err)
		}
	}
}

func parse(word string) (d time.Duration, err error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	command.AddDuration(flags, &d, "ttl", "", 0, "")
	return d, flags.Parse([]string{"--ttl=" + word})
}

func FuzzDuration(f *testing.F) {
	for _, word := range []string{"90s", "2d", "1d12h", "5", "-1d", "99999d2562047h"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		d, err := parse(word)
		if err != nil || strings.Contains(word, "d") {
			if err == nil && d < 0 {
				t.Errorf("%q: got %v", word, d)
			}
			return
		}
		if want, err := time.ParseDuration(word); err != nil || d != want {
			t.Errorf("%q: got %v, want %v, %v", word, d, want, err)
		}
	})
}
