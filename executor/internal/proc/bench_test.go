package proc_test

import (
	"os/exec"
	"testing"

	"github.com/actiond/actiond/executor/internal/proc"
)

// BenchmarkStart starts a program and waits for its end, beside a bare fork and exec.
func BenchmarkStart(b *testing.B) {
	for name, start := range map[string]func(*exec.Cmd) error{"start": proc.Start, "bare": (*exec.Cmd).Start} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), "/bin/true")
				if err := start(cmd); err != nil {
					b.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLiving finds the processes of the agent, again and again, beside a look at all that there are.
func BenchmarkLiving(b *testing.B) {
	var scan proc.Scan
	for name, look := range map[string]func() int{
		"scan": func() int { return len(scan.Living(nil, nil, "NONE=1", nil)) },
		"all":  func() int { return len(proc.Snapshot()) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				look()
			}
		})
	}
}

// BenchmarkStarts finds out whether a process was started.
func BenchmarkStarts(b *testing.B) {
	starts := proc.NewStarts()
	defer starts.Close()
	b.ReportAllocs()
	for b.Loop() {
		starts.Since()
	}
}
