package search_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/search"
)

// The files found are those that git would add: git is asked about trees with rules of
// every form.
func TestIgnoreLikeGit(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git to compare with")
	}
	rules := []string{
		"*.log", "!keep.log", "build/", "/top", "a/b", "**/deep", "docs/**", "docs/**/x.md", "a/**/c", "*.[oa]", "[!x]y", "file?", "# comment", `\#hash`, `\!bang`, "trail ", `space\ `,
		"{a,b}", "*", "!*/", "!*.md", "b", "/a/*", "!/a/b", "**", "x/", "a**b", "foo/**", ".*", "é*", "[", "a[", `a\`, "\r", "*.md\r",
	}
	names := []string{
		"a", "b", "c", "x", "xy", "zy", "deep", "docs", "build", "top", "foo", "file1", "x.md", "y.md", "keep.log", "other.log", "m.o", "n.a", "#hash", "!bang", "trail", "space ", "{a,b}", "axb", ".dot", "élan",
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	for round := range 60 {
		root := t.TempDir()
		write := func(name, text string) {
			path := filepath.Join(root, name)
			if os.MkdirAll(filepath.Dir(path), 0o755) == nil {
				_ = os.WriteFile(path, []byte(text), 0o644) // a directory may have that name
			}
		}
		for range 40 {
			parts := make([]string, 1+random.IntN(4))
			for i := range parts {
				parts[i] = pick(names)
			}
			write(strings.Join(parts, "/"), "")
		}
		var log strings.Builder
		for _, dir := range []string{"", "", pick(names) + "/", pick(names) + "/" + pick(names) + "/"} {
			lines := make([]string, 1+random.IntN(4))
			for i := range lines {
				lines[i] = pick(rules)
			}
			fmt.Fprintf(&log, "%s.gitignore: %q\n", dir, lines)
			write(dir+".gitignore", strings.Join(lines, "\n"))
		}
		initial := exec.CommandContext(t.Context(), git, "init", "-q", root)
		if out, err := initial.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		list := exec.CommandContext(t.Context(), git, "-C", root, "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--others", "--exclude-standard")
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if len(out) == 0 {
			want = []string{}
		}
		files, err := search.New(search.Config{}).Glob(t.Context(), search.GlobQuery{Dir: root, Pattern: "**/*", Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		got := below(root, files.Paths)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("round %d:\n%sgot  %q\nwant %q", round, log.String(), got, want)
		}
	}
}

// The rules above the directory that is searched hold too, up to the top of the
// repository and no further.
func TestIgnoreFromAbove(t *testing.T) {
	t.Parallel()
	root := tree(t, ".gitignore=*.a", "repo/.gitignore=*.b\n/sub/x.c", "repo/.git/info/exclude=*.d", "repo/sub/x.a", "repo/sub/x.b", "repo/sub/x.c", "repo/sub/x.d", "repo/sub/x.e", "repo/sub/.ignore=*.e")
	files, err := search.New(search.Config{}).Glob(t.Context(), search.GlobQuery{Dir: root + "/repo/sub", Pattern: "x.*", Limit: 100})
	if got, want := below(root, files.Paths), []string{"repo/sub/x.a"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
