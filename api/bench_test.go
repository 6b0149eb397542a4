package api_test

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

// buildOutput resembles what a compiler prints: 60 columns, some of it quoted.
func buildOutput(n int) string {
	const line = "pkg/server/route.go:42:7: undefined: \"handler\" (see docs)\n"
	return strings.Repeat(line, n/len(line)+1)[:n]
}

func BenchmarkEncodeRun(b *testing.B) {
	dir := "/workspace"
	o := api.RunObservation{
		Content:  buildOutput(30_000),
		Command:  "go build ./...",
		Metadata: api.RunMetadata{ExitCode: 1, PID: -1, WorkingDir: &dir, Suffix: "\n[The command completed with exit code 1.]"},
	}
	b.SetBytes(int64(len(o.Content)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := api.EncodeObservation(o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeRequest(b *testing.B) {
	for _, bm := range []struct {
		name   string
		action api.Action
	}{
		{"run", api.RunAction{Command: "true"}},
		{"write 1 MB", api.WriteAction{Path: "/workspace/a.txt", Content: buildOutput(1 << 20), End: -1}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			body, err := api.EncodeRequest(api.Request{Action: bm.action, ID: 7})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := api.DecodeRequest(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
