package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/testhelp"
)

// changed are changes of each kind.
var changed = api.Changes{Exact: true, Paths: []api.ChangedPath{
	{Op: "created", Path: "d"},
	{Op: "created", Path: "d/new", Diff: "@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n", Lines: &[2]int{2, 0}},
	{Op: "created", Path: "empty", Lines: &[2]int{0, 0}},
	{Op: "deleted", Path: "very old", Diff: "@@ -1 +0,0 @@\n-gone\n", Lines: &[2]int{0, 1}},
	{Op: "modified", Path: "f", Diff: "@@ -1,3 +1,3 @@ func x\n a\n-b\n+B\t\n c\n", Lines: &[2]int{1, 1}},
	{Op: "renamed", From: "from", Path: "to", Lines: nil},
	{Op: "renamed", From: "from2", Path: "to2"},
	{Op: "modified", Path: "to2", Diff: "@@ -1 +1 @@\n-2\n+3\n", Lines: &[2]int{1, 1}},
	{Op: "modified", Path: `a"ü` + "\x1b", Diff: "@@ -1 +1 @@\n-x\n+\x1b[2J\r\n", Lines: &[2]int{1, 1}},
	{Op: "modified", Path: "big", Content: "large"},
	{Op: "meta", Path: "mode"},
}}

func patchOf(t *testing.T, c *api.Changes, person bool) string {
	t.Helper()
	var out bytes.Buffer
	if err := (&patch{to: &out, person: person}).changes(c); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPatch(t *testing.T) {
	t.Parallel()
	const want = `diff --git a/d/new b/d/new
new file mode 100644
--- /dev/null
+++ b/d/new
@@ -0,0 +1,2 @@
+one
+two
\ No newline at end of file
diff --git a/empty b/empty
new file mode 100644
diff --git a/very old b/very old
deleted file mode 100644
--- a/very old|
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/f b/f
--- a/f
+++ b/f
@@ -1,3 +1,3 @@ func x
 a
-b
+B_
 c
diff --git a/from b/to
similarity index 100%
rename from from
rename to to
diff --git a/from2 b/to2
rename from from2
rename to to2
--- a/from2
+++ b/to2
@@ -1 +1 @@
-2
+3
diff --git "a/a\"ü\033" "b/a\"ü\033"
--- "a/a\"ü\033"
+++ "b/a\"ü\033"
@@ -1 +1 @@
-x
+ESC
modified big: it is too large for its lines to be kept
meta mode: mode, owner, attributes or time
`
	raw := strings.NewReplacer("|", "\t", "_", "\t", "ESC", "\x1b[2J\r").Replace(want)
	if got := patchOf(t, &changed, false); got != raw {
		t.Errorf("got %q", got)
	}
	person := strings.NewReplacer("|", "", "_", "      ", "ESC", `\x1b[2J\x0d`).Replace(want)
	if got := patchOf(t, &changed, true); got != person {
		t.Errorf("for a person: got %q", got)
	}
}

// Git applies the patch to the files of the sandbox.
func TestPatchApplies(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"very old": "gone\n", "f": "a\nb\nc\n", "from": "1\n", "from2": "2\n", `a"ü` + "\x1b": "x\n", "big": "b", "mode": ""} {
		testhelp.WriteFile(t, filepath.Join(dir, name), content, 0o600)
	}
	cmd := exec.CommandContext(t.Context(), git, "apply", "-")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(patchOf(t, &changed, false))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for name, want := range map[string]string{"d/new": "one\ntwo", "empty": "", "f": "a\nB\t\nc\n", "to": "1\n", "to2": "3\n", `a"ü` + "\x1b": "\x1b[2J\r\n", "big": "b", "mode": ""} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"very old", "from", "from2"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}

func TestStat(t *testing.T) {
	t.Parallel()
	c := changed
	c.Paths = append(slices.Clone(changed.Paths[3:5]), api.ChangedPath{Op: "modified", Path: "long", Lines: &[2]int{700, 2}},
		api.ChangedPath{Op: "created", Path: "bin"}, changed.Paths[6], changed.Paths[7])
	var out bytes.Buffer
	if err := (&patch{to: &out}).stat(&c); err != nil {
		t.Fatal(err)
	}
	want := ` very old     |   1 -
 f            |   2 +-
 long         | 702 ` + strings.Repeat("+", 60) + `-
 bin          | created
 from2 => to2 |   2 +-
 5 files changed, 702 insertions(+), 5 deletions(-)
`
	if got := out.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// Names and lines of a sandbox cannot act on a terminal, nor look like messages of this program.
func FuzzPatch(f *testing.F) {
	for _, c := range changed.Paths {
		f.Add(c.Op, c.Path, c.From, c.Diff)
	}
	f.Add("modified", "\xff\n", "\u202e", "runtimectl: all is well\n\u009b2J")
	f.Fuzz(func(t *testing.T, op, path, from, diff string) {
		c := api.Changes{Paths: []api.ChangedPath{api.NewChangedPath(op, path, from)}}
		c.Paths[0].Diff, c.Paths[0].Lines = diff, &[2]int{1, 1}
		text := patchOf(t, &c, true)
		var stat bytes.Buffer
		if err := (&patch{to: &stat, person: true}).stat(&c); err != nil {
			t.Fatal(err)
		}
		for _, r := range text + stat.String() {
			if !unicode.IsGraphic(r) && r != '\n' {
				t.Fatalf("there is %q in %q", r, text)
			}
		}
		if strings.Contains("\n"+text, "\nruntimectl: ") {
			t.Errorf("got %q", text)
		}
	})
}
