package proc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/testhelp"
)

func TestEnvPath(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		env  []string
		want string
	}{
		{"none", []string{"HOME=/", "XPATH=/x", "PATHS=/y"}, "/fallback"},
		{"one", []string{"PATH=/a:/b", "HOME=/"}, "/a:/b"},
		{"several", []string{"PATH=/a", "PATH=/b"}, "/b"},
		{"an empty one", []string{"PATH="}, ""},
	} {
		if got := proc.EnvPath(test.env, "/fallback"); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestLookPath(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name string, mode os.FileMode) {
		testhelp.WriteFile(t, filepath.Join(root, name), "", mode)
	}
	write("one/p", 0o700)
	write("two/p", 0o700)
	write("text/p", 0o600)
	write("directory/p/x", 0o600)
	write("linked/elsewhere", 0o700)
	for link, to := range map[string]string{"linked/p": "elsewhere", "dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	in := func(dir string) string { return filepath.Join(root, dir) }
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, in("one"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, program, path, want string }{
		{"the first one", "p", in("one") + ":" + in("two"), in("one/p")},
		{"what cannot be run is passed over", "p", in("none") + ":" + in("text") + ":" + in("directory") + ":" + in("two"), in("two/p")},
		{"a link", "p", in("linked"), in("linked/p")},
		{"a link to nothing", "dangling", root, ""},
		{"another name", "q", in("one"), ""},
		{"a relative directory", "p", relative, ""},
		{"no directories", "p", "", ""},
	} {
		if got := proc.LookPath(test.program, test.path); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
