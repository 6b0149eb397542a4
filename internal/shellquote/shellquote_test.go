package shellquote_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/shellquote"
)

// A shell turns the word into the text.
func TestWord(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a b", "it's", "''", `$HOME "x" \n`, "a\nb\n", "-n", "é🚀", "*", "\x01\x7f\xff", "a\x00b"} {
		got, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf %s "+shellquote.Word(text)).Output()
		if want := strings.ReplaceAll(text, "\x00", ""); err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}
