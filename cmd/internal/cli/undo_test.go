package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

// A project is broken in several ways and brought back, by a real server.
func TestUndo(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	const listing = `find . -printf '%p %y %m %T@ %l\n' | grep -v '^\. ' | sort; cat src/*; stat -c %Y .`
	sh := func(line string) string {
		t.Helper()
		return m.ok("exec", "box", "--", "sh", "-c", line)
	}
	same := func(what, want string) {
		t.Helper()
		if got := sh(listing); got != want {
			t.Errorf("%s: got %s\nwant %s", what, got, want)
		}
	}
	sh("mkdir -p src/sub; for i in 1 2 3; do echo line $i > src/f$i; done; touch -d 2001-02-03 src/f2; chmod 700 src/f1; ln -s f1 src/sub/link")
	whole := sh(listing)
	if got := m.ok("checkpoint", "box", "whole"); got != "whole\n" {
		t.Errorf("got %q", got)
	}

	sh("rm -rf src")
	if got := m.ok("undo", "box"); !strings.Contains(got, "created   src/f1\n") {
		t.Errorf("got %s", got)
	}
	same("undo", whole)
	m.ok("undo", "box") // of the undo
	if got := sh("ls"); got != "" {
		t.Errorf("undo of undo: there is %q", got)
	}
	m.ok("restore", "box", "whole")
	same("restore", whole)

	sh("sed -i s/line/LINE/ src/f*; mv src/sub src/other")
	m.ok("restore", "--path", "src/f1", "box", "whole")
	if got := sh("cat src/f1 src/f2; ls src"); got != "line 1\nLINE 2\nf1\nf2\nf3\nother\n" {
		t.Errorf("restore of a path: got %q", got)
	}
	m.ok("restore", "--dry-run", "box", "whole")
	if got := sh("ls src"); !strings.Contains(got, "other") {
		t.Errorf("a dry run changed something: %q", got)
	}
	m.ok("restore", "box", "whole")
	same("restore of all", whole)

	if code, stdout, _ := m.run("attempt", "--keep-if-succeeds", "box", "--", "sh", "-c", "echo no; rm src/f2; exit 4"); code != 4 || stdout != "no\n" {
		t.Errorf("attempt: exit code %d, %q", code, stdout)
	}
	same("attempt", whole)
	m.ok("attempt", "box", "--", "rm", "src/f2")
	if code, _, stderr := m.run("attempt", "box", "--", "true"); code != 125 || !strings.Contains(stderr, "is open") {
		t.Errorf("second attempt: exit code %d, %q", code, stderr)
	}
	m.ok("attempt", "box", "--discard")
	same("discard", whole)
	m.ok("attempt", "--keep-if-succeeds", "box", "--", "rm", "src/f2")
	if got := sh("ls src"); got != "f1\nf3\nsub\n" {
		t.Errorf("keep: got %q", got)
	}
	m.ok("restore", "box", "whole")

	for i := range 9 {
		sh(fmt.Sprintf("echo %d >> src/f3; test %d != 5 || echo broken >> src/f1", i, i))
	}
	present := sh(listing)
	var log []api.ChangeEntry
	if err := json.Unmarshal([]byte(m.ok("changes", "-o", "json", "box")), &log); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := m.run("bisect", "--good", "whole", "--bad", fmt.Sprint(*log[0].N), "box", "--", "sh", "-c", "touch litter; ! grep -q broken src/f1")
	if want := fmt.Sprintf("action %d is the first bad one", *log[3].N); code != 0 || !strings.HasPrefix(stdout, want) || !strings.Contains(stdout, "modified src/f1") {
		t.Errorf("bisect: exit code %d, %q, %q, want %q", code, stdout, stderr, want)
	}
	same("bisect", present)
	if code, stdout, stderr := m.run("undo", "--only", "box", fmt.Sprint(*log[3].N)); code != 1 || !strings.Contains(stdout, "modified   src/f1") || !strings.Contains(stderr, "refused: src/f3: ") {
		t.Errorf("undo --only: exit code %d, %q, %q", code, stdout, stderr)
	}
	m.ok("checkpoint", "--remove", "whole", "box")
	if code, _, _ := m.run("restore", "box", "whole"); code != 3 {
		t.Errorf("removed: exit code %d", code)
	}
}

// The output of diff turns the files before an action into those after it.
func TestDiffOfAction(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip(err)
	}
	m := newLocalMachine(t)
	work := filepath.Join(m.dir, "local", strings.TrimSpace(m.ok("create", "--name", "box")), "work")
	sh := func(line string) { m.ok("exec", "box", "--", "sh", "-c", line) }
	sh(`seq 100 > a; seq 100 > b; printf "no end" > c; echo gone > "d e"; echo with > "with a blank"; printf 'x\r\n\033[2J\n' > f; echo old > g`)
	before := t.TempDir()
	if err := os.CopyFS(before, os.DirFS(work)); err != nil {
		t.Fatal(err)
	}
	sh(`sed -i -e 5d -e s/50/fifty/ -e '$a end' a; mv b z; echo >> c; rm "d e"; echo 2 >> "with a blank"; mkdir -p n/m; printf 'two\nlines' > n/m/new; printf 'y\r\n' >> f; mv g h; echo more >> h`)
	diff := m.ok("diff", "box")
	cmd := exec.CommandContext(t.Context(), git, "apply", "--unidiff-zero", "-")
	cmd.Dir, cmd.Stdin = before, strings.NewReader(diff)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, said, diff)
	}
	if got, want := filesIn(t, before), filesIn(t, work); !maps.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// filesIn are the contents of the files below a directory.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A watch begins where it is told to, and goes on with what changes until Ctrl-C.
func TestWatch(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	m.ok("checkpoint", "box", "begin")
	m.ok("exec", "box", "--", "sh", "-c", "mkdir src; echo > src/first")
	y := m.onTerminal("changes", "--watch", "--since", "begin", "--path", "src", "box")
	y.shows("created   src/first\r\n")
	m.ok("exec", "box", "--", "sh", "-c", "echo > other; rm src/first; echo > \"$(printf 'src/a\\033b')\"")
	y.shows(`created   src/a\x1bb` + "\r\n")
	y.shows("deleted   src/first\r\n")
	y.types("\x03")
	y.ends(0)
}
