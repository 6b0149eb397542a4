package tail_test

import (
	"io"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/tail"
)

func TestBuffer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		writes []string
		kept   string
		cut    bool
		text   string
	}{
		{"nothing", nil, "", false, ""},
		{"less", []string{"ab", "cd\n"}, "abcd\n", false, "abcd"},
		{"as much", []string{"abcd", "efgh"}, "abcdefgh", false, "abcdefgh"},
		{"more", []string{"abcd", "efghi"}, "bcdefghi", true, "bcdefghi"},
		{"more at once", []string{"abcdefghi"}, "bcdefghi", true, "bcdefghi"},
		{"more, and then less", []string{"abcdefghi", "j"}, "cdefghij", true, "cdefghij"},
		{"more than it keeps, after some", []string{"x", strings.Repeat("y", 20), "z"}, "yyyyyyyz", true, "yyyyyyyz"},
		{"half a character", []string{"ä1234567"}, "\xa41234567", true, "\uFFFD1234567"},
		{"white space", []string{" \n a b \n"}, " \n a b \n", false, "a b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := tail.New(8)
			for _, w := range test.writes {
				if n, err := io.WriteString(b, w); n != len(w) || err != nil {
					t.Errorf("writing %q: got %d, %v", w, n, err)
				}
			}
			if kept, cut := b.Kept(); kept != test.kept || cut != test.cut {
				t.Errorf("got %q and %t, want %q and %t", kept, cut, test.kept, test.cut)
			}
			if got := b.String(); got != test.text {
				t.Errorf("got %q, want %q", got, test.text)
			}
		})
	}
}
