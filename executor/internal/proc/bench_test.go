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
