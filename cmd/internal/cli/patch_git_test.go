package cli

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

const (
	before = `umask 022
		printf 'a\n' > chmod; printf 'a\nb\n' > both; printf 'a\nb\n' > grown; printf '\0' > binary; printf 'a\n' > private
		printf 'a\n' > to-link; printf 'a\n' > to-dir; mkdir from-dir; printf 'a\n' > from-dir/x; ln -s chmod to-file
		ln -s chmod link; ln -s chmod gone-link; : > gone-empty; printf 'x' > gone-program; chmod 755 gone-program
		printf 'moved\nand changed\n' > moved; printf 'moved alone\n' > alone; printf '\1\0\nlong enough\nto be known again\n' > moved-binary
		printf 'a\n' > 'with space'; printf 'a\n' > 'quo"te\'; printf 'a\n' > "$(printf 'ta\tb')"; printf 'a\n' > "$(printf 'b\377d\a\v\f\r\b')"; : > "$(printf 'e\377')"`
	after = `umask 022
		printf '#!/bin/sh\n' > program; chmod 755 program; chmod 755 chmod both binary; printf '\0\0' > binary; printf 'a\nc\n' > both; printf 'a\nb\nc' > grown; chmod 600 private
		ln -sfn chmod to-link; rm to-dir; mkdir to-dir; printf 'b\n' > to-dir/x; rm -r from-dir; printf 'b\n' > from-dir; rm to-file; printf 'plain' > to-file
		ln -sfn grown link; ln -s no/where new-link; rm gone-link gone-empty gone-program; : > new-empty; : > 'new empty'; mkfifo fifo; mkdir nothing
		mv moved moved-to; printf 'moved\nand\n' > moved-to; chmod 755 moved-to; mv alone 'alone to'; chmod 755 'alone to'; mv moved-binary moved-binary-to; printf '\2\0\nlong enough\nto be known again\n' > moved-binary-to
		printf 'b\n' > 'with space'; chmod 755 'quo"te\'; printf 'b' > "$(printf 'ta\tb')"; printf 'b\n' > "$(printf 'b\377d\a\v\f\r\b')"; rm "$(printf 'e\377')"`
	// unpatched is what git has no text for.
	unpatched = `printf '\0\0' > binary; printf '\2\0\nlong enough\nto be known again\n' > moved-binary-to; mkfifo fifo; mkdir nothing; chmod 600 private`
)

// run runs commands without the settings of this machine's git.
func run(t *testing.T, dir, input, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", commands)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}

// files are the types, modes and contents below a directory.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := []byte{}
		switch info.Mode().Type() {
		case 0:
			content, err = os.ReadFile(path)
		case fs.ModeSymlink:
			var target string
			target, err = os.Readlink(path)
			content = []byte(target)
		}
		all = append(all, strings.TrimPrefix(path, dir)+" "+info.Mode().String()+" "+string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// workspacePatch is the patch of what commands do in a directory that a server follows.
func workspacePatch(t *testing.T, dir, commands string) string {
	t.Helper()
	e, err := executor.New(t.Context(), executor.Config{WorkingDir: dir, Workspace: executor.WorkspaceConfig{Dir: dir, StateDir: filepath.Join(t.TempDir(), "state")}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	w := e.Workspace()
	w.Await(t.Context())
	from, _ := w.Step()
	if err := w.Capture(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "", commands)
	to, _ := w.Step()
	var c *api.Changes
	testhelp.Eventually(t, func() bool { // on a busy machine the time for lines ends before the files
		c = w.Compare(from, to, "")
		w.Diff(c, from, to)
		return !c.Truncated
	}, "all lines are told")
	if !c.Exact {
		t.Fatalf("got %+v", c)
	}
	return patchOf(t, c, false)
}

// The patch of the server and this program is git's, and git applies it.
func TestPatchIsGits(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	run(t, dir, "", before)
	run(t, dir, "", "cp -a . "+other)
	text := workspacePatch(t, dir, after)

	applied := filepath.Join(t.TempDir(), "applied")
	run(t, other, "", "cp -a . "+applied)
	run(t, applied, text, "umask 022; git apply --unidiff-zero; "+unpatched)
	if got, want := strings.Join(files(t, applied), "\n"), strings.Join(files(t, dir), "\n"); got != want {
		t.Errorf("git made of\n%s\ngot %q\nwant %q", text, got, want)
	}

	run(t, other, "", "git init -q; git add -A; git -c user.name=a -c user.email=a@b commit -qm a; "+after)
	want := sectionsOf(run(t, other, "", "git add -A; git diff --cached -U0 -M20% --no-rename-empty --no-color"))
	if got := sectionsOf(text); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	named := []string{
		"modified binary: empty, or no text file", "created fifo: no file with lines", "modified moved-binary to moved-binary-to: empty, or no text file",
		"created nothing: a directory", "meta private: mode, owner, attributes or time",
	}
	if got := namedIn(text); !slices.Equal(got, named) {
		t.Errorf("got %q", got)
	}
}

// isNamed reports whether a line names a change without a header of git.
func isNamed(line string) bool {
	word, _, _ := strings.Cut(line, " ")
	return slices.Contains([]string{opCreated, opModified, opMeta, opRenamed}, word) || strings.HasPrefix(line, "deleted ") && !strings.HasPrefix(line, "deleted file mode ")
}

func namedIn(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return !isNamed(line) })
}

// sectionsOf are the sections of a diff in order, without what only git knows: hashes, similarities, and that files
// are binary.
func sectionsOf(text string) (list []string) {
	for section := range strings.SplitSeq("\n"+text, "\ndiff --git ") {
		lines := slices.DeleteFunc(strings.Split(section, "\n"), func(line string) bool {
			return line == "" || isNamed(line) || strings.HasPrefix(line, "index ") || strings.HasPrefix(line, "similarity index ") || strings.HasPrefix(line, "Binary files ")
		})
		for i, line := range lines {
			if head, _, ok := strings.Cut(line, " @@"); ok && strings.HasPrefix(line, "@@ ") {
				lines[i] = head
			}
		}
		if len(lines) > 0 {
			list = append(list, strings.Join(lines, "\n"))
		}
	}
	slices.Sort(list)
	return list
}

// A server of an earlier version says no modes.
func TestPatchWithoutModes(t *testing.T) {
	t.Parallel()
	c := api.Changes{Paths: []api.ChangedPath{
		{Op: opModified, Path: "f", Diff: "@@ -1 +1 @@\n-a\n+b", Lines: &[2]int{1, 1}},
		{Op: opCreated, Path: "new", Diff: "@@ -0,0 +1 @@\n+a", Lines: &[2]int{1, 0}},
	}}
	const want = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\ndiff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+a\n"
	if got := patchOf(t, &c, false); got != want {
		t.Errorf("got %s", got)
	}
}
