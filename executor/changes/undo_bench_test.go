package changes_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// manyFiles makes 20,000 files in 2,000 directories below tree.
func manyFiles(b *testing.B) (dir string) {
	b.Helper()
	dir = b.TempDir()
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
	return dir
}

// BenchmarkRemoved brings 20,000 files back after their removal, in turns: a restore, and what others use. The metrics are the
// medians of the time and the processor's time of each.
func BenchmarkRemoved(b *testing.B) {
	dir, aside := manyFiles(b), b.TempDir()
	tree := filepath.Join(dir, "tree")
	run := func(name string, args ...string) {
		b.Helper()
		if said, err := exec.CommandContext(b.Context(), name, args...).CombinedOutput(); err != nil {
			b.Fatalf("%s %s: %v: %s", name, args, err, said)
		}
	}
	archive, copied, repository := filepath.Join(aside, "tar"), filepath.Join(aside, "copy"), filepath.Join(aside, "git")
	run("tar", "cf", archive, "-C", dir, "tree")
	run("cp", "-a", tree, copied)
	git := func(args ...string) {
		b.Helper()
		run("git", append([]string{"-C", dir, "--git-dir", repository, "--work-tree", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	}
	git("init", "--quiet")
	git("add", "-A")
	git("commit", "--quiet", "--message", "all")
	tracker := track(b, changes.Config{Root: dir, Store: contents(b, 0), StateDir: filepath.Join(b.TempDir(), "state")})
	state := step(b, tracker)
	keep(b, tracker)
	ways := map[string]func(){
		"restore": func() {
			if r := restore(b, tracker, state, changes.RestoreOptions{}); r.RefusedCount > 0 {
				b.Fatal(r.Refused[0])
			}
		},
		"tar": func() { run("tar", "xf", archive, "-C", dir) },
		"cp":  func() { run("cp", "-a", copied, tree) },
		"git": func() { git("checkout", "--quiet", "--force", "HEAD") },
	}
	took, busy := map[string][]time.Duration{}, map[string][]time.Duration{}
	for b.Loop() {
		for name, bring := range ways {
			if err := os.RemoveAll(tree); err != nil {
				b.Fatal(err)
			}
			step(b, tracker)
			runtime.GC()
			begun, used := time.Now(), processorTime(b)
			bring()
			took[name] = append(took[name], time.Since(begun))
			busy[name] = append(busy[name], processorTime(b)-used)
		}
	}
	b.ReportMetric(0, "ns/op") // of all
	for name := range ways {
		slices.Sort(took[name])
		slices.Sort(busy[name])
		b.ReportMetric(took[name][len(took[name])/2].Seconds(), name+"-s")
		b.ReportMetric(busy[name][len(busy[name])/2].Seconds(), name+"-cpu-s")
	}
}

// processorTime returns that of this process and its children that ended.
func processorTime(b *testing.B) (all time.Duration) {
	b.Helper()
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var use unix.Rusage
		if err := unix.Getrusage(who, &use); err != nil {
			b.Fatal(err)
		}
		all += time.Duration(use.Utime.Nano() + use.Stime.Nano())
	}
	return all
}

// BenchmarkUndo takes back the removal of 20,000 files in 2,000 directories.
func BenchmarkUndo(b *testing.B) {
	dir := manyFiles(b)
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
