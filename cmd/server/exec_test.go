package main

import (
	"bytes"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// A program with all three streams, through the whole program.
func TestClientExec(t *testing.T) {
	t.Parallel()
	c, _, _ := serveForTest(t)
	input := bytes.Repeat([]byte("one\xff\x00\n"), 200_000)
	var out, errs bytes.Buffer
	o, err := c.Exec(t.Context(), api.Request{Action: api.ExecAction{Command: "cat; echo ended >&2; exit 4"}},
		client.Streams{Stdin: bytes.NewReader(input), Stdout: &out, Stderr: &errs})
	if err != nil || o.ExitCode == nil || *o.ExitCode != 4 {
		t.Fatalf("got %+v, %v", o, err)
	}
	if !bytes.Equal(out.Bytes(), input) || errs.String() != "ended\n" {
		t.Errorf("got %d bytes of %d, %q", out.Len(), len(input), errs.String())
	}
}
