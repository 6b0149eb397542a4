package search_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/search"
	"github.com/actiond/actiond/internal/testhelp"
)

// tree makes files below a new directory, each older than the one before; a
// name with a slash at its end is a directory.
func tree(tb testing.TB, names ...string) string {
	tb.Helper()
	root := tb.TempDir()
	at := time.Now()
	for _, name := range names {
		name, text, _ := strings.Cut(name, "=")
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				tb.Fatal(err)
			}
			continue
		}
		testhelp.WriteFile(tb, path, text, 0o644)
		at = at.Add(-time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			tb.Fatal(err)
		}
	}
	return root
}

// below makes paths relative to root again.
func below(root string, paths []string) []string {
	out := []string{}
	for _, p := range paths {
		out = append(out, strings.TrimPrefix(p, root+"/"))
	}
	return out
}

func TestGlob(t *testing.T) {
	t.Parallel()
	root := tree(t, "src/b.go", "src/a.go", "main.go", "src/deep/er/c.go", "README.md", ".hidden.go", "sp ace/Ä.go", "A.GO",
		"odd[1].txt", "build/x.go", "src/keep/.gitignore=!x.log", "src/keep/x.log", "src/x.log", ".gitignore=build/\n*.log", ".git/hooks/h.go",
		"app/[id]/p.tsx", "app/[[...all]]/{x}.tsx", "app/i/q.tsx")
	all := []string{"src/b.go", "src/a.go", "main.go", "src/deep/er/c.go", ".hidden.go", "sp ace/Ä.go"}
	tests := []struct {
		name  string
		query search.GlobQuery
		want  []string
	}{
		{"everywhere, newest first", search.GlobQuery{Pattern: "**/*.go"}, all},
		{"here", search.GlobQuery{Pattern: "*.go"}, []string{"main.go", ".hidden.go"}},
		{"here, with a dot", search.GlobQuery{Pattern: "./*.go"}, []string{"main.go", ".hidden.go"}},
		{"one level", search.GlobQuery{Pattern: "src/*.go"}, []string{"src/b.go", "src/a.go"}},
		{"below a directory", search.GlobQuery{Pattern: "src/**/*.go"}, []string{"src/b.go", "src/a.go", "src/deep/er/c.go"}},
		{"in a path", search.GlobQuery{Path: "src", Pattern: "**/*.go"}, []string{"src/b.go", "src/a.go", "src/deep/er/c.go"}},
		{"absolute", search.GlobQuery{Path: "/", Pattern: root + "/src/*.go"}, []string{"src/b.go", "src/a.go"}},
		{"one file", search.GlobQuery{Pattern: "src/a.go"}, []string{"src/a.go"}},
		{"choice", search.GlobQuery{Pattern: "{main.go,*.md}"}, []string{"main.go", "README.md"}},
		{"class", search.GlobQuery{Pattern: "src/[a-b].go"}, []string{"src/b.go", "src/a.go"}},
		{"escaped", search.GlobQuery{Pattern: `odd\[1\].txt`}, []string{"odd[1].txt"}},
		{"brackets", search.GlobQuery{Pattern: "app/[id]/p.tsx"}, []string{"app/[id]/p.tsx"}},
		{"brackets, absolute", search.GlobQuery{Path: "/", Pattern: root + "/app/[id]/*"}, []string{"app/[id]/p.tsx"}},
		{"brackets, either case", search.GlobQuery{Pattern: "app/[id]/P.*", IgnoreCase: true}, []string{"app/[id]/p.tsx"}},
		{"brackets and braces", search.GlobQuery{Path: "app", Pattern: "[[...all]]/{x}.tsx"}, []string{"app/[[...all]]/{x}.tsx"}},
		{"brackets of a class", search.GlobQuery{Pattern: "app/[hi]/*"}, []string{"app/i/q.tsx"}},
		{"either case", search.GlobQuery{Pattern: "*.Go", IgnoreCase: true}, []string{"main.go", ".hidden.go", "A.GO"}},
		{"ignored", search.GlobQuery{Pattern: "**/x.*"}, []string{"src/keep/x.log"}},
		{"not ignored", search.GlobQuery{Pattern: "**/x.*", NoIgnore: true}, []string{"build/x.go", "src/keep/x.log", "src/x.log"}},
		{"what is ignored by name", search.GlobQuery{Path: "build", Pattern: "*"}, []string{"build/x.go"}},
		{"limited", search.GlobQuery{Pattern: "**/*.go", Limit: 2}, all[:2]},
		{"nothing", search.GlobQuery{Pattern: "*.rs"}, []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.query.Dir = root
			if tt.query.Limit == 0 {
				tt.query.Limit = 100
			}
			files, err := search.New(search.Config{}).Glob(t.Context(), tt.query)
			if got := below(root, files.Paths); err != nil || !slices.Equal(got, tt.want) || files.Cut {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestGlobRefuses(t *testing.T) {
	t.Parallel()
	root := tree(t, "file")
	tests := []struct{ path, pattern, code string }{
		{"", "", "invalid_argument"},
		{"", "[", "invalid_argument"},
		{"", "{a", "invalid_argument"},
		{"", "*/../x", "invalid_argument"},
		{"", strings.Repeat("{a,b}", 9), "invalid_argument"},
		{"", strings.Repeat("a", 2000), "invalid_argument"},
		{"nope", "*", "file_not_found"},
		{"file", "*", "invalid_argument"},
	}
	for _, tt := range tests {
		_, err := search.New(search.Config{}).Glob(t.Context(), search.GlobQuery{Dir: root, Path: tt.path, Pattern: tt.pattern, Limit: 1})
		if wrong, ok := errors.AsType[*search.Error](err); !ok || wrong.Code != tt.code {
			t.Errorf("%q in %q: got %v, want %s", tt.pattern, tt.path, err, tt.code)
		}
	}
}

// A tree that was made to hold a searcher up does not.
func TestHostileTree(t *testing.T) {
	t.Parallel()
	root := tree(t, "a.txt=x", "sub/b.txt=x", "long/"+strings.Repeat("d/", 300)+"deep.txt=x")
	for _, pipe := range []string{"pipe", "sub/.gitignore", "sub/.ignore"} {
		if err := syscall.Mkfifo(filepath.Join(root, pipe), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"loop", "sub/loop"} {
		if err := os.Symlink(root, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	s := search.New(search.Config{})
	files, err := s.Glob(t.Context(), search.GlobQuery{Dir: root, Pattern: "**/*", Limit: 10})
	if got, want := below(root, files.Paths), []string{"a.txt", "sub/b.txt"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	m, err := s.Grep(t.Context(), search.GrepQuery{Dir: root, Pattern: "x", Limit: 10})
	if err != nil || m.Count != 2 {
		t.Errorf("got %+v, %v", m, err)
	}
	if _, err = s.Grep(t.Context(), search.GrepQuery{Dir: root, Path: "pipe", Pattern: "x", Limit: 10}); err == nil {
		t.Error("a pipe was searched")
	}
}

// A search whose time is over answers with what it has.
func TestSearchEnds(t *testing.T) {
	t.Parallel()
	root := tree(t, "a.txt=x", "b.txt=x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := search.New(search.Config{})
	files, err := s.Glob(ctx, search.GlobQuery{Dir: root, Pattern: "*", Limit: 10})
	if err != nil || !files.Cut {
		t.Errorf("glob: got %+v, %v, want it cut", files, err)
	}
	m, err := s.Grep(ctx, search.GrepQuery{Dir: root, Pattern: "x", Limit: 10})
	if err != nil || !m.Cut {
		t.Errorf("grep: got %+v, %v, want it cut", m, err)
	}
}

func TestGrep(t *testing.T) {
	t.Parallel()
	root := tree(t, "b.go=one\nTwo x\nthree", "a.go=two\r\nx two\r\n", "src/c.txt=x\x00two", "src/d.txt=caf\xe9 two\n-x", "build/e.go=two", ".gitignore=build",
		"bom.cs=\xef\xbb\xbfusing A\nusing B", "le.txt=\xff\xfeh\x00\xe9\x00\n\x00h\x00", "be.txt=\xfe\xff\x00h\x00\xe9")
	type lines = map[string][]int
	tests := []struct {
		name  string
		query search.GrepQuery
		want  lines
		order []string
	}{
		{"case", search.GrepQuery{Pattern: "two"}, lines{"a.go": {1, 2}, "src/d.txt": {1}}, []string{"a.go", "src/d.txt"}},
		{"either case", search.GrepQuery{Pattern: "two", IgnoreCase: true}, lines{"b.go": {2}, "a.go": {1, 2}, "src/d.txt": {1}}, []string{"b.go", "a.go", "src/d.txt"}},
		{"ends of lines", search.GrepQuery{Pattern: "^two$"}, lines{"a.go": {1}}, nil},
		{"ends of text", search.GrepQuery{Pattern: `\Ax two\z`}, lines{"a.go": {2}}, nil},
		{"no line end matches", search.GrepQuery{Pattern: `two\s`}, lines{}, nil},
		{"a dash in front", search.GrepQuery{Pattern: "-x"}, lines{"src/d.txt": {2}}, nil},
		{"fixed", search.GrepQuery{Pattern: "t.o", Fixed: true}, lines{}, nil},
		{"included", search.GrepQuery{Pattern: "two", Include: "*.go"}, lines{"a.go": {1, 2}}, nil},
		{"included by path", search.GrepQuery{Pattern: "two", Include: "src/*.{txt,md}"}, lines{"src/d.txt": {1}}, nil},
		{"included by a list", search.GrepQuery{Pattern: "two", Include: "*.rs, *.txt"}, lines{"src/d.txt": {1}}, nil},
		{"included by a place", search.GrepQuery{Pattern: "two", Include: "./a.go"}, lines{"a.go": {1, 2}}, nil},
		{"not included", search.GrepQuery{Pattern: "two", Include: "!*.go"}, lines{"src/d.txt": {1}}, nil},
		{"byte order mark", search.GrepQuery{Pattern: "^using"}, lines{"bom.cs": {1, 2}}, nil},
		{"UTF-16", search.GrepQuery{Pattern: "^hé$"}, lines{"le.txt": {1}, "be.txt": {1}}, nil},
		{"excluded", search.GrepQuery{Pattern: "two", Exclude: "^x"}, lines{"a.go": {1}, "src/d.txt": {1}}, nil},
		{"of one file", search.GrepQuery{Pattern: "two", Path: "a.go"}, lines{"a.go": {1, 2}}, nil},
		{"limited", search.GrepQuery{Pattern: "two", Limit: 1}, lines{"a.go": {1}}, nil},
		{"limited by file", search.GrepQuery{Pattern: "two", FileLimit: 1}, lines{"a.go": {1}, "src/d.txt": {1}}, nil},
		{"ignored as well", search.GrepQuery{Pattern: "^two", NoIgnore: true}, lines{"a.go": {1}, "build/e.go": {1}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.query.Dir = root
			if tt.query.Limit == 0 {
				tt.query.Limit = 100
			}
			m, err := search.New(search.Config{}).Grep(t.Context(), tt.query)
			if err != nil {
				t.Fatal(err)
			}
			got, order := lines{}, []string{}
			for _, f := range m.Files {
				name := strings.TrimPrefix(f.Path, root+"/")
				order = append(order, name)
				for _, l := range f.Lines {
					got[name] = append(got[name], l.Number)
				}
			}
			if !reflect.DeepEqual(got, tt.want) || tt.order != nil && !slices.Equal(order, tt.order) {
				t.Errorf("got %v in the order %v, want %v in %v", got, order, tt.want, tt.order)
			}
		})
	}
}

func TestGrepRefuses(t *testing.T) {
	t.Parallel()
	for _, q := range []search.GrepQuery{
		{Pattern: "("}, {Pattern: "(?=x)"}, {Pattern: strings.Repeat("x", 5000)}, {Pattern: strings.Repeat("x{900}", 7)}, {Pattern: "x", Exclude: "["}, {Pattern: "x", Include: "["}, {Pattern: "x", Path: "/nope"},
	} {
		q.Dir, q.Limit = t.TempDir(), 1
		_, err := search.New(search.Config{}).Grep(t.Context(), q)
		if _, ok := errors.AsType[*search.Error](err); !ok {
			t.Errorf("%+v: got %v, want it refused", q, err)
		}
	}
}

// The program of each expression would take hundreds of megabytes.
func TestGrepRefusesWithoutCost(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	bomb := strings.Repeat("(a{1,1000}z)|", 300) + "b"
	for _, q := range []search.GrepQuery{{Pattern: bomb}, {Pattern: bomb, IgnoreCase: true}, {Pattern: "x", Exclude: bomb}} {
		q.Dir, q.Limit = t.TempDir(), 1
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := search.New(search.Config{}).Grep(t.Context(), q)
		runtime.ReadMemStats(&after)
		if _, ok := errors.AsType[*search.Error](err); !ok {
			t.Errorf("got %v, want it refused", err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Errorf("took %d bytes of memory", took)
		}
	}
}

// Lines around matches come once, and keep their numbers.
func TestGrepAround(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "line %d\n", i+1)
	}
	root := tree(t, "a.txt="+text.String())
	m, err := search.New(search.Config{}).Grep(t.Context(), search.GrepQuery{
		Dir: root, Pattern: "line (5|8|19)$", Limit: 10, Around: func(int) (int, int) { return 2, 1 },
	})
	if err != nil || m.Count != 3 {
		t.Fatalf("got %+v, %v", m, err)
	}
	var got []string
	for _, l := range m.Files[0].Lines {
		mark := "-"
		if l.Match {
			mark = ":"
		}
		got = append(got, fmt.Sprintf("%d%s", l.Number, mark))
		if want := fmt.Sprintf("line %d", l.Number); l.Text != want {
			t.Errorf("got %q, want %q", l.Text, want)
		}
	}
	if want := "3- 4- 5: 6- 7- 8: 9- 17- 18- 19: 20-"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	root := tree(t, "b.txt=12345", "sub/", "A/", "a.log", "x.o", ".gitignore=*.o", ".git/")
	if err := os.Symlink("b.txt", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	s := search.New(search.Config{})
	l, err := s.List(t.Context(), root, ".", []string{"*.log"}, false, 4)
	want := search.Listing{Dir: root, Ignored: 3, Total: 5, Entries: []search.Entry{
		{Name: "A", Dir: true}, {Name: "sub", Dir: true}, {Name: ".gitignore", Size: 3}, {Name: "b.txt", Size: 5},
	}}
	// The file of rules is written as its text says.
	if err != nil || len(l.Entries) != 4 {
		t.Fatalf("got %+v, %v", l, err)
	}
	want.Entries[2].Size = l.Entries[2].Size
	if !reflect.DeepEqual(l, want) {
		t.Errorf("got  %+v\nwant %+v", l, want)
	}
	l, err = s.List(t.Context(), root, "", nil, true, 100)
	if last := l.Entries[len(l.Entries)-2]; err != nil || l.Ignored != 0 || l.Total != 8 || last.Link != "b.txt" {
		t.Errorf("got %+v, %v", l, err)
	}
	if _, err := s.List(t.Context(), root, "b.txt", nil, false, 1); err == nil {
		t.Error("a file was listed")
	}
}
