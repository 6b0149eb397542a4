package edit_test

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/internal/files"
)

func TestModeStays(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o600, 0o640, 0o755, 0o777, 0o755 | os.ModeSetgid} {
		b := newBench(t)
		path := b.write("f", "a\nb\n", mode)
		check := func(what string) {
			t.Helper()
			if got := b.mode("f"); got != mode {
				t.Errorf("%s: got mode %v, want %v", what, got, mode)
			}
		}
		b.replace("f", "a", "A")
		check("str_replace")
		b.do(edit.Command{Name: "insert", Path: path, InsertLine: new("0"), NewStr: new("x")})
		check("insert")
		b.undo("f")
		check("undo")
		if _, err := b.Write(path, "/", "new", 0, -1); err != nil {
			t.Fatal(err)
		}
		check("write")
	}
}

func TestNewFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.do(edit.Command{Name: "create", Path: b.path("made"), FileText: new("x")})
	if _, err := b.Write("written", b.dir, "x", 0, -1); err != nil {
		t.Fatal(err)
	}
	b.do(edit.Command{Name: "create", Path: b.path("a/b/c"), FileText: new("x")})
	got := fmt.Sprintf("%o %o %o", b.mode("made"), b.mode("written"), b.mode("a/b").Perm())
	if want := "644 664 755"; got != want {
		t.Errorf("got modes %s, want %s", got, want)
	}
	if got, want := b.names(), "a a/b a/b/c made written"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOwnerStays(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("an ordinary user has files of its own only; checking that these stay its own")
	}
	b := newBench(t)
	path := b.write("f", "a\n", 0o644)
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = 1234, 4321
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	b.replace("f", "a", "b")
	wantOwner(t, path, uid, gid)
	b.undo("f")
	wantOwner(t, path, uid, gid)
}

func TestNewFileOwner(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	b.giveAway()
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = int(nobody().UID), int(nobody().GID)
	}
	if _, err := b.Write("a/b/f", b.dir, "x", 0, -1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a/b", "a/b/f"} {
		wantOwner(t, b.path(name), uid, gid)
	}
}

func wantOwner(t *testing.T, path string, uid, gid int) {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		t.Fatal(err)
	}
	if int(stat.Uid) != uid || int(stat.Gid) != gid {
		t.Errorf("%s belongs to %d:%d, want %d:%d", path, stat.Uid, stat.Gid, uid, gid)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("d/real", "a\n", 0o640)
	b.link("dir", "d")
	link := b.link("link", "dir/real")
	b.do(edit.Command{Name: "insert", Path: link, InsertLine: new("0"), NewStr: new("x")})
	b.replace("link", "a", "b")
	if got := b.content("d/real"); got != "x\nb\n" {
		t.Errorf("through links: got %q", got)
	}
	if got, err := os.Readlink(link); err != nil || got != "dir/real" {
		t.Errorf("the link became %q, %v", got, err)
	}
	b.undo("dir/real") // one file has one history, by whatever name it is called
	b.undo("link")
	if got := b.content("d/real"); got != "a\n" {
		t.Errorf("after undo: got %q", got)
	}

	dangling := b.link("dangling", b.path("target"))
	b.do(edit.Command{Name: "create", Path: dangling, FileText: new("x")})
	if got := b.content("target"); got != "x" || b.mode("dangling")&os.ModeSymlink == 0 {
		t.Errorf("creating through a link: got %q, mode %v", got, b.mode("dangling"))
	}

	up := b.path("dir/../d/real") // dir leads to d, and its parent is the directory all is in
	b.do(edit.Command{Name: "str_replace", Path: up, OldStr: new("a"), NewStr: new("c")})
	if got := b.content("d/real"); got != "c\n" {
		t.Errorf("through dots: got %q", got)
	}
}

func TestHardLinks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("one", "a b c\n", 0o644)
	if err := os.Link(path, b.path("two")); err != nil {
		t.Fatal(err)
	}
	number := inode(t, path)
	for _, step := range []struct{ old, replacement string }{{"b", "a longer middle"}, {"a longer middle", ""}, {"a  c", "x"}} {
		b.replace("one", step.old, step.replacement)
		if one, two := b.content("one"), b.content("two"); one != two || inode(t, path) != number {
			t.Fatalf("the names came apart: %q and %q", one, two)
		}
	}
	b.undo("one")
	if got := b.content("two"); got != "a  c\n" {
		t.Errorf("after undo: got %q", got)
	}
}

func TestAttributesStay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "a\n", 0o644)
	if err := unix.Setxattr(path, "user.note", []byte("kept"), 0); errors.Is(err, unix.ENOTSUP) {
		t.Logf("%s keeps no attributes; there is nothing to lose", path)
	} else if err != nil {
		t.Fatal(err)
	} else {
		defer func() {
			var value [16]byte
			n, err := unix.Getxattr(path, "user.note", value[:])
			if err != nil || string(value[:n]) != "kept" {
				t.Errorf("the attribute is %q, %v", value[:max(n, 0)], err)
			}
		}()
	}
	b.replace("f", "a", "b")
	if got := b.content("f"); got != "b\n" {
		t.Errorf("got %q", got)
	}
}

func TestReplacedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "a\n", 0o644)
	before := inode(t, path)
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	b.replace("f", "a", "something longer")
	data := make([]byte, 100)
	if n, _ := reader.Read(data); string(data[:n]) != "a\n" || inode(t, path) == before {
		t.Errorf("who had the file open sees %q; the file was not replaced", data[:n])
	}
}

// TestFileThatWaits must not block: files such as /proc/kmsg say that they are regular, and wait for more as this
// pipe does.
func TestFileThatWaits(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := w.WriteString("what there is"); err != nil {
		t.Fatal(err)
	}
	if data, err := edit.Drain(r, 0, 100); !errors.Is(err, files.ErrNotRegular) {
		t.Errorf("got %q, %v, want that it is no regular file", data, err)
	}
}

// TestSpecialFiles must not block: opening a FIFO does until another process opens its other end.
func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := unix.Mkfifo(b.path("fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A listener's path has at most 107 bytes, and the directory may have more.
	if err := unix.Mknod(b.path("socket"), unix.S_IFSOCK|0o644, 0); err != nil {
		t.Fatal(err)
	}
	b.link("null", "/dev/null")
	for _, name := range []string{"fifo", "socket", "null"} {
		path := b.path(name)
		for _, c := range []edit.Command{
			{Name: "view"},
			{Name: "str_replace", OldStr: new("a"), NewStr: new("b")},
			{Name: "insert", InsertLine: new("0"), NewStr: new("b")},
			{Name: "replace", OldStr: new("a"), NewStr: new("b")},
			{Name: "write", Content: new("b")},
		} {
			c.Path = path
			_, err := b.Do(c)
			wantCode(t, err, edit.CodeNotRegular)
		}
		_, err := b.Read(path, "/", 0, -1)
		wantCode(t, err, edit.CodeNotRegular)
		_, err = b.Write(path, "/", "x", 0, -1)
		wantCode(t, err, edit.CodeNotRegular)
	}
	if got, want := b.names(), "fifo null socket"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPermissions works with the rights of an ordinary user. What they do not allow is refused, and nothing is left.
func TestPermissions(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	b.write("secret", "a\n", 0o000)
	b.write("fixed", "a\n", 0o444)
	b.write("closed/f", "a\n", 0o644)
	b.write("sealed/f", "a\n", 0o644)
	b.write("sealed/fixed", "a\n", 0o444)
	b.write("open/f", "a\n", 0o644)
	b.giveAway()
	for name, mode := range map[string]os.FileMode{"closed": 0, "sealed": 0o555} {
		if err := os.Chmod(b.path(name), mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(b.path(name), 0o755) })
	}
	replace := edit.Command{Name: "str_replace", OldStr: new("a"), NewStr: new("b")}
	tests := []struct {
		name string
		c    edit.Command
		path string
		want string
	}{
		{"view", edit.Command{Name: "view"}, "secret", "Ran into [Errno 13] Permission denied: 'D/secret' while trying to read D/secret"},
		{"view below", edit.Command{Name: "view"}, "closed/f", "Ran into [Errno 13] Permission denied: 'D/closed/f' while trying to read D/closed/f"},
		{"list", edit.Command{Name: "view"}, "closed", "Ran into [Errno 13] Permission denied: 'D/closed' while trying to read D/closed"},
		{"replace unreadable", replace, "secret", "Ran into [Errno 13] Permission denied: 'D/secret' while trying to read D/secret"},
		{"replace", replace, "fixed", "Ran into [Errno 13] Permission denied: 'D/fixed' while trying to write to D/fixed"},
		{"replace in a sealed directory", replace, "sealed/fixed", "Ran into [Errno 13] Permission denied: 'D/sealed/fixed' while trying to write to D/sealed/fixed"},
		{"insert", edit.Command{Name: "insert", InsertLine: new("0"), NewStr: new("x")}, "fixed", "Ran into [Errno 13] Permission denied: 'D/fixed' while trying to write to D/fixed"},
		{"create", edit.Command{Name: "create", FileText: new("x")}, "sealed/new", "Ran into [Errno 13] Permission denied: 'D/sealed/new' while trying to write to D/sealed/new"},
		{"create with parents", edit.Command{Name: "create", FileText: new("x")}, "sealed/d/new", "Ran into [Errno 13] Permission denied: 'D/sealed/d/new' while trying to write to D/sealed/d/new"},
	}
	for _, test := range tests {
		test.c.Path = b.path(test.path)
		_, err := b.Do(test.c)
		wantCode(t, err, edit.CodePermission)
		if got := strings.ReplaceAll(err.Error(), b.dir, "D"); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	_, err := b.Read("secret", b.dir, 0, -1)
	wantCode(t, err, edit.CodePermission)
	_, err = b.Read("closed/f", b.dir, 0, -1)
	wantCode(t, err, edit.CodePermission)
	_, err = b.Write("fixed", b.dir, "x", 0, -1)
	wantCode(t, err, edit.CodePermission)
	_, err = b.Write("sealed/new", b.dir, "x", 0, -1)
	wantCode(t, err, edit.CodePermission)

	// The directory cannot take a new file, but this file can be written.
	number := inode(t, b.path("sealed/f"))
	b.replace("sealed/f", "a", "in place")
	if got := b.content("sealed/f"); got != "in place\n" || inode(t, b.path("sealed/f")) != number {
		t.Errorf("in a sealed directory: got %q, another file: %v", got, inode(t, b.path("sealed/f")) != number)
	}
	b.undo("sealed/f")
	if got := b.content("sealed/f"); got != "a\n" {
		t.Errorf("after undo in a sealed directory: got %q", got)
	}
	if err := os.Chmod(b.path("closed"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, want := b.names(), "closed closed/f fixed open open/f sealed sealed/f sealed/fixed secret"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestForeignFile edits a file that others may write: a new file would be the editor's own.
func TestForeignFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	path := b.write("f", "a\n", 0o666)
	b.giveAway()
	uid := os.Geteuid()
	if uid == 0 {
		uid = 1234
		if err := os.Chown(path, uid, 4321); err != nil {
			t.Fatal(err)
		}
	}
	b.replace("f", "a", "b")
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil || int(stat.Uid) != uid {
		t.Errorf("the file belongs to %d, want %d", stat.Uid, uid)
	}
	if got := b.content("f"); got != "b\n" || b.names() != "f" {
		t.Errorf("got %q, beside %s", got, b.names())
	}
}

// TestFlushFails stands for a disk that takes the bytes and then says that it has no room, as delayed allocation does.
func TestFlushFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("f", "a\n", 0o640)
	b.write("linked", "a\n", 0o640)
	if err := os.Link(b.path("linked"), b.path("twin")); err != nil {
		t.Fatal(err)
	}
	b.SetFlush(func(*os.File) error { return &os.PathError{Op: "fsync", Err: unix.ENOSPC} })
	before := b.names()
	for _, name := range []string{"f", "linked"} {
		path := b.path(name)
		for _, c := range []edit.Command{
			{Name: "str_replace", Path: path, OldStr: new("a"), NewStr: new("much longer")},
			{Name: "str_replace", Path: path, OldStr: new("a"), NewStr: new("")},
			{Name: "insert", Path: path, InsertLine: new("0"), NewStr: new("x")},
			{Name: "create", Path: path + ".d/e/new", FileText: new("x")},
		} {
			_, err := b.Do(c)
			wantCode(t, err, edit.CodeNoSpace)
			if want := "Ran into [Errno 28] No space left on device: '" + c.Path + "' while trying to write to " + c.Path; err.Error() != want {
				t.Errorf("got %q, want %q", err, want)
			}
		}
		if got := b.content(name); got != "a\n" || b.mode(name) != 0o640 {
			t.Errorf("%s became %q, mode %v", name, got, b.mode(name))
		}
		_, err := b.Do(edit.Command{Name: "undo_edit", Path: path})
		wantCode(t, err, edit.CodeNoHistory)
	}
	if after := b.names(); after != before {
		t.Errorf("left behind: %s, had %s", after, before)
	}
}

// TestFullDisk lets writes fail half way: the kernel refuses to let files grow beyond a limit. The limit holds for a
// whole process, so this is one of its own.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	text := strings.Repeat("0123456789abcdef", 256) // exactly the limit
	b.write("f", text, 0o644)
	b.write("linked", text, 0o644)
	if err := os.Link(b.path("linked"), b.path("twin")); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, limitEnv, b.dir)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"f", "twin"} {
		if got := b.content(name); got != text {
			t.Errorf("%s was damaged: %d bytes, want %d", name, len(got), len(text))
		}
	}
	if got, want := b.names(), "f linked twin"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func editUnderLimit(dir string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	signal.Ignore(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: 4096}); err != nil {
		return fail(err)
	}
	e, err := edit.New(edit.Config{})
	if err != nil {
		return fail(err)
	}
	long := strings.Repeat("x", 6000)
	for _, name := range []string{"f", "linked", "new"} {
		path := filepath.Join(dir, name)
		if _, err := e.Write(path, "/", long, 0, -1); err == nil || !strings.Contains(err.Error(), "[Errno 27] File too large") {
			return fail(fmt.Errorf("writing %s: got %w, want a refusal to grow", name, err))
		}
	}
	return 0
}

// TestChangedMeanwhile changes the file behind the editor's back after it was read.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	calls := 0
	var meddle func()
	b := newBench(t)
	b.SetAs(func(work func() error) error {
		if calls++; calls == 4 { // find, look, read; then write
			meddle()
		}
		return work()
	})
	path := b.write("f", "a b\n", 0o644)
	meddle = func() {
		if err := os.WriteFile(path, []byte("a b and more\n"), 0o644); err != nil {
			t.Error(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
	}
	_, err := b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: new("b"), NewStr: new("B")})
	wantCode(t, err, edit.CodeConflict)
	if got := b.content("f"); got != "a b and more\n" || b.names() != "f" {
		t.Errorf("got %q, beside %s", got, b.names())
	}
}

// TestTwoClients lets many clients edit one file by three of its names. Nothing is lost.
func TestTwoClients(t *testing.T) {
	t.Parallel()
	const clients, edits = 6, 15
	b := newBench(t)
	b.SetFlush(func(*os.File) error { return nil })
	b.write("f", "", 0o644)
	b.link("link", "f")
	if err := os.Link(b.path("f"), b.path("twin")); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			name := []string{"f", "link", "twin"}[client%3]
			for i := range edits {
				line := fmt.Sprintf("%d.%d", client, i)
				if _, err := b.Do(edit.Command{Name: "insert", Path: b.path(name), InsertLine: new("0"), NewStr: &line}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got := b.content("f")
	for client := range clients {
		for i := range edits {
			if line := fmt.Sprintf("%d.%d\n", client, i); !strings.Contains("\n"+got, "\n"+line) {
				t.Errorf("%q is lost", line)
			}
		}
	}
	if n := strings.Count(got, "\n"); n != clients*edits {
		t.Errorf("got %d lines, want %d", n, clients*edits)
	}
}

// TestTwoCreators lets many clients create one file. One does, and the others are told.
func TestTwoCreators(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for client := range 8 {
		all.Go(func() {
			_, err := b.Do(edit.Command{Name: "create", Path: b.path("d/f"), FileText: new(fmt.Sprint(client))})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if e, ok := errors.AsType[*edit.Error](err); !ok || e.Code != edit.CodeAlreadyExists {
				t.Errorf("got %v, want %s", err, edit.CodeAlreadyExists)
			}
		})
	}
	all.Wait()
	if made != 1 || b.names() != "d d/f" {
		t.Errorf("%d were made, there is %s", made, b.names())
	}
}
