package edit_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestUndoWords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "one\r\ntwo\r\n", 0o644)
	b.do(edit.Command{Name: "insert", Path: path, InsertLine: new("1"), NewStr: new("x")})
	want := edit.Result{
		Path: path, Existed: true, SHA256: sha("one\r\ntwo\r\n"), Before: "one\nx\ntwo\n", After: "one\ntwo\n",
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
		Path: path, Existed: true, Before: "a\nb",
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

// TestUndoWithoutRoom says why the edits of a file cannot be undone that later ones took the place of, or that was
// too large.
func TestUndoWithoutRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Editor = newEditor(t, edit.Config{MaxMemory: 100_000})
	paths := map[string]string{}
	for name, size := range map[string]int{"old": 60_000, "large": 200_000, "new": 60_000} {
		paths[name] = b.write(name, strings.Repeat(name[:1], size)+"\n", 0o644)
	}
	for _, name := range []string{"old", "large", "new"} {
		r, err := b.Do(edit.Command{Name: "write", Path: paths[name], Content: new("edited\n")})
		if err != nil || (r.HistoryErr != nil) != (name == "large") {
			t.Fatal(name, err, r.HistoryErr)
		}
	}
	for _, name := range []string{"old", "large"} {
		_, err := b.Do(edit.Command{Name: "undo_edit", Path: paths[name]})
		wantCode(t, err, edit.CodeNoHistory)
		if want := "The text of " + paths[name] + " before its last edits was given up for lack of space, so nothing was undone."; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	b.undo("new")
	b.replace("old", "edited", "once more")
	b.undo("old")
	_, err := b.Do(edit.Command{Name: "undo_edit", Path: paths["old"]})
	if want := "No edit history found for " + paths["old"] + "."; err == nil || err.Error() != want {
		t.Errorf("after another edit: got %v, want %q", err, want)
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

	// A file that was deleted and created again does not come back as something older.
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
		closeContents(t, state)
		return newEditor(t, edit.Config{StateDir: state})
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
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.Editor = open()
	_, err := b.Do(edit.Command{Name: "undo_edit", Path: b.path("f")})
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
	info, err = os.Stat(filepath.Join(state, "undo"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the log has mode %v, %v", info.Mode(), err)
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
	testhelp.WriteFile(t, filepath.Join(dir, "file"), "", 0o600)
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

// TestDamagedState edits twice, lets something happen to the state, and undoes in a new editor. The answer is an
// error with a message or the right bytes, and the file never becomes anything else.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		damage func(state string) error
	}{
		{"empty log", func(state string) error { return os.Truncate(state+"/undo", 0) }},
		{"cut log", func(state string) error { return os.Truncate(state+"/undo", 110) }},
		{"no log", func(state string) error { return os.Remove(state + "/undo") }},
		{"other facts", func(state string) error { return flip(state+"/undo", 9) }},
		{"log is a link", func(state string) error {
			return errors.Join(os.Remove(state+"/undo"), os.Symlink("/etc/passwd", state+"/undo"))
		}},
		{"log is a directory", func(state string) error {
			return errors.Join(os.Remove(state+"/undo"), os.MkdirAll(state+"/undo/d", 0o700))
		}},
		{"log is a FIFO", func(state string) error {
			return errors.Join(os.Remove(state+"/undo"), syscall.Mkfifo(state+"/undo", 0o600))
		}},
		{"log is another file", func(state string) error {
			return errors.Join(os.Remove(state+"/undo"), os.WriteFile(state+"/other", []byte("other"), 0o600), os.Link(state+"/other", state+"/undo"))
		}},
		{"link in the way of the log", func(state string) error {
			return errors.Join(os.Remove(state+"/undo"), os.Symlink(state+"/contents/seg-1", state+"/undo.tmp"), flip(state+"/contents/seg-1", 90))
		}},
		{"no contents", func(state string) error { return os.RemoveAll(state + "/contents") }},
		{"other content", func(state string) error { return flip(state+"/contents/seg-1", 90) }},
		{"cut content", func(state string) error { return os.Truncate(state+"/contents/seg-1", 90) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			state := t.TempDir()
			first := newEditor(t, edit.Config{StateDir: state})
			b.Editor = first
			path := b.write("f", strings.Repeat("first\n", 100), 0o644)
			b.do(edit.Command{Name: "write", Path: path, Content: new("second\n")})
			check(t, first.Close())
			closeContents(t, state)
			check(t, test.damage(state))
			b.Editor = newEditor(t, edit.Config{StateDir: state})
			var err error
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
			if other, err := os.ReadFile(state + "/other"); err == nil && string(other) != "other" {
				t.Errorf("the other file became %q", other)
			}
			check(t, b.Close())
			closeContents(t, state)
			b.Editor = newEditor(t, edit.Config{StateDir: state})
			b.undo("f")
		})
	}
}

// flip changes a byte of a file.
func flip(path string, at int) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[at] ^= 1
	return os.WriteFile(path, data, 0o600)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestHistoryFails takes the store away while the editor runs. Edits go on and say that they cannot be undone.
func TestHistoryFails(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	var broken error
	b := newBench(t, func(c *edit.Config) {
		c.StateDir = state
		c.Contents = func() (*store.Store, error) {
			if broken != nil {
				return nil, broken
			}
			return contentsIn(state, 0)()
		}
	})
	t.Cleanup(func() { closeContents(t, state) })
	path := b.write("f", "a", 0o644)
	b.replace("f", "a", "b")
	undo := edit.Command{Name: "undo_edit", Path: path}
	broken = errors.New("it broke")
	_, err := b.Do(undo)
	wantCode(t, err, edit.CodeNoHistory)
	broken = nil
	b.undo("f")
	b.replace("f", "a", "b")
	broken = errors.New("it broke")
	r, err := b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: new("b"), NewStr: new("c")})
	if err != nil || !errors.Is(r.HistoryErr, broken) || b.content("f") != "c" {
		t.Errorf("got %+v, %v, file %q", r, err, b.content("f"))
	}
	broken = nil
	_, err = b.Do(undo)
	wantCode(t, err, edit.CodeNoHistory)

	check(t, b.Close())
	check(t, b.Close())
	r, err = b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: new("c"), NewStr: new("d")})
	if err != nil || r.HistoryErr == nil {
		t.Errorf("after Close: got %+v, %v", r, err)
	}
	_, err = b.Do(undo)
	wantCode(t, err, edit.CodeNoHistory)
}

// TestUndoLogIsBounded makes more edits than the log has records, and opens one with more edits than are kept.
func TestUndoLogIsBounded(t *testing.T) {
	t.Parallel()
	state, path := t.TempDir(), filepath.Join(t.TempDir(), "f")
	e := newEditor(t, edit.Config{StateDir: state})
	e.SetFlush(func(*os.File) error { return nil })
	const edits = 1200
	for i := range edits {
		if r, err := e.Write(path, "/", fmt.Sprint(i), 0, -1); err != nil || r.HistoryErr != nil {
			t.Fatal(err, r.HistoryErr)
		}
	}
	if info, err := os.Stat(state + "/undo"); err != nil || info.Size() > 500*120 {
		t.Errorf("the log has %d bytes, %v", info.Size(), err)
	}
	check(t, e.Close())
	e = newEditor(t, edit.Config{StateDir: state})
	for i := range 10 {
		undo(t, e, path)
		if got, want := read(path), fmt.Sprintf("%d\n", edits-2-i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check(t, e.Close())

	var log []byte
	const paths = 9000
	for i := range paths {
		log = append(log, edit.LogRecord(fmt.Sprint("/f", i), fmt.Sprint(i), "x", 0o644)...)
	}
	check(t, os.WriteFile(state+"/undo", log, 0o600))
	e = newEditor(t, edit.Config{StateDir: state})
	needed := 0
	for i := range paths {
		if e.Needs(sha256.Sum256([]byte(fmt.Sprint(i)))) {
			needed++
		} else if i > paths-8192 {
			t.Fatalf("edit %d was dropped", i)
		}
	}
	if needed != 8192 {
		t.Errorf("%d contents are needed", needed)
	}
}

// TestOlderHistory removes what an earlier version left, and says so.
func TestOlderHistory(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	key := strings.Repeat("0123456789abcdef", 4)
	others := []string{"other.tmp", key, key + ".1.1"}
	for _, name := range append([]string{key + ".0000000000000001.1003", key + ".0000000000000002.2004", strings.Repeat("A", 26) + ".tmp", "kept/" + key + ".0000000000000002.2004"}, others...) {
		check(t, os.MkdirAll(filepath.Join(state, filepath.Dir(name)), 0o700))
		check(t, os.WriteFile(filepath.Join(state, name), []byte("x"), 0o600))
	}
	for _, want := range []int{2, 0} {
		got := 0
		e := newEditor(t, edit.Config{StateDir: state, Older: func(edits int) { got = edits }})
		if got != want {
			t.Errorf("got %d edits, want %d", got, want)
		}
		check(t, e.Close())
	}
	entries, err := os.ReadDir(state)
	if err != nil || len(entries) != len(others)+1 { // the directory for files that are written in place
		t.Errorf("got %v, %v", entries, err)
	}
	wantNothingKept(t, state)
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

// TestBudget fills the memory of the history: 12 MiB a content, 64 MiB in all. The oldest go first, of whatever path.
func TestBudget(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.StateDir = "" })
	b.SetFlush(func(*os.File) error { return nil })
	for i := range 7 {
		path := b.write(fmt.Sprint(i), noise(i, 12<<20), 0o644)
		if r, err := b.Write(path, "/", "", 0, -1); err != nil || r.HistoryErr != nil {
			t.Fatal(err, r.HistoryErr)
		}
	}
	for i := range 7 {
		_, err := b.Do(edit.Command{Name: "undo_edit", Path: b.path(fmt.Sprint(i))})
		if kept := i >= 2; kept != (err == nil) {
			t.Errorf("content %d: got %v", i, err)
		}
	}
}

// noise is a text that can hardly be compressed.
func noise(n, size int) string {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(data)
	for i := range data {
		data[i] = data[i]&0x3f + '0'
	}
	return string(data)
}

// TestHistoryOnSmallDisk fills the file system of the store. The oldest entries give way to the newest one, of whatever
// path, and a content that does not fit at all is reported.
func TestHistoryOnSmallDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	state := t.TempDir()
	check(t, syscall.Mount("tmpfs", state, "tmpfs", 0, "size=4m,mode=0700"))
	t.Cleanup(func() { check(t, syscall.Unmount(state, syscall.MNT_DETACH)) })
	b := newBench(t, func(c *edit.Config) { c.StateDir, c.Contents = state, contentsIn(state, 4<<20) })
	t.Cleanup(func() { closeContents(t, state) })
	// Something else takes most of the space, which the store's bound does not know.
	check(t, os.WriteFile(filepath.Join(state, "other"), make([]byte, 3100<<10), 0o600))
	const files = 8
	for i := range files {
		path := b.write(fmt.Sprint(i), noise(i, 130<<10), 0o644)
		if r, err := b.Write(path, "/", "", 0, -1); err != nil || r.HistoryErr != nil {
			t.Fatal(i, err, r.HistoryErr)
		}
	}
	kept := 0
	for i := range files {
		_, err := b.Do(edit.Command{Name: "undo_edit", Path: b.path(fmt.Sprint(i))})
		if err == nil {
			kept++
		}
		if err == nil && i == 0 || err != nil && i == files-1 {
			t.Errorf("edit %d: got %v", i, err)
		}
	}
	t.Logf("%d of %d edits are kept", kept, files)
	// Bytes that cannot be kept cost no other entry.
	path := b.write("small", "a", 0o644)
	b.replace("small", "a", "b")
	large := b.write("large", noise(99, 2<<20), 0o644)
	if r, err := b.Write(large, "/", "", 0, -1); err != nil || r.HistoryErr == nil {
		t.Errorf("got %v, %v, want a change that cannot be undone", r.HistoryErr, err)
	}
	if _, err := b.Do(edit.Command{Name: "undo_edit", Path: path}); err != nil {
		t.Errorf("the other entry: %v", err)
	}
}
