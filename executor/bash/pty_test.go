package bash

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/terminal"
)

// Text that was typed before the terminal was restored reaches no program after that, wherever in the kernel it was: in
// the terminal's own queue, or on its way there from the master.
func TestRestoreDropsTypedText(t *testing.T) {
	t.Parallel()
	term, err := openTerminal(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer term.close()
	for _, typed := range []string{"a line\r", "no line", strings.Repeat("many lines\r", 1000), strings.Repeat("x", 10000)} {
		for range 200 {
			if err := terminal.Control(term.master, func(fd int) error { _, err := unix.Write(fd, []byte(typed)); return err }); err != nil {
				t.Fatal(err)
			}
			// The terminal is that of no session, which is asked for last.
			if _, err := term.restore(unix.Winsize{}, nil); !errors.Is(err, unix.ENOTTY) {
				t.Fatal(err)
			}
			if left := term.unread(); len(left) > 0 {
				t.Fatalf("%.10q: %d bytes were left", typed, len(left))
			}
		}
	}
}
