package bash_test

import (
	"os/exec"
	"testing"

	"github.com/actiond/actiond/executor/bash"
)

// BenchmarkTrue runs the shortest commands: a builtin, one that fails, and the
// command after that, which is told the status.
func BenchmarkTrue(b *testing.B) {
	for _, shell := range []string{"bash", "dash"} {
		program, err := exec.LookPath(shell)
		if err != nil {
			b.Fatal(err)
		}
		for _, text := range []string{"true", "false", "/bin/true"} {
			b.Run(shell+"/"+text, func(b *testing.B) {
				s, err := bash.Start(b.Context(), bash.Config{Program: program, Dir: "/", Env: []string{"PATH=/usr/bin:/bin", "HOME=/"}})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				for b.Loop() {
					if r, err := s.Run(b.Context(), bash.Command{Text: text, Hard: long}); err != nil || r.Outcome != bash.Completed {
						b.Fatalf("got %+v, %v", r, err)
					}
				}
			})
		}
	}
}
