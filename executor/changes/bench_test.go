package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/actiond/actiond/executor/changes"
)

// bigTree has 100,000 names: 9,990 directories and 90,000 files.
func bigTree(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	for i := range 10 {
		for j := range 998 {
			sub := filepath.Join(dir, fmt.Sprintf("part%d", i), fmt.Sprintf("directory%03d", j))
			if err := os.MkdirAll(sub, 0o755); err != nil {
				b.Fatal(err)
			}
			for k := range 9 {
				if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%d.go", k)), []byte("text"), 0o644); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	return dir
}

func BenchmarkStep(b *testing.B) {
	dir := bigTree(b)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tracker := track(b, changes.Config{Root: dir})
	state := step(b, tracker)
	runtime.GC()
	runtime.ReadMemStats(&after)
	perName := float64(after.HeapAlloc-before.HeapAlloc) / float64(state.Names())
	b.Run("nothing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			step(b, tracker)
		}
		b.ReportMetric(perName, "B/name")
	})
	b.Run("one", func(b *testing.B) {
		state = benchmarkOne(b, tracker, state, filepath.Join(dir, "part5/directory500/file5.go"), func(_, _ *changes.State) {})
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			verify(b, tracker)
		}
	})
	b.Run("contents", func(b *testing.B) {
		for b.Loop() {
			if err := tracker.ReadContents(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			t, err := changes.New(changes.Config{Root: dir})
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := t.Close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("move", func(b *testing.B) {
		from, to := filepath.Join(dir, "part1"), filepath.Join(dir, "part1moved")
		for b.Loop() {
			if err := os.Rename(from, to); err != nil {
				b.Fatal(err)
			}
			now := step(b, tracker)
			if c := changes.Compare(state, now, changes.Limits{}).Counts; c.Renamed != 1 {
				b.Fatal(c)
			}
			state, from, to = now, to, from
		}
	})
}

// BenchmarkWide changes one file of 90,000 in the 10,000 directories of one directory, with what a server does with the state.
func BenchmarkWide(b *testing.B) {
	dir := b.TempDir()
	for i := range 10_000 {
		sub := filepath.Join(dir, fmt.Sprint("d", i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 9 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint("f", j)), []byte("text"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	tracker := track(b, changes.Config{Root: dir})
	state := step(b, tracker)
	benchmarkOne(b, tracker, state, filepath.Join(dir, "d5000/f5"), func(before, now *changes.State) {
		if own := before.Own(now); own < 10_000 {
			b.Fatal(own, "bytes")
		}
	})
}

// benchmarkOne changes a file again and again, has each pair of states looked at, and returns the last one.
func benchmarkOne(b *testing.B, tracker *changes.Tracker, state *changes.State, file string, look func(before, now *changes.State)) *changes.State {
	b.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.WriteString("x"); err != nil {
			b.Fatal(err)
		}
		now := step(b, tracker)
		if n := len(changes.Compare(state, now, changes.Limits{}).Facts); n != 1 {
			b.Fatal(n, "facts")
		}
		look(state, now)
		state = now
	}
	return state
}
