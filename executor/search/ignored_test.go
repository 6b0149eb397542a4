package search_test

import (
	"path/filepath"
	"testing"

	"github.com/actiond/actiond/executor/search"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestIgnored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		".geminiignore":      "foo.*\nignored/\n!foo.keep\n",
		".gitignore":         "*.log\n",
		"repo/.git/HEAD":     "",
		"repo/.gitignore":    "*.log\n/build\n",
		"repo/.geminiignore": "secret\n",
	} {
		testhelp.WriteFile(t, filepath.Join(dir, name), text, 0o600)
	}
	s := search.New(search.Config{})
	for name, want := range map[string]bool{
		"foo.bar":             true,
		"sub/foo.bar":         true,
		"foo.keep":            false,
		"ignored/x":           true,
		"ignored":             false, // a file of that name
		"a.log":               false, // no repository
		"repo/a.log":          true,
		"repo/sub/a.log":      true,
		"repo/build/x":        true,
		"repo/sub/build/x":    false,
		"repo/secret":         true,
		"repo/plain":          false,
		"nothing/at/all":      false,
		"repo/sub/../a.log":   true,
		"repo/.git/HEAD":      false,
		"repo/sub/secret/key": true,
	} {
		if got := s.Ignored(dir + "/" + name); got != want {
			t.Errorf("%s: got %t, want %t", name, got, want)
		}
	}
}
