package mark_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/mark"
	"github.com/actiond/actiond/internal/testhelp"
)

// marked returns a mark that ends in a letter.
func marked(letter string) string { return "ACTIOND_TREE=" + strings.Repeat("A", 25) + letter }

// The next process reads the marks that were recorded when one died, and nothing else.
func TestLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *mark.Ledger {
		l, err := mark.OpenLedger(dir)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	for _, m := range []string{marked("A"), marked("B"), marked("A"), marked("C"), "PATH=/usr/bin:/bin", "ACTIOND_TREE=", marked("A") + "\n"} {
		if err := l.Add(m); err != nil {
			t.Error(err)
		}
	}
	l.Remove(marked("B"))
	l.Remove(marked("X"))
	if err := l.Add(marked("D")); err != nil {
		t.Error(err)
	}
	want := map[string]bool{marked("A"): true, marked("C"): true, marked("D"): true}
	for range 2 {
		if got := l.Marks(); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		l = open()
	}
	for i := range 26 * 26 {
		if err := l.Add("ACTIOND_TREE=" + strings.Repeat("A", 24) + string(rune('A'+i/26)) + string(rune('A'+i%26))); err != nil {
			t.Error(err)
		}
	}
	for m := range l.Marks() {
		l.Remove(m)
	}
	if l = open(); len(l.Marks()) > 0 {
		t.Errorf("got %v after all were removed", l.Marks())
	}
	var none *mark.Ledger
	none.Remove(marked("A"))
	if none.Add(marked("A")) != nil || len(none.Marks()) > 0 || none.Close() != nil {
		t.Error("a nil ledger does something")
	}
}

// A file that is not the ledger's is not believed.
func TestForeignLedger(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(path string) error{
		"a link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		if err := plant(filepath.Join(dir, "marks")); err != nil {
			t.Fatal(err)
		}
		if _, err := mark.OpenLedger(dir); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
	dir := t.TempDir()
	text := []byte(strings.Repeat("HOME=/root\x00", 100_000) + marked("A"))
	testhelp.WriteFile(t, filepath.Join(dir, "marks"), text, 0o600)
	if l, err := mark.OpenLedger(dir); err != nil || len(l.Marks()) > 0 {
		t.Errorf("got %v, %v", l.Marks(), err)
	}
}
