package edit_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

func TestUndoWords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "one\r\ntwo\r\n", 0o644)
	b.do(edit.Command{Name: "insert", Path: path, InsertLine: new("1"), NewStr: new("x")})
	want := edit.Result{
		Path: path, Existed: true, SHA256: sha("one\r\ntwo\r\n"),
		Text: "Last edit to " + path + " undone successfully. " + catN + path + ":\n     1\tone\n     2\ttwo\n     3\t\n",
		Diff: "--- " + path + "\n+++ " + path + "\n@@ -2 +1,0 @@\n-x",
	}
	if got := b.undo("f"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	_, err := b.Do(edit.Command{Name: "undo_edit", Path: path})
	wantCode(t, err, edit.CodeNoHistory)
}

func TestUndoCreate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.path("p/q/f")
	b.write("p/kept", "", 0o644)
	b.do(edit.Command{Name: "create", Path: path, FileText: new("a\nb")})
	want := edit.Result{
		Path: path, Existed: true,
		Text: "Last edit to " + path + " undone successfully. That edit had created the file, so the file was removed.",
		Diff: "--- " + path + "\n+++ " + path + "\n@@ -1,2 +1 @@\n-a\n-b\n+",
	}
	if got := b.undo("p/q/f"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := b.names(); got != "p p/kept" {
		t.Errorf("the directory holds %q", got)
	}
	_, err := b.Do(edit.Command{Name: "undo_edit", Path: path})
	wantCode(t, err, edit.CodeFileNotFound)

	// Directories that another program uses by now stay.
	b.do(edit.Command{Name: "create", Path: path, FileText: new("")})
	b.write("p/q/other", "", 0o644)
	b.undo("p/q/f")
	if got := b.names(); got != "p p/kept p/q p/q/other" {
		t.Errorf("the directory holds %q", got)
	}
}

func TestUndoRemove(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "a\n\x00\n", 0o751)
	r, err := b.Remove(path)
	if err != nil || r.HistoryErr != nil {
		t.Fatal(err, r.HistoryErr)
	}
	if b.names() != "" {
		t.Fatalf("there still is %s", b.names())
	}
	if got := b.undo("f").Text; got != "Last edit to "+path+" undone successfully. The file is binary and not shown." {
		t.Errorf("got %q", got)
	}
	if got, mode := b.content("f"), b.mode("f"); got != "a\n\x00\n" || mode != 0o751 {
		t.Errorf("got %q, mode %o", got, mode)
	}
}

func TestUndoRestoresMode(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "a\n", 0o640)
	b.replace("f", "a", "b")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	b.undo("f")
	if got := b.mode("f"); got != 0o640 {
		t.Errorf("got mode %o, want 640", got)
	}
}

func TestUndoDepth(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "v0", 0o644)
	for i := range 12 {
		b.replace("f", fmt.Sprint("v", i), fmt.Sprint("v", i+1))
	}
	for i := range 10 {
		b.undo("f")
		if got, want := b.content("f"), fmt.Sprint("v", 11-i); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	_, err := b.Do(edit.Command{Name: "undo_edit", Path: path})
	wantCode(t, err, edit.CodeNoHistory)
	if want := "No edit history found for " + path + "."; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

// TestUndoRefuses leaves alone what another program did to the file.
func TestUndoRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "a\n", 0o644)
	b.replace("f", "a", "b")
	undo := edit.Command{Name: "undo_edit", Path: path}

	b.write("f", "c\n", 0o644)
	_, err := b.Do(undo)
	wantCode(t, err, edit.CodeConflict)
	if want := "The file " + path + " was changed by other means after its last edit, so nothing was undone. Undoing would have lost that change."; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if got := b.content("f"); got != "c\n" {
		t.Errorf("got %q", got)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = b.Do(undo)
	wantCode(t, err, edit.CodeConflict)
	if want := "The path " + path + " does not exist: the file was removed by other means after its last edit, so nothing was undone."; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}

	b.write("f", "b\n", 0o644) // as the edit left it: no work is lost
	b.undo("f")
	if got := b.content("f"); got != "a\n" {
		t.Errorf("got %q", got)
	}

	// A file that was removed by the editor and made anew by another program.
	if _, err := b.Remove(path); err != nil {
		t.Fatal(err)
	}
	b.write("f", "new\n", 0o644)
	_, err = b.Do(undo)
	wantCode(t, err, edit.CodeConflict)
	if got := b.content("f"); got != "new\n" {
		t.Errorf("got %q", got)
	}

	// What was deleted and created again does not come back as something older.
	second := b.path("g")
	b.do(edit.Command{Name: "create", Path: second, FileText: new("first")})
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	b.do(edit.Command{Name: "create", Path: second, FileText: new("second")})
	b.undo("g")
	_, err = b.Do(edit.Command{Name: "undo_edit", Path: second})
	wantCode(t, err, edit.CodeConflict)
}

func TestUndoAfterNUL(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("f", "a\n", 0o644)
	b.replace("f", "a", "x\x00y")
	b.undo("f")
	if got := b.content("f"); got != "a\n" {
		t.Errorf("got %q", got)
	}
}

func TestUndoSurvivesRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	state := filepath.Join(t.TempDir(), "deep", "state")
	open := func() *edit.Editor {
		e, err := edit.New(edit.Config{StateDir: state})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	b.Editor = open()
	b.write("f", "v0\xe9\r\n", 0o604)
	for i := range 3 {
		b.replace("f", fmt.Sprint("v", i), fmt.Sprint("v", i+1))
	}
	b.do(edit.Command{Name: "create", Path: b.path("d/new"), FileText: new("x")})
	for i := range 3 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.Editor = open()
		b.undo("f")
		if got, want := b.content("f"), fmt.Sprintf("v%d\xe9\r\n", 2-i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	b.undo("d/new")
	if got := b.names(); got != "f" || b.mode("f") != 0o604 {
		t.Errorf("there is %s, mode %o", got, b.mode("f"))
	}
	entries, err := historyEntries(state)
	if err != nil || len(entries) != 0 {
		t.Errorf("%d entries are left, %v", len(entries), err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.Editor = open()
	t.Cleanup(func() { b.Close() })
	_, err = b.Do(edit.Command{Name: "undo_edit", Path: b.path("f")})
	wantCode(t, err, edit.CodeNoHistory)
}

func TestStateIsPrivate(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o777); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(c *edit.Config) { c.StateDir = state })
	b.write("f", "a", 0o644)
	b.replace("f", "a", "b")
	info, err := os.Stat(state)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v", info.Mode(), err)
	}
	entries, err := historyEntries(state)
	if err != nil || len(entries) != 1 {
		t.Fatalf("got %d entries, %v", len(entries), err)
	}
	info, err = entries[0].Info()
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("an entry has mode %v, %v", info.Mode(), err)
	}
	if strings.Contains(entries[0].Name(), "/f") || strings.Contains(entries[0].Name(), "..") {
		t.Errorf("an entry is called %s", entries[0].Name())
	}
}

func TestStateIsNotALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	if e, err := edit.New(edit.Config{StateDir: filepath.Join(dir, "state")}); err == nil {
		e.Close()
		t.Error("a link was taken for a state directory")
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e, err := edit.New(edit.Config{StateDir: filepath.Join(dir, "file")}); err == nil {
		e.Close()
		t.Error("a file was taken for a state directory")
	}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		if err := errors.Join(os.Mkdir(foreign, 0o700), os.Chown(foreign, 1234, 1234)); err != nil {
			t.Fatal(err)
		}
		if e, err := edit.New(edit.Config{StateDir: foreign}); err == nil {
			e.Close()
			t.Error("a directory of another program was taken for a state directory")
		}
	}
}

// TestDamagedState edits twice, lets something happen to the state, and undoes in a new editor. The answer is an error with
// a message or the right bytes, and the file never becomes anything else.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		damage func(path string) error
	}{
		{"empty", func(path string) error { return os.Truncate(path, 0) }},
		{"cut", func(path string) error { return os.Truncate(path, 200) }},
		{"removed", os.Remove},
		{"longer", func(path string) error { return os.Truncate(path, 1<<20) }},
		{"other data", func(path string) error { return rewrite(path, "first", "forge") }},
		{"other facts", func(path string) error { return rewrite(path, " 644 ", " 777 ") }},
		{"link", func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) }},
		{"directory", func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }},
		{"strange names", func(path string) error {
			for _, name := range []string{"x", "..x", strings.Repeat("a", 64) + ".0.-1", strings.Repeat("a", 64) + ".zz.1", "left.tmp"} {
				if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte("x"), 0o600); err != nil {
					return err
				}
			}
			return os.Truncate(path, 1)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			state := t.TempDir()
			first, err := edit.New(edit.Config{StateDir: state})
			check(t, err)
			b.Editor = first
			path := b.write("f", strings.Repeat("first\n", 100), 0o644)
			b.do(edit.Command{Name: "write", Path: path, Content: new("second\n")})
			check(t, first.Close())
			entries, err := filepath.Glob(state + "/*.*")
			if err != nil || len(entries) != 1 {
				t.Fatalf("got %d entries, %v", len(entries), err)
			}
			check(t, test.damage(entries[0]))
			b.Editor, err = edit.New(edit.Config{StateDir: state})
			check(t, err)
			t.Cleanup(func() { check(t, b.Close()) })
			for range 2 { // the second time the damaged entry is gone
				_, err = b.Do(edit.Command{Name: "undo_edit", Path: path})
				wantCode(t, err, edit.CodeNoHistory)
			}
			if want := "No edit history found for " + path + "."; err.Error() != want {
				t.Errorf("got %q, want %q", err, want)
			}
			if got := b.content("f"); got != "second\n" {
				t.Errorf("the file became %q", got)
			}
			b.replace("f", "second", "third")
			b.undo("f")
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func rewrite(path, old, replacement string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), old) {
		return fmt.Errorf("%q is not in %.200q", old, data)
	}
	return os.WriteFile(path, []byte(strings.ReplaceAll(string(data), old, replacement)), 0o600)
}

// TestHistoryFails loses the state directory while the editor runs. Edits go on and say that they cannot be undone.
func TestHistoryFails(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	e, err := edit.New(edit.Config{StateDir: state})
	check(t, err)
	b := newBench(t)
	b.Editor = e
	path := b.write("f", "a", 0o644)
	b.replace("f", "a", "b")
	check(t, os.RemoveAll(state))
	r, err := b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: new("b"), NewStr: new("c")})
	if err != nil || r.HistoryErr == nil || b.content("f") != "c" {
		t.Errorf("got %+v, %v, file %q", r, err, b.content("f"))
	}
	_, err = b.Do(edit.Command{Name: "undo_edit", Path: path})
	wantCode(t, err, edit.CodeNoHistory)

	check(t, e.Close())
	check(t, e.Close())
	r, err = b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: new("c"), NewStr: new("d")})
	if err != nil || r.HistoryErr == nil {
		t.Errorf("after Close: got %+v, %v", r, err)
	}
	_, err = b.Do(edit.Command{Name: "undo_edit", Path: path})
	wantCode(t, err, edit.CodeNoHistory)
}

func TestMemoryHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.StateDir = "" })
	b.write("f", "a", 0o600)
	b.replace("f", "a", "b")
	b.replace("f", "b", "c")
	b.undo("f")
	b.undo("f")
	if got := b.content("f"); got != "a" {
		t.Errorf("got %q", got)
	}
}

// TestBudget fills the memory of the history: 12 MiB a snapshot, 64 MiB in all. The oldest go first, of whatever path.
func TestBudget(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.StateDir = "" })
	b.SetFlush(func(*os.File) error { return nil })
	text := strings.Repeat("0123456789abcde\n", 12<<16)
	for i := range 7 {
		path := b.write(fmt.Sprint(i), text, 0o644)
		if r, err := b.Write(path, "/", "", 0, -1); err != nil || r.HistoryErr != nil {
			t.Fatal(err, r.HistoryErr)
		}
	}
	for i := range 7 {
		_, err := b.Do(edit.Command{Name: "undo_edit", Path: b.path(fmt.Sprint(i))})
		if kept := i >= 2; kept != (err == nil) {
			t.Errorf("snapshot %d: got %v", i, err)
		}
	}
}

// TestHistoryOnSmallDisk fills the file system of the history. The oldest entries give way to the newest one, of whatever
// path, and an entry that does not fit at all is reported.
func TestHistoryOnSmallDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	state := t.TempDir()
	check(t, syscall.Mount("tmpfs", state, "tmpfs", 0, "size=1m,mode=0700"))
	t.Cleanup(func() { check(t, syscall.Unmount(state, syscall.MNT_DETACH)) })
	b := newBench(t, func(c *edit.Config) { c.StateDir = state })
	// Something else takes most of the space, which the history's budget does not know.
	check(t, os.WriteFile(filepath.Join(state, "other"), make([]byte, 700<<10), 0o600))
	text := strings.Repeat("0123456789abcde\n", 100<<10/16)
	const files = 6
	for i := range files {
		path := b.write(fmt.Sprint(i), text, 0o644)
		if r, err := b.Write(path, "/", "", 0, -1); err != nil || r.HistoryErr != nil {
			t.Fatal(i, err, r.HistoryErr)
		}
	}
	for i := range files {
		_, err := b.Do(edit.Command{Name: "undo_edit", Path: b.path(fmt.Sprint(i))})
		if kept := i >= files-2; kept != (err == nil) && i != files-3 {
			t.Errorf("edit %d: got %v", i, err)
		}
	}
	// What cannot be kept costs no other entry.
	path := b.write("small", "a", 0o644)
	b.replace("small", "a", "b")
	large := b.write("large", strings.Repeat(text, 4), 0o644)
	if r, err := b.Write(large, "/", "", 0, -1); err != nil || r.HistoryErr == nil {
		t.Errorf("got %v, %v, want a change that cannot be undone", r.HistoryErr, err)
	}
	if _, err := b.Do(edit.Command{Name: "undo_edit", Path: path}); err != nil {
		t.Errorf("the other entry: %v", err)
	}
}
