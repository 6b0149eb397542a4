package executor_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// The answers of searches, word by word.
func TestSearchWords(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	at := time.Now()
	for _, name := range []string{"b.go", "a.go", "sub/c.go"} {
		path := filepath.Join(dir, name)
		text := "package x\n\nfunc F() {}\n"
		testhelp.WriteFile(t, path, text, 0o644)
		at = at.Add(-time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	bin := t.TempDir()
	testhelp.WriteFile(t, filepath.Join(bin, "long"), strings.Repeat("x", 3000)+"needle", 0o644)
	if err := errors.Join(os.WriteFile(filepath.Join(bin, "bin"), []byte("\x00zzz\n"), 0o644), os.Symlink(filepath.Join(dir, "a.go"), filepath.Join(bin, "link")),
		os.Symlink("loop", filepath.Join(bin, "loop"))); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		action api.Action
		want   api.Observation
	}{
		{"glob", api.GlobAction{Pattern: "**/*.go"}, api.SearchObservation{Action: "glob", Path: dir, Count: 3, Content: "ROOT/b.go\nROOT/a.go\nROOT/sub/c.go", Files: []string{"ROOT/b.go", "ROOT/a.go", "ROOT/sub/c.go"}}},
		{"glob of OpenHands", api.GlobAction{Pattern: "a.*", Dialect: api.DialectOpenHandsV1}, api.SearchObservation{Action: "glob", Path: dir, Count: 1, Content: "Found 1 file(s) matching pattern 'a.*' in 'ROOT':\nROOT/a.go", Files: []string{"ROOT/a.go"}}},
		{"glob nothing", api.GlobAction{Pattern: "*.rs", Path: "sub"}, api.SearchObservation{Action: "glob", Path: dir + "/sub", Content: `No files in ROOT/sub match "*.rs".`}},
		{"glob nowhere", api.GlobAction{Pattern: "*", Path: "/nope"}, api.ErrorObservation{Code: "file_not_found", Content: "There is no file or directory /nope."}},
		{"grep", api.GrepAction{Pattern: "func", Path: "sub"}, api.SearchObservation{Action: "grep", Path: dir + "/sub", Count: 1, Content: "File: ROOT/sub/c.go\nL1- package x\nL2- \nL3: func F() {}"}},
		{"grep without context", api.GrepAction{Pattern: "func", After: new(0), Include: "[ab].go"}, api.SearchObservation{Action: "grep", Path: dir, Count: 2, Content: "File: ROOT/b.go\nL3: func F() {}\n\nFile: ROOT/a.go\nL3: func F() {}"}},
		{"grep for names", api.GrepAction{Pattern: "FUNC", IgnoreCase: true, NamesOnly: true}, api.SearchObservation{Action: "grep", Path: dir, Count: 3, Content: "ROOT/b.go\nROOT/a.go\nROOT/sub/c.go", Files: []string{"ROOT/b.go", "ROOT/a.go", "ROOT/sub/c.go"}}},
		{"grep some", api.GrepAction{Pattern: "func", Limit: 1, After: new(0)}, api.SearchObservation{Action: "grep", Path: dir, Count: 1, Truncated: true, Content: "File: ROOT/b.go\nL3: func F() {}\n[These are the first 1: there may be more. Use a narrower pattern or a smaller directory.]"}},
		{"grep nothing", api.GrepAction{Pattern: "zzz"}, api.SearchObservation{Action: "grep", Path: dir, Content: `Nothing in ROOT matches "zzz".`}},
		{"glob of a directory", api.GlobAction{Pattern: "sub"}, api.SearchObservation{Action: "glob", Path: dir, Content: "No files in ROOT match \"sub\".\n[It is a directory: the files below it match \"sub/**\".]"}},
		{"glob of a class", api.GlobAction{Pattern: "[x]*"}, api.SearchObservation{Action: "glob", Path: dir, Content: "No files in ROOT match \"[x]*\".\n[Brackets mean one of the characters in them: write \\[ and \\] for brackets in a name.]"}},
		{"grep of lines", api.GrepAction{Pattern: `x\nfunc`}, api.SearchObservation{Action: "grep", Path: dir, Content: "Nothing in ROOT matches \"x\\\\nfunc\".\n[The search goes line by line: a pattern with a line end, such as \\n, matches nothing.]"}},
		{"grep in basic syntax", api.GrepAction{Pattern: `func\|var`}, api.SearchObservation{Action: "grep", Path: dir, Content: "Nothing in ROOT matches \"func\\\\|var\".\n[The pattern is in RE2's syntax: write | for alternatives, ( ) for groups, \\b at the ends of words; with a backslash they are characters.]"}},
		{"grep a long line", api.GrepAction{Pattern: "needle", Path: bin + "/long"}, api.SearchObservation{Action: "grep", Path: bin + "/long", Count: 1, Content: "File: " + bin + "/long\nL1: [cut] ..." + strings.Repeat("x", 200) + "needle"}},
		{"grep a file that is not text", api.GrepAction{Pattern: "zzz", Path: bin + "/bin"}, api.SearchObservation{Action: "grep", Path: bin + "/bin", Content: "Nothing in " + bin + "/bin matches \"zzz\".\n[The file is not text: at most its part before the first zero byte was searched.]"}},
		{"grep a link", api.GrepAction{Pattern: "func", Path: bin + "/link", After: new(0)}, api.SearchObservation{Action: "grep", Path: bin + "/link", Count: 1, Content: "File: " + bin + "/link\nL3: func F() {}"}},
		{"grep a link to itself", api.GrepAction{Pattern: "zzz", Path: bin + "/loop"}, api.ErrorObservation{Code: "invalid_argument", Content: bin + "/loop cannot be read: too many levels of symbolic links."}},
		{"grep nowhere", api.GrepAction{Pattern: "zzz", Path: "nope"}, api.ErrorObservation{Code: "file_not_found", Content: "There is no file or directory ROOT/nope."}},
		{"list", api.ListAction{Ignore: []string{"a*"}}, api.SearchObservation{Action: "list_directory", Path: dir, Count: 2, Content: "[DIR] sub\nb.go (23 bytes)\n(1 ignored)"}},
		{"list two levels", api.ListAction{Recursive: true, Ignore: []string{"a*"}}, api.SearchObservation{Action: "list_directory", Path: dir, Count: 3, Content: "[DIR] sub\nsub/c.go (23 bytes)\nb.go (23 bytes)\n(1 ignored)"}},
		{"list a file", api.ListAction{Path: "a.go"}, api.ErrorObservation{Code: "invalid_argument", Content: "ROOT/a.go is not a directory."}},
	}
	for _, tt := range tests {
		o, err := e.Do(t.Context(), api.Request{Action: tt.action})
		switch want := tt.want.(type) {
		case api.SearchObservation:
			want.Content = strings.ReplaceAll(want.Content, "ROOT", dir)
			for i, file := range want.Files {
				want.Files[i] = strings.ReplaceAll(file, "ROOT", dir)
			}
			tt.want = want
		case api.ErrorObservation:
			want.Content = strings.ReplaceAll(want.Content, "ROOT", dir)
			tt.want = want
		default:
		}
		if err != nil || !reflect.DeepEqual(o, tt.want) {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, o, err, tt.want)
		}
	}
}

// A search sees what the user may see, also with ripgrep, which is started as
// the user.
func TestSearchHasTheUsersRights(t *testing.T) {
	t.Parallel()
	user := other(t)
	dir := testhelp.PublicDir(t)
	write := func(name string, mode os.FileMode, text string) {
		testhelp.WriteFile(t, filepath.Join(dir, name), text, mode)
	}
	write("open.txt", 0o644, "secret")
	write("closed.txt", 0o600, "secret")
	write("closed/inside.txt", 0o644, "secret")
	write("large.txt", 0o644, strings.Repeat("nothing to see here\n", 500_000))
	if err := os.Chmod(filepath.Join(dir, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := executor.New(t.Context(), executor.Config{WorkingDir: dir, User: user})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for _, tt := range []struct {
		action api.Action
		want   string
	}{
		{api.GrepAction{Pattern: "secret", NamesOnly: true}, dir + "/open.txt"},
		{api.GlobAction{Pattern: "*/*"}, "No files in " + dir + ` match "*/*".`},
	} {
		o, err := e.Do(t.Context(), api.Request{Action: tt.action})
		if err != nil || o.(api.SearchObservation).Content != tt.want {
			t.Errorf("%+v: got %+v, %v, want %q", tt.action, o, err, tt.want)
		}
	}
	for _, action := range []api.Action{api.ListAction{Path: "closed"}, api.GrepAction{Pattern: "secret", Path: "closed.txt"}} {
		o, err := e.Do(t.Context(), api.Request{Action: action})
		if failed, ok := o.(api.ErrorObservation); err != nil || !ok || failed.Code != "permission_denied" {
			t.Errorf("%+v: got %+v, %v", action, o, err)
		}
	}
}
