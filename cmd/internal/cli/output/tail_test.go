package output

import (
	"fmt"
	"strings"
	"testing"
)

func TestLastLines(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, "line %d\n", i)
	}
	tests := []struct {
		name, output, want string
	}{
		{"nothing", "", "; it said nothing"},
		{"blank", " \n", "; it said nothing"},
		{"lines", "ab\r\nc", "; its last words:\n  ab\n  c"},
		{"harmful", "\x1b[2J", "; its last words:\n  \\x1b[2J"},
		{
			"many",
			many.String(),
			"; its last words:\n  line 4990\n  line 4991\n  line 4992\n  line 4993\n  line 4994\n  line 4995\n  line 4996\n  line 4997\n  line 4998\n  line 4999",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := LastLines(tt.output); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
