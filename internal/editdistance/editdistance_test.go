package editdistance_test

import (
	"testing"

	"github.com/actiond/actiond/internal/editdistance"
)

func TestBounded(t *testing.T) {
	for _, c := range []struct {
		a, b string
		most int
		want int
	}{
		{"", "", 0, 0},
		{"", "abc", 5, 3},
		{"abc", "", 2, 3},
		{"kitten", "sitting", 9, 3},
		{"kitten", "sitting", 3, 3},
		{"kitten", "sitting", 2, 3},
		{"kitten", "sitting", 1, 2},
		{"filetext", "fieltext", 4, 2},
		{"aaaaaaaaaa", "bbbbbbbbbb", 4, 5},
		{"same", "same", 0, 0},
	} {
		if got := editdistance.Bounded([]rune(c.a), []rune(c.b), c.most); got != c.want {
			t.Errorf("Bounded(%q, %q, %d) = %d, want %d", c.a, c.b, c.most, got, c.want)
		}
	}
}
