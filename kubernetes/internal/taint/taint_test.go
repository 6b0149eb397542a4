package taint_test

import (
	"errors"
	"testing"

	"github.com/actiond/actiond/kubernetes/internal/taint"
	"github.com/actiond/actiond/sandbox"
)

// A text that is read as a toleration is the same when it is written again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"gpu", "a=b:NoSchedule", "x.y/z=:NoExecute", "=", ":", "a:b:c", "a=b=c", "a:", "*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		got, err := taint.Parse(word)
		if err != nil {
			if !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("%q: %v", word, err)
			}
			return
		}
		again := got.Key
		if got.HasValue {
			again += "=" + got.Value
		}
		if got.Effect != "" {
			again += ":" + got.Effect
		}
		if again != word {
			t.Errorf("%q is %+v", word, got)
		}
	})
}
