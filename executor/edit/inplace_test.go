package edit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/testhelp"
)

// crashEnv makes this test binary the program of TestCrashInPlace, and names the state directory.
const crashEnv = "EDIT_TEST_CRASH_STATE"

const torn = "\x00torn\x00"

// crashWays are ways to write a file in place; each leaves the content second but for the crash.
var crashWays = map[string]func(e *edit.Editor, path string) error{
	"put":         func(e *edit.Editor, path string) error { return putText(e, path, "two", nil) },
	"longer put":  func(e *edit.Editor, path string) error { return putText(e, path, strings.Repeat("two", 9000), nil) },
	"put of mode": func(e *edit.Editor, path string) error { return putText(e, path, "two", new(fs.FileMode(0o400))) },
	"write":       func(e *edit.Editor, path string) error { _, err := e.Write(path, "/", "two", 0, -1); return err },
	"upload": func(e *edit.Editor, path string) error {
		return nobody().Do(func() error { return writeInPlace(e, path, "two", nil) })
	},
	"undo of put":  func(e *edit.Editor, path string) error { return undoText(e, path) },
	"undo of edit": func(e *edit.Editor, path string) error { return undoText(e, path) },
}

// writeInPlace writes as an upload does, and fails then with the error failed.
func writeInPlace(e *edit.Editor, path, text string, failed error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return e.WriteInPlace(f, func() error {
		_, err := f.WriteString(text)
		return errors.Join(err, f.Truncate(int64(len(text))), failed)
	})
}

// An upload whose content ends early leaves the old content of a file that it wrote in place.
func TestFailedWriteInPlace(t *testing.T) {
	t.Parallel()
	failed := errors.New("content ended")
	for name, state := range map[string]string{"disk": t.TempDir(), "memory": ""} {
		e, path := newEditor(t, edit.Config{StateDir: state}), filepath.Join(t.TempDir(), "f")
		writeFile(t, path, "old and long")
		if err := writeInPlace(e, path, "two", failed); !errors.Is(err, failed) {
			t.Errorf("%s: got %v, want the error of writing", name, err)
		}
		wantFile(t, path, "old and long", 0o644)
		if err := writeInPlace(e, path, "two", nil); err != nil {
			t.Error(name, err)
		}
		wantFile(t, path, "two", 0o644)
		if state == "" {
			continue
		}
		if names := keptFiles(t, state); len(names) != 0 {
			t.Errorf("still kept: %q", names)
		}
	}
}

func putText(e *edit.Editor, path, text string, mode *fs.FileMode) error {
	in, err := e.Stage(path)
	if err != nil {
		return err
	}
	defer in.Discard()
	if err := in.Fill(strings.NewReader(text)); err != nil {
		return err
	}
	_, err = e.Put(in, edit.Conditions{}, mode)
	return err
}

func undoText(e *edit.Editor, path string) error {
	_, err := e.Do(edit.Command{Name: "undo_edit", Path: path})
	return err
}

// crashInPlace writes a file in place, tears it when the new content has been written, and kills this process.
func crashInPlace(state, way, path string) int {
	e, err := edit.New(edit.Config{StateDir: state, User: nobody(), Contents: contentsIn(state, 0)})
	if err == nil {
		e.SetFlush(func(f *os.File) error {
			if f.Name() == path {
				_, err := f.WriteAt([]byte(torn), 1)
				return errors.Join(err, unix.Kill(os.Getpid(), unix.SIGKILL))
			}
			return f.Sync()
		})
		err = crashWays[way](e, path)
	}
	fmt.Fprintln(os.Stderr, "it lives:", err)
	return 1
}

// editAndDie makes edits in a process that is killed after them.
func editAndDie(state, path string) int {
	e, err := edit.New(edit.Config{StateDir: state, Contents: contentsIn(state, 0)})
	for i := range 13 {
		if err == nil {
			_, err = e.Write(path, "/", fmt.Sprint("version ", i), 0, -1)
		}
	}
	if err == nil {
		err = undoText(e, path)
	}
	if err == nil {
		err = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	fmt.Fprintln(os.Stderr, "it lives:", err)
	return 1
}

// Edits of a process that was killed are undone by the next one, step by step.
func TestUndoAfterKill(t *testing.T) {
	t.Parallel()
	state, path := t.TempDir(), filepath.Join(t.TempDir(), "f")
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "edits", path)
		cmd.Env = append(os.Environ(), crashEnv+"="+state)
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.Success() || len(out) > 0 {
			t.Fatalf("%v: %s", err, out)
		}
		e := newEditor(t, edit.Config{StateDir: state})
		for i := 10; i >= 2; i-- { // the oldest of 13 went, and one was undone
			if err := undoText(e, path); err != nil || read(path) != fmt.Sprintf("version %d\n", i) {
				t.Fatalf("step %d: got %q, %v", i, read(path), err)
			}
		}
		if err := undoText(e, path); err == nil {
			t.Errorf("there is more to undo than was kept: %q", read(path))
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		closeContents(t, state)
	}
}

// crashed has a file with two names that a killed process tore, whose content was before.
type crashed struct{ dir, state, path, before string }

func crash(t *testing.T, way string) crashed {
	t.Helper()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	c := crashed{dir: b.dir, state: filepath.Join(t.TempDir(), "state"), before: "one, which is longer than the second"}
	c.path = b.write("f", c.before, 0o640)
	if err := os.Link(c.path, filepath.Join(c.dir, "other")); err != nil {
		t.Fatal(err)
	}
	b.giveAway()
	e := newEditor(t, edit.Config{StateDir: c.state, User: nobody()})
	switch way {
	case "undo of put":
		c.before = "last"
		if err := putText(e, c.path, c.before, nil); err != nil {
			t.Fatal(err)
		}
	case "undo of edit":
		c.before = "last"
		if _, err := e.Write(c.path, "/", c.before, 0, -1); err != nil {
			t.Fatal(err)
		}
	}
	if way == "put of unreadable" {
		if way = "put"; os.Chmod(c.path, 0o200) != nil {
			t.Fatal("chmod")
		}
	}
	raw, err := os.ReadFile(c.path)
	if err = errors.Join(err, e.Close()); err != nil {
		t.Fatal(err)
	}
	c.before = string(raw)
	closeContents(t, c.state)
	cmd := exec.CommandContext(t.Context(), os.Args[0], way, c.path)
	cmd.Env = append(os.Environ(), crashEnv+"="+c.state)
	out, err := cmd.CombinedOutput()
	if raw, _ := os.ReadFile(c.path); !strings.Contains(string(raw), torn) {
		t.Fatalf("the file was not torn: %q, %v %s", raw, err, out)
	}
	return c
}

// start makes the next editor and returns the errors of the files that it put back.
func (c *crashed) start(t *testing.T) (reported []error) {
	t.Helper()
	newEditor(t, edit.Config{StateDir: c.state, User: nobody(), PutBack: func(path string, err error) {
		if path != c.path && path != "" {
			t.Errorf("reported %q, want %q", path, c.path)
		}
		reported = append(reported, err)
	}})
	for _, name := range keptFiles(t, c.state) {
		if strings.Contains(name, ".note") || strings.HasSuffix(name, ".tmp") {
			t.Errorf("still kept: %q", name)
		}
	}
	return reported
}

// A process that is killed while it writes a file with two names leaves it torn. The next one puts the old content
// and mode back.
func TestCrashInPlace(t *testing.T) {
	t.Parallel()
	for way := range crashWays {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := crash(t, way)
			if got := c.start(t); len(got) != 1 || got[0] != nil {
				t.Errorf("reported %v, want one file", got)
			}
			wantFile(t, c.path, c.before, 0o640)
			wantFile(t, filepath.Join(c.dir, "other"), c.before, 0o640)
			testhelp.WriteFile(t, c.path, "later", 0)
			if got := c.start(t); len(got) != 0 {
				t.Errorf("the next start reported %v, want nothing", got)
			}
			wantFile(t, c.path, "later", 0o640)
		})
	}
}

// Between the crash and the start, the file can become another one, and the state directory be damaged. Nothing is
// changed then.
func TestChangedAfterCrash(t *testing.T) {
	t.Parallel()
	oneOf := func(c crashed, suffix string) string {
		names, err := filepath.Glob(filepath.Join(c.state, "kept", "*"+suffix))
		if err != nil || len(names) != 1 {
			panic(fmt.Sprint(names, err))
		}
		return names[0]
	}
	edited := func(c crashed, old, now string) error {
		name := oneOf(c, ".note")
		raw, err := os.ReadFile(name)
		text := strings.Replace(string(raw), old, now, 1)
		if text == string(raw) {
			return fmt.Errorf("%s has no %s", raw, old)
		}
		return errors.Join(err, os.WriteFile(name, []byte(text), 0))
	}
	for name, change := range map[string]func(c crashed) error{
		"another file": func(c crashed) error {
			return errors.Join(os.Remove(c.path), os.WriteFile(c.path, []byte("kept as it is"), 0o600))
		},
		"another file at the same inode": func(c crashed) error {
			return errors.Join(os.Remove(c.path), os.Remove(filepath.Join(c.dir, "other")), os.WriteFile(c.path, []byte("kept as it is"), 0o600))
		},
		"a link":      func(c crashed) error { return errors.Join(os.Remove(c.path), os.Symlink("victim", c.path)) },
		"a FIFO":      func(c crashed) error { return errors.Join(os.Remove(c.path), unix.Mkfifo(c.path, 0o666)) },
		"a directory": func(c crashed) error { return errors.Join(os.Remove(c.path), os.Mkdir(c.path, 0o777)) },
		"no file":     func(c crashed) error { return os.Remove(c.path) },
		"longer copy": func(c crashed) error { return os.Truncate(oneOf(c, ".note"), 1000) },
		"older note": func(c crashed) error {
			n := oneOf(c, ".note")
			head, _, _ := strings.Cut(read(n), "\n")
			return os.WriteFile(n, []byte(strings.Replace(head, `"Size":`, `"Kept":"copy","Version":"1-1","S":`, 1)), 0)
		},
		"cut note":      func(c crashed) error { return os.Truncate(oneOf(c, ".note"), 20) },
		"empty note":    func(c crashed) error { return os.Truncate(oneOf(c, ".note"), 0) },
		"note of path":  func(c crashed) error { return edited(c, `"Path":"`, `"Path":"eA`) },
		"note of size":  func(c crashed) error { return edited(c, `"Size":`, `"Size":-`) },
		"note of inode": func(c crashed) error { return edited(c, `"Number":`, `"Number":1`) },
		"note is FIFO":  func(c crashed) error { n := oneOf(c, ".note"); return errors.Join(os.Remove(n), unix.Mkfifo(n, 0o666)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := crash(t, "put")
			victim := filepath.Join(c.dir, "victim")
			writeFile(t, victim, "victim")
			if err := os.Chmod(victim, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := change(c); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(victim)
			info, _ := os.Lstat(c.path)
			var content []byte
			if info != nil && info.Mode().IsRegular() {
				content, _ = os.ReadFile(c.path)
			}
			if got := c.start(t); len(got) != 1 || got[0] == nil {
				t.Errorf("reported %v, want one error", got)
			}
			wantFile(t, victim, string(before), 0o666)
			now, _ := os.Lstat(c.path)
			if (now == nil) != (info == nil) || now != nil && now.Mode() != info.Mode() {
				t.Errorf("the file was %v, is %v", info, now)
			}
			if content != nil {
				wantFile(t, c.path, string(content), info.Mode().Perm())
			}
		})
	}
}

func read(path string) string {
	raw, _ := os.ReadFile(path) // an error shows where it is compared
	return string(raw)
}

// A file that the user may write and not read has no copy, and is not made empty.
func TestCrashWithoutACopy(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a file of another user's rights")
	}
	c := crash(t, "put of unreadable")
	before := testhelp.ReadFile(t, c.path)
	if got := c.start(t); len(got) != 0 {
		t.Errorf("reported %v, want nothing", got)
	}
	wantFile(t, c.path, string(before), 0o200)
}

// A second editor with the state directory of one that is writing leaves the file alone.
func TestNoteOfALivingEditor(t *testing.T) {
	t.Parallel()
	state, path := t.TempDir(), filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "one")
	if err := os.Link(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	e := newEditor(t, edit.Config{StateDir: state})
	calls := 0
	e.SetFlush(func(f *os.File) error {
		if f.Name() != path {
			return f.Sync()
		}
		calls++
		newEditor(t, edit.Config{StateDir: state, PutBack: func(_ string, err error) {
			if calls++; !errors.Is(err, filelock.ErrLocked) {
				t.Errorf("got %v, want %v", err, filelock.ErrLocked)
			}
		}})
		wantFile(t, path, "two\n", 0o644)
		return f.Sync()
	})
	if _, err := e.Write(path, "/", "two", 0, -1); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "two\n", 0o644)
	if calls != 2 {
		t.Errorf("%d calls, want one of flush and one of PutBack", calls)
	}
}

// A write whose note cannot be removed fails and leaves the old bytes, because the next start would put them back.
func TestNoteThatStays(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the directory is closed to another user only")
	}
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	state := filepath.Join(t.TempDir(), "state")
	path := b.write("f", "one", 0o644)
	if err := os.Link(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	b.giveAway()
	for name, write := range map[string]func(e *edit.Editor) error{
		"write": func(e *edit.Editor) error { _, err := e.Write(path, "/", "two", 0, -1); return err },
		"put":   func(e *edit.Editor) error { return putText(e, path, "two", nil) },
	} {
		e := newEditor(t, edit.Config{StateDir: state, User: nobody()})
		e.SetFlush(func(f *os.File) error {
			if f.Name() != path {
				return nil
			}
			done := make(chan error)
			go func() { done <- os.Chmod(filepath.Join(state, "kept"), 0o555) }() // with the rights of this process
			return <-done
		})
		if err := write(e); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: got %v, want %v", name, err, fs.ErrPermission)
		}
		wantFile(t, path, "one", 0o644)
	}
}

// Of two writes in place, the later one waits for the earlier: its bytes are not put back by the other's failure.
func TestWritesInPlaceTakeTurns(t *testing.T) {
	t.Parallel()
	const enough = 50 * time.Millisecond // for a write that does not wait; a slower machine only hides the fault
	e, path := newEditor(t, edit.Config{StateDir: t.TempDir()}), filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "old")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begun, later := make(chan struct{}), make(chan error)
	go func() {
		<-begun
		later <- e.WriteInPlace(f, func() error {
			_, err := f.WriteAt([]byte("new"), 0)
			return err
		})
	}()
	if err := e.WriteInPlace(f, func() error {
		close(begun)
		<-time.After(enough)
		return unix.ENOSPC
	}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if err := <-later; err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "new" {
		t.Errorf("got %q, %v", data, err)
	}
}
