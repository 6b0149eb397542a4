package process_test

import (
	"io"
	"os/exec"
	"testing"

	"github.com/actiond/actiond/executor/process"
)

// BenchmarkExec runs programs beside what a bare pipe, or a bare fork and exec, costs.
func BenchmarkExec(b *testing.B) {
	for _, test := range []struct {
		name  string
		argv  []string
		bytes int64
	}{
		{"true", []string{"/bin/true"}, 0},
		{"seq", []string{"seq", "1", "200000"}, 1288895},
		{"100MB", []string{"head", "-c", "100000000", "/dev/zero"}, 100_000_000},
	} {
		b.Run(test.name+"/exec", func(b *testing.B) {
			e := engine(b)
			b.SetBytes(test.bytes)
			for b.Loop() {
				if r := run(b, e, process.Command{Argv: test.argv}); r.Stdout.Total != test.bytes {
					b.Fatalf("got %d bytes", r.Stdout.Total)
				}
			}
		})
		b.Run(test.name+"/bare", func(b *testing.B) {
			b.SetBytes(test.bytes)
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), test.argv[0], test.argv[1:]...)
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, make([]byte, 64<<10)); n != test.bytes || err != nil {
					b.Fatalf("got %d bytes, %v", n, err)
				}
				if err := cmd.Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
