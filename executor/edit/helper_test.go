package edit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// limitEnv makes this test binary the program of TestFullDisk.
const limitEnv = "EDIT_TEST_FILE_LIMIT_DIR"

func TestMain(m *testing.M) {
	unix.Umask(0o022) // modes of new files are compared
	if dir := os.Getenv(limitEnv); dir != "" {
		os.Exit(editUnderLimit(dir))
	}
	if state := os.Getenv(crashEnv); state != "" && os.Args[1] == "edits" {
		os.Exit(editAndDie(state, os.Args[2]))
	} else if state != "" {
		os.Exit(crashInPlace(state, os.Args[1], os.Args[2]))
	}
	os.Exit(m.Run())
}

// bench is an editor with a directory to work in.
type bench struct {
	*edit.Editor
	t   testing.TB
	dir string
}

func newBench(tb testing.TB, configure ...func(*edit.Config)) *bench {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	c := edit.Config{Root: dir, StateDir: filepath.Join(tb.TempDir(), "state")}
	for _, f := range configure {
		f(&c)
	}
	return &bench{Editor: newEditor(tb, c), t: tb, dir: dir}
}

// newEditor returns an editor, with a store of contents if it has a state directory.
func newEditor(tb testing.TB, c edit.Config) *edit.Editor {
	tb.Helper()
	if c.StateDir != "" && c.Contents == nil {
		c.Contents = contentsIn(c.StateDir, 0)
		tb.Cleanup(func() { closeContents(tb, c.StateDir) })
	}
	e, err := edit.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// stores are the open stores of contents by state directory, each of which editors share.
var (
	storesMu sync.Mutex
	stores   = map[string]*store.Store{}
)

func contentsIn(state string, bound int64) func() (*store.Store, error) {
	return func() (s *store.Store, err error) {
		storesMu.Lock()
		defer storesMu.Unlock()
		if stores[state] == nil {
			if s, err = store.Open(store.Config{Dir: filepath.Join(state, "contents"), MaxBytes: bound}); err != nil {
				return nil, err
			}
			stores[state] = s
		}
		return stores[state], nil
	}
}

// closeContents closes the store of a state directory, as the end of its process does.
func closeContents(tb testing.TB, state string) {
	tb.Helper()
	storesMu.Lock()
	defer storesMu.Unlock()
	if s := stores[state]; s != nil {
		delete(stores, state)
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) write(name, content string, mode fs.FileMode) string {
	b.t.Helper()
	path := b.path(name)
	testhelp.WriteFile(b.t, path, content, 0o644)
	if err := os.Chmod(path, mode); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *bench) content(name string) string {
	b.t.Helper()
	data := testhelp.ReadFile(b.t, b.path(name))
	return string(data)
}

func (b *bench) mode(name string) fs.FileMode {
	b.t.Helper()
	info, err := os.Lstat(b.path(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return info.Mode()
}

// do carries out a command that must succeed and be undoable.
func (b *bench) do(c edit.Command) edit.Result {
	b.t.Helper()
	r, err := b.Do(c)
	if err != nil {
		b.t.Fatalf("%s %s: %v", c.Name, c.Path, err)
	}
	if r.HistoryErr != nil {
		b.t.Fatalf("%s %s: %v", c.Name, c.Path, r.HistoryErr)
	}
	return r
}

func (b *bench) replace(name, old, replacement string) edit.Result {
	b.t.Helper()
	return b.do(edit.Command{Name: "str_replace", Path: b.path(name), OldStr: &old, NewStr: &replacement})
}

// Remove removes a file by a patch.
func (b *bench) Remove(path string) (edit.Result, error) {
	return b.Patch(b.dir, "*** Begin Patch\n*** Delete File: "+path+"\n*** End Patch")
}

func (b *bench) undo(name string) edit.Result {
	b.t.Helper()
	return b.do(edit.Command{Name: "undo_edit", Path: b.path(name)})
}

// names lists what is in the directory, to see that nothing is left behind.
func (b *bench) names() string {
	b.t.Helper()
	var names []string
	err := filepath.WalkDir(b.dir, func(path string, _ fs.DirEntry, err error) error {
		if path != b.dir {
			names = append(names, strings.TrimPrefix(path, b.dir+"/"))
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(names, " ")
}

// wantCode checks that an error is one of ours with a code and a message for the agent.
func wantCode(t *testing.T, err error, code edit.Code) {
	t.Helper()
	e, ok := errors.AsType[*edit.Error](err)
	if !ok {
		t.Fatalf("got error %v, want one with code %s", err, code)
	}
	if e.Code != code || e.Message == "" {
		t.Fatalf("got code %s (%s), want %s", e.Code, e.Message, code)
	}
}

// nobody is a user without the powers of root, such as that of a sandbox; the user of this process where it has none.
func nobody() *identity.User {
	if os.Geteuid() != 0 {
		return nil
	}
	return &identity.User{Name: "nobody", UID: 65534, GID: 65534}
}

// giveAway makes everything under the directory belong to nobody.
func (b *bench) giveAway() {
	b.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	for dir := b.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the test's own directory is private
			b.t.Fatal(err)
		}
	}
	err := filepath.WalkDir(b.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, 65534, 65534)
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no inode number")
	}
	return stat.Ino
}

// run calls this test binary again with an environment variable set.
func run(t *testing.T, variable, value string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), variable+"="+value)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (b *bench) link(name, target string) string {
	b.t.Helper()
	if err := os.Symlink(target, b.path(name)); err != nil {
		b.t.Fatal(err)
	}
	return b.path(name)
}

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// numberedLines is a text of lines that say their numbers.
func numberedLines(word string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s %d\n", word, i+1)
	}
	return b.String()
}
