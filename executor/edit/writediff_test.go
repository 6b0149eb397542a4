package edit_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/edit"
)

// The diff of a large write says which lines changed and not what they are.
func TestWriteDiffOfLargeChange(t *testing.T) {
	t.Parallel()
	e, err := edit.New(edit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "f")
	names := "--- " + path + "\n+++ " + path
	write := func(content, want string) {
		t.Helper()
		r, err := e.Write(path, "/", content, 0, -1)
		if err != nil || r.Diff != want {
			t.Errorf("got %.200q, %v; want %q", r.Diff, err, want)
		}
	}
	const line = "0123456789012345678901234567890123456789012345678901234567890123" // 64 bytes and a line feed
	write(strings.Repeat(line+"\n", 8000), names+"\n@@ -0,0 +1,8001 @@\n[text left out: 0 bytes removed, 520001 added]")
	write(strings.Repeat(line+"\n", 4000)+"x\n"+strings.Repeat(line+"\n", 3999), names+"\n@@ -4001 +4001 @@\n-"+line+"\n+x")
	write(strings.Repeat(line[1:]+"\n", 7999), names+fmt.Sprintf("\n@@ -1,%d +1,%d @@\n[text left out: %d bytes removed, %d added]", 8000, 7999, 519936, 511935))
}
