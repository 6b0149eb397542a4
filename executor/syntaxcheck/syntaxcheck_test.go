package syntaxcheck_test

import (
	"os/exec"
	"testing"

	"github.com/actiond/actiond/executor/syntaxcheck"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, path, before, after string
		want                      string
		known                     bool
	}{
		{"Go", "a.go", "package a\n", "package a\nfunc {\n", "\nLinting issues found in the changes:\n- Line 2, Column 6: expected 'IDENT', found '{'\n", true},
		{"Go that is well", "a.go", "package a\nfunc {\n", "package a\n", "\nNo linting issues found in the changes.\n", true},
		{"what was wrong before", "a.json", "{\n", "\n\n{", "\nNo linting issues found in the changes.\n", true},
		{"JSON", "a.JSON", "{}", "{\n  \"a\": 1,\n}", "\nLinting issues found in the changes:\n- Line 3, Column 1: invalid character '}' looking for beginning of object key string\n", true},
		{"nothing at all", "a.json", "{}", "", "\nLinting issues found in the changes:\n- Line 1, Column 1: unexpected end of JSON input\n", true},
		{"another language", "a.txt", "", "{", "\nNo linting issues found in the changes.\n", false},
	} {
		issues, known := syntaxcheck.New(t.Context(), test.path, test.before, test.after, nil)
		if got := syntaxcheck.Format(issues); got != test.want || known != test.known {
			t.Errorf("%s: got %q and %t, want %q", test.name, got, known, test.want)
		}
	}
}

func TestPython(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	issues, known := syntaxcheck.New(t.Context(), "a.py", "x = 1\n", "x = 1\ndef f(:\n  pass\nprint('not run')\n", nil)
	if !known || len(issues) != 1 || issues[0].Line != 2 || issues[0].Message == "" {
		t.Errorf("got %+v and %t", issues, known)
	}
	for _, well := range []string{"import os\nos._exit(1)\n", "", "x = 'é'\n"} {
		if issues, known := syntaxcheck.New(t.Context(), "a.py", "", well, nil); !known || len(issues) > 0 {
			t.Errorf("%q: got %+v and %t", well, issues, known)
		}
	}
	if issues, known := syntaxcheck.New(t.Context(), "a.py", "", "x = '\x00'\n", nil); !known || len(issues) != 1 {
		t.Errorf("a NUL: got %+v and %t", issues, known)
	}
}
