package edit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// TestTrailingSlash: a path that ends with a slash names a directory, and no file is made there; a file that is there is
// found by it, as ever.
func TestTrailingSlash(t *testing.T) {
	t.Parallel()
	e, dir := newEditor(t, edit.Config{}), t.TempDir()
	text := "new\n"
	stage := func(path string) error {
		in, err := e.Stage(path)
		if err == nil {
			in.Discard()
		}
		return err
	}
	for name, do := range map[string]func(path string) error{
		"create": func(path string) error {
			_, err := e.Do(edit.Command{Name: "create", Path: path, FileText: &text})
			return err
		},
		"write":  func(path string) error { _, err := e.Write(path, dir, text, 0, -1); return err },
		"exact":  func(path string) error { _, err := e.WriteExact("", path, dir, text, 0, -1); return err },
		"gemini": func(path string) error { _, err := e.Overwrite(path, dir, text, ""); return err },
		"whole":  stage,
		"replace": func(path string) error {
			_, err := e.Do(edit.Command{Dialect: edit.Gemini, Name: "replace", Dir: dir, Path: path, OldStr: new(string), NewStr: &text})
			return err
		},
	} {
		at := filepath.Join(dir, name)
		for _, path := range []string{at + "/", at + "//", at + "/sub/"} {
			wantCode(t, do(path), edit.CodeIsDirectory)
		}
		if _, err := os.Lstat(at); err == nil {
			t.Errorf("%s made something", name)
		}
		if err := do(at); err != nil {
			t.Errorf("%s without a slash: %v", name, err)
		}
	}
	if _, err := e.Write(filepath.Join(dir, "write")+"/", dir, text, 0, -1); err != nil {
		t.Errorf("a file that is there: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "write")); err != nil || info.Mode()&fs.ModeType != 0 {
		t.Errorf("got %v, %v", info, err)
	}
}
