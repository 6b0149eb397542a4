package changes_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/changes"
)

// shell runs commands in a directory, without the settings of this machine's git.
func shell(tb testing.TB, dir, commands string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "sh", "-ec", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "OLDPWD="+filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}

// unignored is the tree without what facts only count.
func unignored(tb testing.TB, dir string) map[string]entry {
	tb.Helper()
	all := tree(tb, dir)
	maps.DeleteFunc(all, func(name string, _ entry) bool {
		top, _, _ := strings.Cut(name, "/")
		return top == ".git" || top == "bin"
	})
	return all
}

// takenBack changes a repository, compares what is said about it with all contents, and takes it back so that git finds nothing.
func takenBack(t *testing.T, dir string, changing ...string) {
	t.Helper()
	status, fsck := shell(t, dir, "git status --porcelain --ignored"), shell(t, dir, "git fsck --full 2>&1")
	tracker, state := undoable(t, changes.Config{Root: dir})
	want := image(t, dir)
	for _, commands := range changing {
		before := unignored(t, dir)
		first := step(t, tracker)
		shell(t, dir, commands)
		begin := time.Now()
		after := step(t, tracker)
		took := time.Since(begin)
		got := changes.Compare(first, after, changes.Limits{Facts: 1 << 20, Bytes: 1 << 30})
		if wrong := check(before, unignored(t, dir), got); wrong != "" {
			t.Errorf("%s: %s %q %q", commands, wrong, got.Why, got.Unsure)
		}
		begin = time.Now()
		r := restore(t, tracker, state, changes.RestoreOptions{})
		t.Logf("%s: %+v, a step of %v, an undo of %v", commands, got.Counts, took, time.Since(begin))
		if d := different(want, image(t, dir)); d != "" || refusals(r) != "" {
			t.Fatalf("%s: refused %s, and\n%s", commands, refusals(r), d)
		}
		if got := shell(t, dir, "git status --porcelain --ignored"); got != status {
			t.Errorf("%s: the status is %s, want %s", commands, got, status)
		}
		if got := shell(t, dir, "git fsck --full 2>&1"); got != fsck {
			t.Errorf("%s: fsck says %s, want %s", commands, got, fsck)
		}
		restore(t, tracker, state, changes.RestoreOptions{}) // of what git wrote
	}
}

// What people do to a repository is said, and taken back.
//
// CHANGES_REPOSITORIES names directories with others, which are cloned.
func TestRepository(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shell(t, dir, `
git init -q -b main
for d in a b/c b/d e; do mkdir -p $d; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf 'package p\n\n// %s\nfunc F%s() {}\n' $d $i > $d/f$i.go; done; done
printf 'bin/\n*.o\n' > .gitignore; ln -s a/f1.go link; chmod 755 e/f1.go
git add -A; git commit -qm one
git checkout -qb other; sed -i 's/func F/func G/' a/*.go; git commit -qam two
git checkout -q main; sed -i 's/package p/package q/' e/*.go; git commit -qam three
tar cf $OLDPWD/archive.tar a b; mkdir bin; echo 1 > bin/x`)
	if status := shell(t, dir, "git status --porcelain --ignored"); !strings.Contains(status, "!! bin/") {
		t.Errorf("got the status %s", status)
	}
	takenBack(t, dir,
		"git checkout -q other",
		"git rebase -q other",
		"git merge -q other -m merge && git branch -D other -q && git gc -q --prune=now",
		"git stash list; sed -i s/F/H/ a/f1.go && git stash -q",
		"sed -i s/package/PACKAGE/ $(find . -name '*.go')",
		"rm -rf .git a",
		"rm -rf b && tar xf $OLDPWD/archive.tar && touch -d 2001-01-01 a/f2.go",
		"git clean -qfdx && git reset -q --hard HEAD~1",
		"mv b moved && mkdir b && mv moved/c b/c && git add -A && git commit -qm move",
		"for f in a/*.go; do cp -p $f $f.tmp && echo >> $f.tmp && mv $f.tmp $f; done",
	)
	for from := range strings.FieldsSeq(os.Getenv("CHANGES_REPOSITORIES")) {
		t.Run(filepath.Base(from), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			shell(t, dir, "git clone -q --no-local -c index.version=4 "+from+" .")
			takenBack(t, dir,
				"git checkout -q HEAD~1",
				"tip=$(git rev-parse HEAD); git checkout -qb topic HEAD~1; echo > topic; git add topic; git commit -qm topic; git rebase -q $tip",
				"git archive HEAD~1 | tar x",
				"git ls-files -z | xargs -0 sed -i 's/$/ /'",
				"git ls-files -z | xargs -0 sed -i s/e/E/g", // of the same size
				"[ ! -e go.mod ] || { mkdir built; go build -o built ./...; }",
				"! make -n build || make build",
				"rm -rf .git",
				"rm -rf *",
			)
		})
	}
}
