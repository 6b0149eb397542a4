package edit_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/testhelp"
)

// put writes a whole file.
func put(t *testing.T, e *edit.Editor, path, content string, c edit.Conditions, mode *fs.FileMode) (edit.Result, error) {
	t.Helper()
	in, err := e.Stage(path)
	if err != nil {
		return edit.Result{}, err
	}
	defer in.Discard()
	if err := in.Fill(strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	return e.Put(in, c, mode)
}

func TestPutAndUndo(t *testing.T) {
	for _, state := range []string{"", t.TempDir()} {
		for _, size := range []int{0, 1, 128 << 10, 128<<10 + 1, 3 << 20, 11 << 20} {
			t.Run(fmt.Sprintf("state=%t size=%d", state != "", size), func(t *testing.T) {
				e := newEditor(t, edit.Config{StateDir: state})
				path := filepath.Join(t.TempDir(), "new", "f")
				first, second := strings.Repeat("a", size), strings.Repeat("b\n", size/2+1)
				r, err := put(t, e, path, first, edit.Conditions{}, nil)
				if want := (edit.Result{Path: path, SHA256: sha(first)}); err != nil || r != want {
					t.Fatalf("got %+v %v, want %+v", r, err, want)
				}
				if err := os.Chmod(path, 0o640); err != nil {
					t.Fatal(err)
				}
				if r, err = put(t, e, path, second, edit.Conditions{}, nil); err != nil || !r.Existed || r.HistoryErr != nil {
					t.Fatalf("got %+v %v", r, err)
				}
				wantFile(t, path, second, 0o640)
				undo(t, e, path)
				wantFile(t, path, first, 0o640)
				undo(t, e, path)
				if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the directory that was made is still there: %v", err)
				}
				wantNothingKept(t, state)
			})
		}
	}
}

func TestRemoveAndUndo(t *testing.T) {
	state := t.TempDir()
	e := newEditor(t, edit.Config{StateDir: state})
	dir := t.TempDir()
	path, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	writeFile(t, path, "text\n")
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	for _, victim := range []string{link, path} {
		if r, err := e.Remove(victim, edit.Conditions{}); err != nil || r.HistoryErr != nil {
			t.Fatalf("%s: got %+v %v", victim, r, err)
		}
		if _, err := os.Lstat(victim); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s is still there: %v", victim, err)
		}
	}
	undo(t, e, path)
	undo(t, e, link)
	if got, err := os.ReadFile(link); err != nil || string(got) != "text\n" {
		t.Errorf("after the undo: %q %v", got, err)
	}
	wantNothingKept(t, state)
}

// A file that is too large for the store is replaced and removed, and the answer says that this cannot be undone. The
// creation of one can.
func TestTooLargeToUndo(t *testing.T) {
	e, path := newEditor(t, edit.Config{StateDir: t.TempDir()}), filepath.Join(t.TempDir(), "f")
	large := strings.Repeat("large\n", store.MaxContent/6+1)
	if _, err := put(t, e, path, "small", edit.Conditions{}, nil); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func() (edit.Result, error){
		func() (edit.Result, error) { return put(t, e, path, "two", edit.Conditions{}, nil) },
		func() (edit.Result, error) { return e.Write(path, "/", "two\n", 0, -1) },
		func() (edit.Result, error) { return e.Remove(path, edit.Conditions{}) },
	} {
		writeFile(t, path, large)
		r, err := change()
		if err != nil || r.HistoryErr == nil {
			t.Fatalf("got %v, %v, want a change that cannot be undone", r.HistoryErr, err)
		}
		_, err = e.Do(edit.Command{Name: "undo_edit", Path: path})
		if complaint, ok := errors.AsType[*edit.Error](err); !ok || complaint.Code != edit.CodeNoHistory && complaint.Code != edit.CodeFileNotFound {
			t.Errorf("undo_edit: got %v", err)
		}
	}
	for _, before := range []string{"", "small"} { // the edit that made it large is undone
		if before != "" {
			writeFile(t, path, before)
		}
		if r, err := put(t, e, path, large, edit.Conditions{}, nil); err != nil || r.HistoryErr != nil {
			t.Fatal(err, r.HistoryErr)
		}
		undo(t, e, path)
		if got := read(path); got != before {
			t.Errorf("got %.20q, want %q", got, before)
		}
	}
}

// The entries outlive the editor, and what it left in its directory does not.
func TestKeptFilesAfterRestart(t *testing.T) {
	state, path := t.TempDir(), filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "one")
	e := newEditor(t, edit.Config{StateDir: state})
	if _, err := put(t, e, path, "two", edit.Conditions{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	closeContents(t, state)
	writeFile(t, filepath.Join(state, "kept", "orphan.tmp"), "x")
	e = newEditor(t, edit.Config{StateDir: state})
	undo(t, e, path)
	wantFile(t, path, "one", 0o644)
	wantNothingKept(t, state)
}

// An agent may hold the old file open, and write to it, which does not change what the history has.
func TestUndoOfAFileThatIsOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "one")
	e := newEditor(t, edit.Config{StateDir: t.TempDir()})
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := put(t, e, path, "two", edit.Conditions{}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("forged"); err != nil {
		t.Fatal(err)
	}
	undo(t, e, path)
	wantFile(t, path, "one", 0o644)
}

// A file that is written in place and cannot be brought to the disk gets its old bytes back, and loses no history.
func TestPutInPlaceFails(t *testing.T) {
	for _, state := range []string{"", t.TempDir()} {
		dir := t.TempDir()
		path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
		writeFile(t, path, "one, which is longer")
		if err := errors.Join(os.Link(path, other), os.Chmod(path, 0o750)); err != nil {
			t.Fatal(err)
		}
		e := newEditor(t, edit.Config{StateDir: state})
		for _, content := range []string{"two", strings.Repeat("three", 1000)} {
			in, err := e.Stage(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := in.Fill(strings.NewReader(content)); err != nil {
				t.Fatal(err)
			}
			e.SetFlush(func(*os.File) error { return syscall.EIO })
			if _, err := e.Put(in, edit.Conditions{}, new(fs.FileMode(0o600))); !errors.Is(err, syscall.EIO) {
				t.Errorf("got %v, want %v", err, syscall.EIO)
			}
			e.SetFlush((*os.File).Sync)
			in.Discard()
			wantFile(t, other, "one, which is longer", 0o750)
		}
		wantNothingKept(t, state)
		if entries, _ := os.ReadDir(dir); len(entries) != 2 {
			t.Errorf("left in the directory: %v", entries)
		}
	}
}

// The agent makes a file of terabytes, which costs it nothing: it is not hashed for a condition.
func TestConditionOfAHugeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "one")
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	e := newEditor(t, edit.Config{})
	_, err := put(t, e, path, "two", edit.Conditions{Match: []string{sha("one")}}, nil)
	wantCode(t, err, edit.CodeTooLarge)
	_, err = e.Remove(path, edit.Conditions{NoneMatch: []string{sha("one")}})
	wantCode(t, err, edit.CodeTooLarge)
	if info, err := os.Stat(path); err != nil || info.Size() != 1<<40 {
		t.Errorf("the file changed: %v %v", info, err)
	}
}

func TestPutKeepsLinksAndModes(t *testing.T) {
	dir := t.TempDir()
	path, other, soft := filepath.Join(dir, "f"), filepath.Join(dir, "other"), filepath.Join(dir, "soft")
	writeFile(t, path, "one, which is longer")
	if err := errors.Join(os.Link(path, other), os.Symlink("f", soft), os.Chmod(path, 0o750)); err != nil {
		t.Fatal(err)
	}
	e := newEditor(t, edit.Config{StateDir: t.TempDir()})
	if _, err := put(t, e, soft, "two", edit.Conditions{}, nil); err != nil {
		t.Fatal(err)
	}
	wantFile(t, other, "two", 0o750)
	wantFile(t, path, "two", 0o750)
	if info, err := os.Lstat(soft); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the symbolic link: %v %v", info, err)
	}
	undo(t, e, soft)
	wantFile(t, other, "one, which is longer", 0o750)
	mode := fs.FileMode(0o600)
	if _, err := put(t, e, path, "three", edit.Conditions{}, &mode); err != nil {
		t.Fatal(err)
	}
	wantFile(t, other, "three", 0o600)
	fresh := filepath.Join(dir, "fresh")
	if _, err := put(t, e, fresh, "", edit.Conditions{}, new(fs.FileMode(0o755))); err != nil {
		t.Fatal(err)
	}
	wantFile(t, fresh, "", 0o755)
}

func TestConditions(t *testing.T) {
	one, any := []string{sha("one")}, []string{"*"}
	for _, test := range []struct {
		name   string
		exists bool
		c      edit.Conditions
		ok     bool
	}{
		{"match", true, edit.Conditions{Match: one}, true},
		{"match of several", true, edit.Conditions{Match: []string{"x", one[0]}}, true},
		{"no match", true, edit.Conditions{Match: []string{"x"}}, false},
		{"weak tags only", true, edit.Conditions{Match: []string{}}, false},
		{"any", true, edit.Conditions{Match: any}, true},
		{"any of none", false, edit.Conditions{Match: any}, false},
		{"match of none", false, edit.Conditions{Match: one}, false},
		{"create", false, edit.Conditions{NoneMatch: any}, true},
		{"create over", true, edit.Conditions{NoneMatch: any}, false},
		{"none match", true, edit.Conditions{NoneMatch: one}, false},
		{"none match of other", true, edit.Conditions{NoneMatch: []string{"x"}}, true},
		{"both", true, edit.Conditions{Match: any, NoneMatch: one}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEditor(t, edit.Config{})
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			if test.exists {
				writeFile(t, path, "one")
			}
			_, err := put(t, e, path, "two", test.c, nil)
			if test.ok != (err == nil) || err != nil && !errors.Is(err, edit.ErrCondition) {
				t.Fatalf("got %v, want success: %t", err, test.ok)
			}
			switch {
			case test.ok:
				wantFile(t, path, "two", 0o644)
			case test.exists:
				wantFile(t, path, "one", 0o644)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "f" {
				t.Errorf("left in the directory: %v", entries)
			}
		})
	}
}

func TestPutOfACutBody(t *testing.T) {
	for _, failure := range []error{io.ErrUnexpectedEOF, syscall.ECONNRESET} {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		writeFile(t, path, "old")
		e := newEditor(t, edit.Config{})
		for _, at := range []string{path, filepath.Join(dir, "deep", "new")} {
			in, err := e.Stage(at)
			if err != nil {
				t.Fatal(err)
			}
			body := io.MultiReader(bytes.NewReader(make([]byte, 300<<10)), iotest.ErrReader(failure))
			if err := in.Fill(body); !errors.Is(err, failure) {
				t.Errorf("got %v, want %v", err, failure)
			}
			in.Discard()
		}
		wantFile(t, path, "old", 0o644)
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("left in the directory: %v", entries)
		}
	}
}

// Contents that arrive at once share a number of buffers, and each gets its own hash.
func TestPutsAtOnce(t *testing.T) {
	dir := t.TempDir()
	e := newEditor(t, edit.Config{})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			in, err := e.Stage(filepath.Join(dir, fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
				return
			}
			defer in.Discard()
			content := strings.Repeat(fmt.Sprintf("%02d", i), 1<<19)
			if err := in.Fill(strings.NewReader(content)); err != nil || in.SHA256 != sha(content) {
				t.Errorf("content %d: got %s, %v", i, in.SHA256, err)
			}
		})
	}
	all.Wait()
}

func TestPutOverWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo, loop := filepath.Join(dir, "fifo"), filepath.Join(dir, "loop")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("loop", loop)); err != nil {
		t.Fatal(err)
	}
	e := newEditor(t, edit.Config{StateDir: t.TempDir()})
	for _, path := range []string{dir, fifo, loop, "/dev/null", "/proc/self/mem", dir + "/f\x00"} {
		if _, err := put(t, e, path, "x", edit.Conditions{}, nil); err == nil {
			t.Errorf("%q was written", path)
		}
		if path == loop {
			continue // a link can be removed
		}
		if _, err := e.Remove(path, edit.Conditions{}); err == nil {
			t.Errorf("%q was removed", path)
		}
	}
}

// While the content arrives, the agent makes the path lead elsewhere.
func TestPutOfAPathThatChanges(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "sub", "f")
	e := newEditor(t, edit.Config{StateDir: t.TempDir()})
	in, err := e.Stage(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Discard()
	if err := in.Fill(strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(filepath.Dir(path), filepath.Join(dir, "was")), os.Symlink(elsewhere, filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Put(in, edit.Conditions{}, nil); err == nil {
		t.Error("the file was written where the new link leads")
	}
	if entries, _ := os.ReadDir(elsewhere); len(entries) != 0 {
		t.Errorf("made: %v", entries)
	}
}

func undo(t *testing.T, e *edit.Editor, path string) {
	t.Helper()
	if _, err := e.Do(edit.Command{Name: "undo_edit", Path: path}); err != nil {
		t.Fatalf("undoing %s: %v", path, err)
	}
}

func wantFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != content {
		t.Fatalf("%s: got %.40q (%d bytes) %v, want %.40q (%d bytes)", path, got, len(got), err, content, len(content))
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != mode {
		t.Errorf("%s: got %v %v, want mode %v", path, info.Mode(), err, mode)
	}
}

func keptFiles(t *testing.T, state string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(state, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func wantNothingKept(t *testing.T, state string) {
	t.Helper()
	if state == "" {
		return
	}
	if names := keptFiles(t, state); len(names) != 0 {
		t.Errorf("still kept: %q", names)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	testhelp.WriteFile(t, path, content, 0o644)
}

// The history of a server that runs as root keeps files of the user, whose rights do not
// reach its directory.
func TestPutAsUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root takes on another user's rights; TestPutAndUndo is the same without")
	}
	b := newBench(t)
	b.giveAway()
	state := t.TempDir()
	e := newEditor(t, edit.Config{StateDir: state, User: nobody()})
	path := b.path("f")
	for _, content := range []string{"one", "two", "three"} {
		if r, err := put(t, e, path, content, edit.Conditions{}, new(fs.FileMode(0o600))); err != nil || r.HistoryErr != nil {
			t.Fatalf("%s: %+v %v", content, r, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Sys().(*syscall.Stat_t).Uid == 0 {
		t.Errorf("the file is root's: %v", err)
	}
	undo(t, e, path)
	wantFile(t, path, "two", 0o600)
	undo(t, e, path)
	wantFile(t, path, "one", 0o600)
	if _, err := put(t, e, filepath.Join(t.TempDir(), "f"), "x", edit.Conditions{}, nil); err == nil {
		t.Error("a directory of root was written to")
	}
}
