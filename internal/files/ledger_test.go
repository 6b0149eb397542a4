package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/testhelp"
)

func directly(work func() error) error { return work() }

func open(t *testing.T, state string) *files.Ledger {
	t.Helper()
	l, left, err := files.OpenLedger(state, directly)
	if err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	return l
}

func create(t *testing.T, l *files.Ledger, dir string) *files.Temp {
	t.Helper()
	f, err := l.Create(files.System{}, "", dir, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The next process removes the files that were recorded and left, by their names
// alone: neither others of such a name, nor what a link leads to, nor a directory.
func TestRecovery(t *testing.T) {
	t.Parallel()
	state, dir := filepath.Join(t.TempDir(), "state"), t.TempDir()
	l := open(t, state)
	left, linked, replaced, done, gone := create(t, l, dir), create(t, l, dir), create(t, l, dir), create(t, l, dir), create(t, l, dir)
	target := filepath.Join(dir, "target")
	for _, err := range []error{
		os.WriteFile(target, nil, 0o600),
		os.WriteFile(filepath.Join(dir, ".actiond-"+strings.Repeat("A", 26)+".tmp"), nil, 0o600),
		os.Remove(linked.Name()), os.Symlink(target, linked.Name()),
		os.Remove(replaced.Name()), os.Mkdir(replaced.Name(), 0o700),
		done.Rename(filepath.Join(dir, "done")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	gone.Discard()
	many := []*files.Temp{}
	for range 100 { // more than the slots of the start
		many = append(many, create(t, l, dir))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, problems, err := files.OpenLedger(state, directly)
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), replaced.Name()) {
		t.Errorf("got %v and %v, want the directory to be left", problems, err)
	}
	for _, f := range append(many, left, linked) {
		if _, err := os.Lstat(f.Name()); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want it removed", f.Name(), err)
		}
	}
	for _, name := range []string{target, replaced.Name(), filepath.Join(dir, "done"), filepath.Join(dir, ".actiond-"+strings.Repeat("A", 26)+".tmp")} {
		if _, err := os.Lstat(name); err != nil {
			t.Errorf("%v, want it kept", err)
		}
	}
	// It is forgotten then.
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, state).Close(); err != nil {
		t.Fatal(err)
	}
}

// Two processes do not share a ledger: one would remove the files of the other.
func TestLedgerIsLocked(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	l := open(t, state)
	if _, _, err := files.OpenLedger(state, directly); err == nil {
		t.Error("a second ledger was opened")
	}
	f := create(t, l, t.TempDir())
	f.Discard()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A file with a path of another form than the recorded one, or a damaged ledger, removes
// nothing.
func TestDamagedLedger(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	precious := filepath.Join(t.TempDir(), "precious")
	testhelp.WriteFile(t, precious, "", 0o600)
	record := append([]byte{byte(len(precious)), 0, 'u'}, precious...)
	for _, content := range [][]byte{record, {255, 255, 'u'}, {1}, []byte(strings.Repeat("\xff", 10_000))} {
		testhelp.WriteFile(t, filepath.Join(state, "temporary"), content, 0o600)
		if err := open(t, state).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}
