package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestHelp compares what every command says of itself with testdata/help.
// UPDATE=1 rewrites it.
func TestHelp(t *testing.T) {
	t.Parallel()
	p := newProgram(output.Streams{})
	golden := map[string]bool{}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		words := strings.Fields(c.CommandPath())
		name := strings.Join(words, "-") + ".txt"
		if strings.Contains(name, "-completion") { // the library's
			return
		}
		golden[name] = true
		code, got, stderr := inProcess(t.Context(), nil, append(words[1:], "--help")...)
		if code != 0 || stderr != "" {
			t.Errorf("%s --help: exit code %d, %s", c.CommandPath(), code, stderr)
		}
		checkGolden(t, filepath.Join("testdata", "help", name), got)
		if c.HasParent() && c.Runnable() && c.Name() != "version" && (c.Example == "" || c.Long == "") {
			t.Errorf("%s has no example, or no words of its own", c.CommandPath())
		}
		for line := range strings.SplitSeq(got, "\n") {
			if utf8.RuneCountInString(line) > 80 {
				t.Errorf("%s --help: a line of %d columns: %s", c.CommandPath(), len(line), line)
			}
		}
	}
	visit(p.root())
	entries, err := os.ReadDir("testdata/help")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !golden[e.Name()] {
			t.Errorf("testdata/help/%s is of no command", e.Name())
		}
	}
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE") == "1" {
		testhelp.WriteFile(t, file, got, 0o644)
		return
	}
	want := testhelp.ReadFile(t, file)
	if got != string(want) {
		t.Errorf("%s is not what it was; 'make update' rewrites it:\n%s", file, got)
	}
}
