package edit_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

func patchOf(lines ...string) string {
	return "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch"
}

// tree names all files with their contents.
func (b *bench) tree() map[string]string {
	b.t.Helper()
	files := map[string]string{}
	for name := range strings.FieldsSeq(b.names()) {
		if info, err := os.Lstat(b.path(name)); err == nil && info.Mode().IsRegular() {
			files[name] = b.content(name)
		}
	}
	return files
}

func TestPatch(t *testing.T) {
	t.Parallel()
	const five = "a1\na2\na3\na4\na5\n"
	const two = "class A:\n  def f():\n    return 1\n\nclass B:\n  def e():\n    return 1\n  def f():\n    return 1\n"
	for _, test := range []struct {
		name, before, patch string
		want                string // file f afterwards; "" with a code
		code                edit.Code
		says                string
	}{
		{name: "two hunks in one", before: five, patch: patchOf("*** Update File: f", "@@", " a1", "-a2", "+A2", " a3", " a4", "-a5", "+A5"), want: "a1\nA2\na3\na4\nA5\n"},
		{name: "two hunks", before: five, patch: patchOf("*** Update File: f", "@@", "-a2", "+A2", "@@", "-a4", "+A4"), want: "a1\nA2\na3\nA4\na5\n"},
		{name: "adjacent hunks", before: "a\nb", patch: patchOf("*** Update File: f", "@@", "-a", "+A", "@@", "-b", "+B"), want: "A\nB"},
		{name: "adjacent hunks that remove", before: "a\nb", patch: patchOf("*** Update File: f", "@@", "-a", "+A", "@@", "-b"), want: "A"},
		{name: "hunks out of order", before: five, patch: patchOf("*** Update File: f", "@@", "-a4", "+A4", "@@", "-a2", "+A2"), code: edit.CodeNoMatch, says: "Invalid Context 4:\na2"},
		{name: "first hunk without a mark", before: five, patch: patchOf("*** Update File: f", "-a1", "+A1"), want: "A1\na2\na3\na4\na5\n"},
		{name: "second without a mark", before: five, patch: patchOf("*** Update File: f", "-a1", "*** End of File", "+A1"), code: edit.CodeInvalidArgument},
		{name: "an empty line is context", before: "a\n\nb\n", patch: patchOf("*** Update File: f", "@@", " a", "", "-b", "+c"), want: "a\n\nc\n"},
		{name: "white space at the end", before: "a\nb  \nc\n", patch: patchOf("*** Update File: f", "@@", " b", "-c", "+d"), want: "a\nb  \nd\n"},
		{name: "white space around", before: "a\n\t b\nc\n", patch: patchOf("*** Update File: f", "@@", " b", "-c", "+d"), want: "a\n\t b\nd\n"},
		{name: "exact before near", before: "  b\nc\nb\nc\n", patch: patchOf("*** Update File: f", "@@", " b", "-c", "+d"), want: "  b\nc\nb\nd\n"},
		{name: "anchor", before: "def g():\n  x\ndef f():\n  x\n", patch: patchOf("*** Update File: f", "@@ def f():", "-  x", "+  y"), want: "def g():\n  x\ndef f():\n  y\n"},
		{name: "anchor without its indentation", before: "  def f():\n  x\n", patch: patchOf("*** Update File: f", "@@ def f():", "-  x", "+  y"), want: "  def f():\n  y\n"},
		{name: "anchor that is not there", before: "def g():\n  x\ndef h():\n  x\n", patch: patchOf("*** Update File: f", "@@ def f():", "-  x", "+  y"), code: edit.CodeNoMatch, says: "`@@ def f():`"},
		{name: "anchor that is not there, and lines that are once", before: "def g():\n  x\n", patch: patchOf("*** Update File: f", "@@ def f():", "-  x", "+  y"), want: "def g():\n  y\n"},
		{name: "anchor that is not there, and only lines to add", before: "def g():\n", patch: patchOf("*** Update File: f", "@@ def f():", "+  y"), code: edit.CodeNoMatch},
		{name: "the beginning of an anchor", before: two, patch: patchOf("*** Update File: f", "@@ class B", "@@ def f(", "-    return 1", "+    return 2"), want: strings.Replace(two, "class B:\n  def e():\n    return 1\n  def f():\n    return 1", "class B:\n  def e():\n    return 1\n  def f():\n    return 2", 1)},
		{name: "the beginning of a word is no anchor", before: "def foobar():\n  x\ndef g():\n  x\n", patch: patchOf("*** Update File: f", "@@ def foo", "-  x", "+  y"), code: edit.CodeNoMatch, says: "`@@ def foo`"},
		{name: "stacked anchors", before: two, patch: patchOf("*** Update File: f", "@@ class B:", "@@   def f():", "-    return 1", "+    return 2"), want: strings.Replace(two, "class B:\n  def e():\n    return 1\n  def f():\n    return 1", "class B:\n  def e():\n    return 1\n  def f():\n    return 2", 1)},
		{name: "stacked anchors and a bare one", before: two, patch: patchOf("*** Update File: f", "@@ class B:", "@@", "-    return 1", "+    return 2"), want: strings.Replace(two, "class B:\n  def e():\n    return 1", "class B:\n  def e():\n    return 2", 1)},
		{name: "stacked anchors, one missing", before: two, patch: patchOf("*** Update File: f", "@@ class C:", "@@   def f():", "-    return 1", "+    return 2"), code: edit.CodeNoMatch, says: "`@@ class C:`"},
		{name: "closed anchor", before: two, patch: patchOf("*** Update File: f", "@@ class B: @@", "-    return 1", "+    return 2"), want: strings.Replace(two, "class B:\n  def e():\n    return 1", "class B:\n  def e():\n    return 2", 1)},
		{name: "numbers of a unified diff", before: two, patch: patchOf("*** Update File: f", "@@ -7,1 +7,1 @@", "-    return 1", "+    return 2"), want: strings.Replace(two, "class B:\n  def e():\n    return 1", "class B:\n  def e():\n    return 2", 1)},
		{name: "wrong numbers, and lines that are once", before: five, patch: patchOf("*** Update File: f", "@@ -1,2 +1,2 @@", " a3", "-a4", "+A4"), want: "a1\na2\na3\nA4\na5\n"},
		{name: "wrong numbers, and lines that are twice", before: two, patch: patchOf("*** Update File: f", "@@ -2 +2 @@", "-    return 1", "+    return 2"), code: edit.CodeMultipleMatches, says: "occur more than once"},
		{name: "numbers and a heading", before: two, patch: patchOf("*** Update File: f", "@@ -1,1 +1,1 @@ class B:", "-    return 1", "+    return 2"), want: strings.Replace(two, "class B:\n  def e():\n    return 1", "class B:\n  def e():\n    return 2", 1)},
		{name: "numbers of lines to add", before: five, patch: patchOf("*** Update File: f", "@@ -2,0 +3 @@", "+x"), want: "a1\na2\nx\na3\na4\na5\n"},
		{name: "names of a unified diff", before: five, patch: patchOf("*** Update File: f", "--- a/f", "+++ b/f", "@@ -2 +2 @@", "-a2", "+A2"), want: "a1\nA2\na3\na4\na5\n"},
		{name: "a removed line that looks like a name", before: "-- a\nb\n", patch: patchOf("*** Update File: f", "--- a", "+++ c", " b"), want: "++ c\nb\n"},
		{name: "no newline at end of file", before: "a\nb", patch: patchOf("*** Update File: f", "@@", " a", "-b", `\ No newline at end of file`, "+c", `\ No newline at end of file`), want: "a\nc"},
		{name: "blank lines around sections", before: five, patch: patchOf("", "*** Update File: f", "", "@@ a1", "-a2", "+A2", " a3", "", "@@", "-a5", "+A5", "", ""), want: "a1\nA2\na3\na4\nA5\n"},
		{name: "a blank line at the end that the file has", before: "a\n\nb\na\nb\n", patch: patchOf("*** Update File: f", "@@", "-a", "+A", ""), want: "A\n\nb\na\nb\n"},
		{name: "a blank line behind lines to add", before: five, patch: patchOf("*** Update File: f", "@@ a2", "+x", ""), want: "a1\na2\nx\na3\na4\na5\n"},
		{name: "padded markers", before: five, patch: "\n *** Begin Patch  \n*** Update File: f  \n@@\n-a5\n+A5\n*** End of File \n  *** End Patch ", want: "a1\na2\na3\na4\nA5\n"},
		{name: "a quoted path", before: five, patch: patchOf("*** Update File: `f`", "@@", "-a5", "+A5"), want: "a1\na2\na3\na4\nA5\n"},
		{name: "fence", before: five, patch: "```diff\n" + patchOf("*** Update File: f", "@@", "-a5", "+A5") + "\n```", want: "a1\na2\na3\na4\nA5\n"},
		{name: "open fence", before: five, patch: "```\n" + patchOf("*** Update File: f", "@@", "-a5", "+A5"), want: "a1\na2\na3\na4\nA5\n"},
		{name: "here-document", before: five, patch: "apply_patch <<'EOF'\n" + patchOf("*** Update File: f", "@@", "-a5", "+A5") + "\nEOF\n", want: "a1\na2\na3\na4\nA5\n"},
		{name: "here-document in a fence", before: five, patch: "```bash\napply_patch << \"PATCH\"\n" + patchOf("*** Update File: f", "@@", "-a5", "+A5") + "\nPATCH\n```", want: "a1\na2\na3\na4\nA5\n"},
		{name: "a command with more", before: five, patch: "cd / && apply_patch <<'EOF'\n" + patchOf("*** Update File: f", "@@", "-a5", "+A5") + "\nEOF\n", code: edit.CodeInvalidArgument},
		{name: "a unified diff", before: five, patch: "--- a/f\n+++ b/f\n@@ -5 +5 @@\n-a5\n+A5\n", code: edit.CodeInvalidArgument, says: "this is a unified diff"},
		{name: "dashes", before: "a – b\nc — d\n", patch: patchOf("*** Update File: f", "@@", "-a - b", "+a - B", " c - d"), want: "a - B\nc — d\n"},
		{name: "quotes and spaces", before: "say “hi”\u00a0it’s\nc\n", patch: patchOf("*** Update File: f", "@@", "-say \"hi\" it's", "+x"), want: "x\nc\n"},
		{name: "exact before typographic", before: "a – b\na - b\n", patch: patchOf("*** Update File: f", "@@", "-a - b", "+x"), want: "a – b\nx\n"},
		{name: "at the end", before: "x\na\nx", patch: patchOf("*** Update File: f", "@@", " x", "+y", "*** End of File"), want: "x\na\nx\ny"},
		{name: "at the end, with a line end", before: "x\na\nx\n", patch: patchOf("*** Update File: f", "@@", " x", "+y", "*** End of File"), want: "x\na\nx\ny\n"},
		{name: "at the end, with an empty line", before: "x\n\na\nx\n\n", patch: patchOf("*** Update File: f", "@@", "-x", "+y", " ", "*** End of File"), want: "x\n\na\ny\n\n"},
		{name: "lines to add at the end", before: five, patch: patchOf("*** Update File: f", "@@", "+a6", "*** End of File"), want: five + "a6\n"},
		{name: "lines to add at an open end", before: "a\nb", patch: patchOf("*** Update File: f", "@@", "+c", "*** End of File"), want: "a\nb\nc"},
		{name: "lines to add at the end of nothing", before: "", patch: patchOf("*** Update File: f", "@@", "+a", "*** End of File"), want: "a\n"},
		{name: "at the end, which it is not", before: "x\na\n", patch: patchOf("*** Update File: f", "@@", " x", "+y", "*** End of File"), want: "x\ny\na\n"},
		{name: "no such context", before: five, patch: patchOf("*** Update File: f", "@@", "-zz", "+y"), code: edit.CodeNoMatch, says: "do not occur in f"},
		{name: "no such end", before: five, patch: patchOf("*** Update File: f", "@@", "-zz", "+y", "*** End of File"), code: edit.CodeNoMatch, says: "Invalid EOF Context"},
		{name: "only lines to add", before: "a\n", patch: patchOf("*** Update File: f", "@@ a", "+b"), want: "a\nb\n"},
		{name: "all lines go", before: "a\nb", patch: patchOf("*** Update File: f", "@@", "-a", "-b"), want: ""},
		{name: "an empty file", before: "", patch: patchOf("*** Update File: f", "@@", "+a"), want: "a\n"},
		{name: "nothing changes", before: five, patch: patchOf("*** Update File: f", "@@", " a1"), want: five},
		{name: "CRLF stays", before: "one\r\ntwo\r\n", patch: patchOf("*** Update File: f", "@@", "-two", "+TWO", "+3"), want: "one\r\nTWO\r\n3\r\n"},
		{name: "CRLF in the patch", before: "one\ntwo\n", patch: strings.ReplaceAll(patchOf("*** Update File: f", "@@", "-two", "+TWO"), "\n", "\r\n"), want: "one\nTWO\n"},
		{name: "bytes that are no UTF-8", before: "a\n\xe9\n", patch: patchOf("*** Update File: f", "@@", "-a", "+A"), want: "A\n\xe9\n"},
		{name: "byte order mark", before: "\ufeffa\n", patch: patchOf("*** Update File: f", "@@", "-a", "+A"), want: "\ufeffA\n"},
		{name: "binary", before: "a\x00\n", patch: patchOf("*** Update File: f", "@@", "-a", "+A"), code: edit.CodeBinary},

		{name: "no beginning", before: "a", patch: "*** Add File: g\n+x\n*** End Patch", code: edit.CodeInvalidArgument, says: "Invalid patch text"},
		{name: "no end", before: "a", patch: "*** Begin Patch\n*** Add File: g\n+x", code: edit.CodeInvalidArgument, says: "Missing End Patch"},
		{name: "empty", before: "a", patch: patchOf(), code: edit.CodeInvalidArgument},
		{name: "nothing at all", before: "a", patch: "", code: edit.CodeInvalidArgument},
		{name: "something behind the end", before: "a", patch: patchOf("*** Delete File: f", "*** End Patch", "x"), code: edit.CodeInvalidArgument},
		{name: "unknown line", before: "a", patch: patchOf("*** Rename File: f"), code: edit.CodeInvalidArgument, says: "Unknown Line: *** Rename File: f"},
		{name: "no path", before: "a", patch: patchOf("*** Delete File: "), code: edit.CodeInvalidArgument},
		{name: "a new line without its sign", before: "a", patch: patchOf("*** Add File: g", "x"), code: edit.CodeInvalidArgument, says: "Invalid Add File Line: x"},
		{name: "an old line without its sign", before: "a", patch: patchOf("*** Update File: f", "@@", "x"), code: edit.CodeInvalidArgument, says: "Invalid Line: x"},
		{name: "stars", before: "a", patch: patchOf("*** Update File: f", "@@", " a", "*** x"), code: edit.CodeInvalidArgument, says: "Invalid Line: *** x"},
		{name: "nothing in the section", before: "a", patch: patchOf("*** Update File: f", "@@", "@@", "-a"), code: edit.CodeInvalidArgument, says: "Nothing in this section"},
		{name: "missing", before: "a", patch: patchOf("*** Update File: g", "@@", "-a"), code: edit.CodeFileNotFound, says: "Update File Error: Missing File: g"},
		{name: "missing, to be deleted", before: "a", patch: patchOf("*** Delete File: g"), code: edit.CodeFileNotFound, says: "Delete File Error: Missing File: g"},
		{name: "there already", before: "a", patch: patchOf("*** Add File: f", "+x"), code: edit.CodeAlreadyExists},
		{name: "twice", before: "a", patch: patchOf("*** Add File: g", "+x", "*** Add File: ./g", "+y"), code: edit.CodeInvalidArgument, says: "Add File Error: Duplicate Path: ./g"},
		{name: "out of the directory", before: "a", patch: patchOf("*** Add File: g", "+x", "*** Add File: ../g", "+y"), code: edit.CodePathNotAllowed, says: "Absolute or escaping paths are not allowed"},
		{name: "absolute", before: "a", patch: patchOf("*** Add File: /etc/passwd", "+x"), code: edit.CodePathNotAllowed},
		{name: "moved up and down", before: "a\n", patch: patchOf("*** Update File: f", "*** Move to: x/../g", "@@", "-a", "+A"), code: edit.CodePathNotAllowed, says: "Invalid move path"},
		{name: "twice by one name", before: "a\n", patch: patchOf("*** Update File: ./f", "@@", "-a", "+A", "*** Delete File: f"), code: edit.CodeInvalidArgument, says: "Duplicate Path"},
		{name: "through a link", before: "a", patch: patchOf("*** Add File: out/g", "+x"), code: edit.CodePathNotAllowed},
		{name: "the directory itself", before: "a", patch: patchOf("*** Delete File: ."), code: edit.CodePathNotAllowed},
		{name: "a directory", before: "a", patch: patchOf("*** Delete File: dir"), code: edit.CodeIsDirectory},
		{name: "move out", before: "a", patch: patchOf("*** Update File: f", "*** Move to: ../g"), code: edit.CodePathNotAllowed},
		{name: "move to an absolute path", before: "a", patch: patchOf("*** Update File: f", "*** Move to: /g"), code: edit.CodePathNotAllowed},
		{name: "move over something", before: "a", patch: patchOf("*** Update File: f", "*** Move to: other"), code: edit.CodeAlreadyExists},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("f", test.before, 0o640)
			b.write("other", "other\n", 0o644)
			b.write("dir/x", "", 0o644)
			b.link("out", t.TempDir())
			before := b.tree()
			r, err := b.Patch(b.dir, test.patch)
			text := r.Text
			if test.code != "" {
				wantCode(t, err, test.code)
				text, test.want = err.Error(), test.before
			} else if err != nil {
				t.Fatal(err)
			}
			if got := b.content("f"); got != test.want || b.mode("f") != 0o640 {
				t.Errorf("got %q with mode %v, want %q", got, b.mode("f"), test.want)
			}
			if !strings.Contains(text, test.says) {
				t.Errorf("got answer %q, want %q in it", text, test.says)
			}
			before["f"] = test.want
			if got := b.tree(); len(got) != len(before) {
				t.Errorf("got files %v, want %v", got, before)
			}
		})
	}
}

// A patch of many hunks, each of which stands far down a long file but for white space, is a day's work for a program
// that compares every line with every hunk.
func TestPatchIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	content := strings.Repeat("a\n", 300_000)
	b.write("f", content, 0o644)
	_, err := b.Patch(b.dir, patchOf("*** Update File: f", strings.Repeat("@@ a\n-a \n+b\n", 20_000)+"@@\n-a\n+b"))
	wantCode(t, err, edit.CodeTooLarge)
	if b.content("f") != content {
		t.Error("the file was changed")
	}
}

// Blank lines behind an added file are not part of it, and those inside are.
func TestPatchAddsBlankLines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("f", "a\n", 0o644)
	_, err := b.Patch(b.dir, patchOf("*** Add File: g", "+a", "", "", "+b", "", "*** Delete File: f", "", "  *** Add File: h", "+x", ""))
	if err != nil || b.content("g") != "a\n\n\nb\n" || b.content("h") != "x\n" || b.names() != "g h" {
		t.Errorf("got %v, %q", err, b.tree())
	}
}

func TestPatchOfFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("gone", "gone\n", 0o644)
	b.write("moved", "old\nkept\n", 0o751)
	b.write("renamed", "same\n", 0o600)
	b.write("changed", "1\n", 0o644)
	r, err := b.Patch(b.dir, patchOf(
		"*** Add File: new/deep/n.txt", "+one", "+", "+two",
		"*** Add File: empty",
		"*** Add File: "+b.path("absolute"), "+x",
		"*** Delete File: gone",
		"*** Update File: moved", "*** Move to: sub/moved", "@@", "-old", "+new",
		"*** Update File: renamed", "*** Move to: again",
		"*** Update File: changed", "@@", "-1", "+2"))
	if err != nil || r.HistoryErr != nil {
		t.Fatal(err, r.HistoryErr)
	}
	want := map[string]string{
		"new/deep/n.txt": "one\n\ntwo\n", "empty": "", "absolute": "x\n", "sub/moved": "new\nkept\n", "again": "same\n", "changed": "2\n",
	}
	got := b.tree()
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: got %q, want %q", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if b.mode("sub/moved") != 0o751 || b.mode("again") != 0o600 || b.mode("absolute") != 0o644 {
		t.Errorf("got modes %v, %v, %v", b.mode("sub/moved"), b.mode("again"), b.mode("absolute"))
	}
	const text = "Done!\nA new/deep/n.txt\nA empty\nA D/absolute\nD gone\nR moved -> sub/moved\nR renamed -> again\nM changed"
	if got := strings.ReplaceAll(r.Text, b.dir, "D"); got != text {
		t.Errorf("got %q, want %q", got, text)
	}
	for _, name := range []string{"new/deep/n.txt", "gone", "moved", "sub/moved", "changed"} {
		b.undo(name)
	}
	if got := b.tree(); got["gone"] != "gone\n" || got["moved"] != "old\nkept\n" || b.mode("moved") != 0o751 || got["changed"] != "1\n" || len(got) != 6 {
		t.Errorf("undone: got %v", got)
	}
	if _, err := os.Lstat(b.path("new")); err == nil {
		t.Error("the directories that the patch made are left")
	}
}

// A file goes away by the name that the patch gives it: of a link, that is the link, and what it leads to stays.
func TestPatchOfLinks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("kept", "old\n", 0o640)
	b.write("also", "also\n", 0o644)
	b.link("gone", "kept")
	b.link("moved", b.path("kept"))
	b.link("through", "also")
	r, err := b.Patch(b.dir, patchOf(
		"*** Delete File: gone",
		"*** Update File: moved", "*** Move to: sub/moved", "@@", "-old", "+new",
		"*** Update File: through", "@@", "-also", "+ALSO"))
	if err != nil || r.HistoryErr != nil {
		t.Fatal(err, r.HistoryErr)
	}
	if got, want := b.names(), "also kept sub sub/moved through"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if b.content("kept") != "old\n" || b.content("sub/moved") != "new\n" || b.mode("sub/moved") != 0o640 || b.content("also") != "ALSO\n" {
		t.Errorf("got %v", b.tree())
	}
	for name, target := range map[string]string{"gone": "kept", "moved": b.path("kept")} {
		b.undo(name)
		if got, err := os.Readlink(b.path(name)); err != nil || got != target {
			t.Errorf("%s: undone, got a link to %q, %v, want %q", name, got, err, target)
		}
	}
	// A link that stands elsewhere is not the patch's to take.
	outside := t.TempDir()
	b.link("out", outside)
	if err := os.Symlink(b.path("kept"), outside+"/back"); err != nil {
		t.Fatal(err)
	}
	_, err = b.Patch(b.dir, patchOf("*** Delete File: out/back"))
	wantCode(t, err, edit.CodePathNotAllowed)
}

// A patch that fails brings links back.
func TestPatchBringsLinksBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("kept", "old\n", 0o640)
	b.write("last", "1\n", 0o640)
	b.link("gone", "kept")
	b.link("moved", "kept")
	writes := 0
	b.SetFlush(func(*os.File) error {
		if writes++; writes == 2 { // moved, last
			return errors.New("the disk is gone")
		}
		return nil
	})
	_, err := b.Patch(b.dir, patchOf(
		"*** Delete File: gone",
		"*** Update File: moved", "*** Move to: there/moved", "@@", "-old", "+new",
		"*** Update File: last", "@@", "-1", "+2"))
	wantCode(t, err, edit.CodeCommandFailed)
	if !strings.Contains(err.Error(), "Nothing of the patch was done.") || b.names() != "gone kept last moved" || b.content("moved") != "old\n" {
		t.Errorf("got %q, left are %s", err, b.names())
	}
	for _, name := range []string{"gone", "moved"} {
		if got, err := os.Readlink(b.path(name)); err != nil || got != "kept" {
			t.Errorf("%s: got a link to %q, %v", name, got, err)
		}
	}
}

// A write that fails in the middle takes back what was written before it.
func TestPatchIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("changed", "1\n", 0o640)
	b.write("moved", "1\n", 0o640)
	b.write("gone", "gone\n", 0o604)
	b.write("last", "1\n", 0o640)
	before := b.tree()
	writes := 0
	b.SetFlush(func(f *os.File) error {
		if writes++; writes == 4 { // changed, moved, the new file, last
			return errors.New("the disk is gone")
		}
		return nil
	})
	_, err := b.Patch(b.dir, patchOf(
		"*** Update File: changed", "@@", "-1", "+2",
		"*** Delete File: gone",
		"*** Update File: moved", "*** Move to: there/moved", "@@", "-1", "+2",
		"*** Add File: new/n", "+x",
		"*** Update File: last", "@@", "-1", "+2"))
	wantCode(t, err, edit.CodeCommandFailed)
	if !strings.Contains(err.Error(), "Nothing of the patch was done.") || writes < 5 {
		t.Errorf("got %q after %d writes", err, writes)
	}
	after := b.tree()
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s: got %q, want %q", name, after[name], content)
		}
	}
	if names := b.names(); names != "changed gone last moved" || b.mode("gone") != 0o604 || b.mode("changed") != 0o640 {
		t.Errorf("left are %s with modes %v and %v", names, b.mode("gone"), b.mode("changed"))
	}
	_, err = b.Do(edit.Command{Name: "undo_edit", Path: b.path("changed")})
	wantCode(t, err, edit.CodeNoHistory)
}

// Two patches that name the same files in another order, and edits of files that are one by a hard link, do not wait
// for each other, and lose nothing.
func TestPatchesAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const rounds = 20
	b.write("a", "0\n", 0o644)
	b.write("b", "0\n", 0o644)
	if err := os.Link(b.path("b"), b.path("c")); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 3)
	add := func(names ...string) {
		for range rounds {
			var lines []string
			for _, name := range names {
				lines = append(lines, "*** Update File: "+name, "@@", " 0", "+x")
			}
			if _, err := b.Patch(b.dir, patchOf(lines...)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}
	go add("a", "b")
	go add("b", "a")
	go add("c")
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if a, c := strings.Count(b.content("a"), "x"), strings.Count(b.content("c"), "x"); a != 2*rounds || c != 3*rounds {
		t.Errorf("got %d and %d lines, want %d and %d", a, c, 2*rounds, 3*rounds)
	}
}
