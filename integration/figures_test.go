//go:build figures

// Package integration_test sees the programs from outside.
//
// TestFigures is the run behind docs/performance.md. It builds the server as
// it is shipped, starts it as a process and measures it over its sockets,
// each figure side by side with the barest way to the same end that this
// program can drive: a bash on a terminal, a read of a file, a write with its
// flush. It prints a table and asserts what must be true of every machine:
// that the answers are right and that nothing is left behind. It asserts no
// time, because a time says as much about the machine as about the server.
package integration_test

import (
	"os"
	"testing"
)

// figures is one part of the run: it measures and puts what it found into the
// table of all.
type figures struct {
	*testing.T
	binary string // the server
	table  *table
}

// TestFigures measures everything in turn. A part can be repeated alone:
// -run 'TestFigures/latency'.
func TestFigures(t *testing.T) {
	f := &figures{T: t, binary: buildServer(t), table: new(table)}
	f.table.begin(f)
	for _, part := range []struct {
		name    string
		measure func(*figures)
	}{
		{"size", (*figures).size},
		{"start", (*figures).start},
		{"idle", (*figures).idle},
		{"latency", (*figures).latency},
		{"parallel", (*figures).parallel},
		{"files", (*figures).files},
		{"notebook", (*figures).notebook},
		{"user", (*figures).otherUser},
		{"throughput", (*figures).throughput},
		{"flood", (*figures).flood},
		{"endurance", (*figures).endurance},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.measure(&figures{T: t, binary: f.binary, table: f.table})
		})
	}
	f.table.end()
	text := f.table.markdown()
	t.Log("\n" + text)
	if path := os.Getenv("FIGURES_OUT"); path != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatalf("writing the table: %v", err)
		}
	}
}
