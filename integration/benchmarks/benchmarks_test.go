// Package benchmarks_test measures the shipped server from outside, over its sockets,
// beside the least that does the same work: a bash on a terminal, a read of a file, a
// write with its fsync. The figures of docs/reference/performance.md come from here:
//
//	go test -run '^$' -bench . -count 5 ./integration/benchmarks | benchstat -col /by -
//
// ACTIOND_PROGRAMS is the directory of the programs to measure; without it they are
// built from this version. 'make compare' measures two versions in turn.
//
// A benchmark fails on a wrong answer and on anything that ten thousand commands
// leave behind. It does not fail on a time, which depends on the machine.
package benchmarks_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// measure reports how long do takes: the mean as always, the median and the 99th
// percentile.
func measure(b *testing.B, do func(round int) error) {
	b.Helper()
	var took []time.Duration
	for b.Loop() {
		begun := time.Now()
		err := do(len(took))
		took = append(took, time.Since(begun))
		check(b, err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

// way is one of several ways to do the same work.
type way struct {
	name  string
	start func(*testing.B) func(round int) error
}

// compare measures each way as a benchmark of its own, by=NAME.
func compare(b *testing.B, ways ...way) {
	b.Helper()
	for _, w := range ways {
		b.Run("by="+w.name, func(b *testing.B) { measure(b, w.start(b)) })
	}
}

// runs is a command in a new server.
func runs(text, network string, flags ...string) func(*testing.B) func(int) error {
	return func(b *testing.B) func(int) error {
		b.Helper()
		s, request := launch(b, network, flags...), command(text)
		check(b, s.run(request))
		return func(int) error { return s.run(request) }
	}
}

// types is a command in a bare shell.
func types(text string) func(*testing.B) func(int) error {
	return func(b *testing.B) func(int) error {
		b.Helper()
		s := bare(b)
		return func(int) error { return s.run(text) }
	}
}

func BenchmarkSize(b *testing.B) {
	for _, name := range []string{"server", "runtimectl", "runtimectl-kubernetes"} {
		b.Run(name, func(b *testing.B) {
			info := must(os.Stat(filepath.Join(must(programs())(b), name)))(b)
			for b.Loop() { // there is nothing to repeat
			}
			b.ReportMetric(float64(info.Size())/1e6, "MB")
		})
	}
}

// BenchmarkStart measures from fork to the first answer, and a bash to its first
// command.
func BenchmarkStart(b *testing.B) {
	full := scratch(b)
	s := launch(b, "tcp", "--state-dir", full)
	for range 10_000 {
		check(b, s.run(command("true")))
	}
	s.stop()
	start := func(dir func(*testing.B) string) func(*testing.B) func(int) error {
		return func(b *testing.B) func(int) error {
			b.Helper()
			return func(int) error {
				s := launch(b, "tcp", "--state-dir", dir(b))
				b.StopTimer()
				s.stop()
				b.StartTimer()
				return nil
			}
		}
	}
	compare(
		b,
		way{"server", start(scratch)},
		way{"server-with-10000-actions", start(func(*testing.B) string { return full })},
		way{"bare", func(b *testing.B) func(int) error {
			b.Helper()
			return func(int) error {
				s := bare(b)
				b.StopTimer()
				s.stop()
				b.StartTimer()
				return nil
			}
		}},
	)
}

func BenchmarkTrue(b *testing.B) {
	ways := []way{
		{"tcp", runs("true", "tcp")},
		{"unix", runs("true", "unix")},
		{"tcp-journal-sync", func(b *testing.B) func(int) error {
			b.Helper()
			return runs("true", "tcp", "--state-dir", scratch(b), "--journal-sync")(b)
		}},
		{"bare", types("true")},
	}
	if os.Geteuid() == 0 {
		ways = append(ways, way{"another-user", runs("true", "tcp", "--username", "nobody")})
	}
	compare(b, ways...)
}

// BenchmarkParallel runs true in eight sessions at once, and in eight bare shells. The
// time is that of all divided by their commands.
func BenchmarkParallel(b *testing.B) {
	const workers = 8
	all := func(b *testing.B, start func(i int) func() error) {
		b.Helper()
		var work [workers]func() error
		for i := range work {
			work[i] = start(i)
			check(b, work[i]())
		}
		b.ResetTimer()
		var wait sync.WaitGroup
		var errs [workers]error
		for i := range work {
			wait.Go(func() {
				for n := i; n < b.N && errs[i] == nil; n += workers {
					errs[i] = work[i]()
				}
			})
		}
		wait.Wait()
		check(b, errors.Join(errs[:]...))
	}
	b.Run("by=server", func(b *testing.B) {
		s := launch(b, "tcp")
		all(b, func(i int) func() error {
			c := must(s.dial())(b)
			b.Cleanup(func() { _ = c.Close() })
			request := action("run", fmt.Sprint("s", i), map[string]any{"command": "true"})
			return func() error { return c.run(request) }
		})
	})
	b.Run("by=bare", func(b *testing.B) {
		all(b, func(int) func() error {
			s := bare(b)
			return func() error { return s.run("true") }
		})
	})
}

// BenchmarkSessions has a hundred clients sleep for 0.1 s, each in its session.
func BenchmarkSessions(b *testing.B) {
	const clients = 100
	var requests [clients][]byte
	for i := range requests {
		requests[i] = action("run", fmt.Sprint("s", i), map[string]any{"command": "sleep 0.1"})
	}
	s := launch(b, "tcp")
	var connections [clients]*connection
	for i := range connections {
		connections[i] = must(s.dial())(b)
		b.Cleanup(func() { _ = connections[i].Close() })
	}
	measure(b, func(int) error {
		var all sync.WaitGroup
		var errs [clients]error
		for i, c := range connections {
			all.Go(func() { errs[i] = c.run(requests[i]) })
		}
		all.Wait()
		return errors.Join(errs[:]...)
	})
}
