package search_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/actiond/actiond/executor/search"
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
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(root, ".gitignore"), []byte("*.o\nnode_modules/\n/build\n"), 0o644); err != nil {
		tb.Fatal(err)
	}
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
