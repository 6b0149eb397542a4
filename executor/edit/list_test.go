package edit_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

const listed = "Here's the files and directories up to 2 levels deep in D, excluding hidden items:\n"

func (b *bench) list(name string) string {
	b.t.Helper()
	return strings.ReplaceAll(b.do(edit.Command{Name: "view", Path: b.path(name)}).Text, b.path(name), "D")
}

func TestListing(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files []string
		links map[string]string
		want  string
	}{
		{"empty", []string{"../x"}, nil, "D/"},
		{"two levels", []string{"a.txt", "sub/dir/deep", "sub/b"}, nil, "D/\nD/a.txt\nD/sub/\nD/sub/b\nD/sub/dir/"},
		{
			"hidden",
			[]string{".h1", ".h2/x", "v", "vd/.h3", "vd/x"},
			nil,
			"D/\nD/v\nD/vd/\nD/vd/x\n\n2 hidden files/directories in this directory are excluded. You can use 'ls -la D' to see them.",
		},
		{"sorted as strings", []string{"a/x", "a-b", "a b", "B", "a.c/y", "ä"}, nil, "D/\nD/B\nD/a/\nD/a b\nD/a-b\nD/a.c/\nD/a.c/y\nD/a/x\nD/ä"},
		{"shell characters", []string{"d;echo injected/x", "$(id)", "a'b"}, nil, "D/\nD/$(id)\nD/a'b\nD/d;echo injected/\nD/d;echo injected/x"},
		{"links", []string{"../out/in", "f"}, map[string]string{"dir": "../out", "file": "f", "lost": "nowhere"}, "D/\nD/dir/\nD/dir/in\nD/f\nD/file\nD/lost"},
		{"loops", []string{"f", "sub/x"}, map[string]string{"loop": ".", "self": "self", "sub/up": ".."}, "D/\nD/f\nD/loop/\nD/self\nD/sub/\nD/sub/up/\nD/sub/x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			check(t, os.Mkdir(b.path("my dir"), 0o755))
			for _, name := range test.files {
				b.write("my dir/"+name, "", 0o644)
			}
			for name, target := range test.links {
				b.link("my dir/"+name, target)
			}
			if got := b.list("my dir"); got != listed+test.want {
				t.Errorf("got  %q\nwant %q", got, listed+test.want)
			}
		})
	}
}

func TestListingByLink(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("d/f", "", 0o644)
	b.link("l", "d")
	if got, want := b.list("l"), listed+"D/\nD/f"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestListingSkipsTheUnreadable(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *edit.Config) { c.User = nobody() })
	b.write("a/x", "", 0o644)
	b.write("b/x", "", 0o644)
	b.giveAway()
	check(t, os.Chmod(b.path("a"), 0))
	t.Cleanup(func() { check(t, os.Chmod(b.path("a"), 0o755)) })
	if got, want := b.list("."), listed+"D/\nD/a/\nD/b/\nD/b/x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestListingIsClipped lists more than one answer holds, and more than is kept while it is collected.
func TestListingIsClipped(t *testing.T) {
	t.Parallel()
	const notice = "<response clipped><NOTE>Due to the max output limit, only part of this directory has been shown to you. " +
		"You should use `ls -la` instead to view large directories incrementally.</NOTE>"
	b := newBench(t)
	check(t, os.Mkdir(b.path("many"), 0o755))
	dir := b.path("many")
	var all strings.Builder
	all.WriteString(dir)
	first := b.write("first", "", 0o644)
	for i := range 20000 {
		name := fmt.Sprintf("%s/é%05d", dir, i*7919%20000)
		check(t, os.Link(first, name)) // cheaper than a file of its own
		fmt.Fprintf(&all, "\n%s/é%05d", dir, i)
	}
	b.write("many/.hidden", "", 0o644)
	want := "Here's the files and directories up to 2 levels deep in " + dir + ", excluding hidden items:\n" +
		strings.Replace(string([]rune(all.String())[:16000]), dir, dir+"/", 1) + notice +
		"\n\n1 hidden files/directories in this directory are excluded. You can use 'ls -la " + dir + "' to see them."
	if got := b.do(edit.Command{Name: "view", Path: dir}).Text; got != want {
		t.Errorf("got  ...%q\nwant ...%q", got[max(0, len(got)-500):], want[len(want)-500:])
	}
}
