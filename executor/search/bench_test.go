package search_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/search"
	"github.com/actiond/actiond/internal/testhelp"
)

// manyFiles makes 100,000 empty files in 1000 directories, one in ten a .go.
func manyFiles(tb testing.TB) string {
	tb.Helper()
	root := tb.TempDir()
	for d := range 1000 {
		dir := filepath.Join(root, fmt.Sprintf("pkg%02d", d/50), fmt.Sprintf("dir%03d", d))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
		for f := range 100 {
			name := fmt.Sprintf("file%02d.txt", f)
			if f%10 == 0 {
				name = fmt.Sprintf("file%02d.go", f)
			}
			testhelp.WriteFile(tb, filepath.Join(dir, name), "", 0o644)
		}
	}
	testhelp.WriteFile(tb, filepath.Join(root, ".gitignore"), "*.o\nnode_modules/\n/build\n", 0o644)
	return root
}

// BenchmarkGlob looks through 100,000 files, once for a tenth of them and once
// for all, whose times have to be asked for.
func BenchmarkGlob(b *testing.B) {
	root := manyFiles(b)
	s := search.New(search.Config{})
	for _, bb := range []struct {
		pattern string
		total   int
	}{{"**/*.go", 10_000}, {"**/file?0.{go,txt}", 10_000}, {"**/*", 100_001}} {
		b.Run(bb.pattern, func(b *testing.B) {
			for b.Loop() {
				files, err := s.Glob(b.Context(), search.GlobQuery{Dir: root, Pattern: bb.pattern, Limit: 100})
				if err != nil || files.Total != bb.total || len(files.Paths) != 100 {
					b.Fatalf("got %d of %d files, %v", len(files.Paths), files.Total, err)
				}
			}
		})
	}
}

// BenchmarkGrep looks for a name that one file has in 32 MB of others, whatever
// its case, with ripgrep and without it.
func BenchmarkGrep(b *testing.B) {
	root := b.TempDir()
	filler := strings.Repeat("func compute(a, b int) int { return a + b } // all work and no play\n", 250)
	for i := range 2000 {
		text := filler
		if i == 1000 {
			text += "func handleNeedle() {}\n"
		}
		testhelp.WriteFile(b, filepath.Join(root, fmt.Sprintf("f%04d.go", i)), text, 0o644)
	}
	rg, _ := exec.LookPath("rg")
	for _, bb := range []struct{ name, program string }{{"in process", ""}, {"with ripgrep", rg}} {
		b.Run(bb.name, func(b *testing.B) {
			if bb.name != "in process" && rg == "" {
				b.Skip("no ripgrep in this image")
			}
			s := search.New(search.Config{Ripgrep: bb.program})
			for b.Loop() {
				m, err := s.Grep(b.Context(), search.GrepQuery{Dir: root, Pattern: `func \w+needle\(`, IgnoreCase: true, NamesOnly: true, Limit: 100})
				if err != nil || m.Count != 1 {
					b.Fatalf("got %+v, %v", m, err)
				}
			}
		})
	}
}
