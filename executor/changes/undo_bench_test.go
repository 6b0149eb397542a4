package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/changes"
)

// BenchmarkUndo takes back the removal of 20,000 files in 2,000 directories.
func BenchmarkUndo(b *testing.B) {
	dir := b.TempDir()
	text := strings.Repeat("a line of text, which is not long\n", 60)
	for i := range 2000 {
		sub := filepath.Join(dir, "tree", fmt.Sprintf("part%d", i%20), fmt.Sprintf("directory%d", i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 10 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%d.go", j)), fmt.Append([]byte(text), i, j), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	tracker := track(b, changes.Config{Root: dir, Store: contents(b, 0), StateDir: filepath.Join(b.TempDir(), "state")})
	state := step(b, tracker)
	b.Run("keep", func(b *testing.B) {
		for b.Loop() {
			keep(b, tracker)
		}
		b.ReportMetric(float64(tracker.Keeping().AllBytes)/float64(b.N), "bytes/first")
	})
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(float64(len(state.Encode(nil)))/float64(state.Names()), "B/name")
		}
	})
	b.Run("removed", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			if err := os.RemoveAll(filepath.Join(dir, "tree")); err != nil {
				b.Fatal(err)
			}
			step(b, tracker)
			runtime.GC()
			b.StartTimer()
			if r := restore(b, tracker, state, changes.RestoreOptions{}); r.RefusedCount > 0 {
				b.Fatal(r.Refused[0])
			}
		}
	})
	b.Run("moved", func(b *testing.B) {
		state := verify(b, tracker)
		for b.Loop() {
			if err := os.Rename(filepath.Join(dir, "tree"), filepath.Join(dir, "moved")); err != nil {
				b.Fatal(err)
			}
			if r := restore(b, tracker, state, changes.RestoreOptions{}); r.RefusedCount > 0 {
				b.Fatal(r.Refused[0])
			}
		}
	})
}
