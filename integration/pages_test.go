//go:build integration

package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/testhelp"
)

// fence finds the blocks of code of a page: a comment before one that is not run, its
// language and its text.
var fence = regexp.MustCompile("(?ms)^(<!-- not run: .*? -->\n)?```([a-z]+)\n(.*?)^```$")

// TestPages types in what the pages for newcomers say, each in one shell with a home and a state directory of its
// own, and the programs found by PATH alone. The lines of a block of text are those that the block before it prints;
// "…" stands for anything.
func TestPages(t *testing.T) { //nolint:tparallel // one page after the other: they use the ports that are the defaults
	t.Parallel()
	server, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	program, err := cliProgram()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for name, from := range map[string]string{"server": server, "runtimectl": program} {
		data := testhelp.ReadFile(t, from)
		testhelp.WriteFile(t, filepath.Join(bin, name), data, 0o755)
	}
	pages := []string{"../README.md"}
	for _, dir := range []string{"start", "guides", "migrate"} {
		found, err := filepath.Glob("../docs/" + dir + "/*.md")
		if err != nil || len(found) == 0 {
			t.Fatal(dir, err)
		}
		pages = append(pages, found...)
	}
	packages, err := filepath.Abs("../clients/python/src")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			data := testhelp.ReadFile(t, page)
			home, err := os.MkdirTemp("", "page") //nolint:usetesting // a socket's path must be short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(home) })
			text := strings.ReplaceAll(string(data), "debian:bookworm", image(t, debianImage))
			env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+home, "ACTIOND_STATE_DIR="+home+"/state",
				"ACTIOND_SERVER=", "TMPDIR="+home, "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
			typeIn(t, home, env, text)
			list := exec.Command(bin+"/runtimectl", "ls", "-q")
			list.Env = env
			if left, err := list.CombinedOutput(); err != nil || len(left) > 0 {
				t.Errorf("the page leaves sandboxes: %s (%v)", left, err)
			}
		})
	}
}

// typeIn runs the blocks of a page in one shell, and compares what they print.
func typeIn(t *testing.T, dir string, env []string, page string) {
	t.Helper()
	const mark = "=== a block of the page ===\n"
	var script strings.Builder
	script.WriteString("set -em\nexec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null || :; wait' EXIT\n")
	var wants []string
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		switch skipped, language, code := block[1] != "", block[2], block[3]; {
		case skipped:
		case language == "sh":
			script.WriteString("printf '" + strings.TrimSuffix(mark, "\n") + "\\n'\n" + code)
			wants = append(wants, "")
		case language == "python":
			script.WriteString("printf '" + strings.TrimSuffix(mark, "\n") + "\\n'\npython3 - <<'END OF THE BLOCK'\n" + code + "END OF THE BLOCK\n")
			wants = append(wants, "")
		case language == "text":
			wants[len(wants)-1] += code
		}
	}
	if len(wants) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &out, &out
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	printed := strings.Split(out.String(), mark)
	if err != nil || len(printed) != len(wants)+1 {
		t.Fatalf("%v, after %d of %d blocks:\n%s", err, len(printed)-1, len(wants), out.String())
	}
	for i, want := range wants {
		for line := range strings.Lines(want) {
			parts := strings.Split(strings.TrimSuffix(line, "\n"), "…")
			for j := range parts {
				parts[j] = regexp.QuoteMeta(parts[j])
			}
			if expression := fmt.Sprintf(`(?m)^%s\s*,?$`, strings.Join(parts, ".*")); !regexp.MustCompile(expression).MatchString(printed[i+1]) {
				t.Errorf("block %d does not print %q, but\n%s", i+1, line, printed[i+1])
			}
		}
	}
}
