package api_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestFormatSeconds(t *testing.T) {
	t.Parallel()
	table := testhelp.ReadFile(t, "testdata/pyfloat.txt")
	for line := range strings.Lines(string(table)) {
		in, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if in == "#" {
			continue
		}
		f, err := strconv.ParseFloat(in, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := api.FormatSeconds(f); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
