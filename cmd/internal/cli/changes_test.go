package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// What a command changed is shown beside its output, and later from the log.
func TestChanges(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	code, stdout, stderr := m.run("exec", "--changes", "box", "--", "sh", "-c", "echo out; echo > a; mkdir d; echo > d/b")
	if want := "+3 ~0 -0 >0\n  created  a\n  created  d\n  created  d/b\n"; code != 0 || stdout != "out\n" || !strings.HasSuffix(stderr, want) {
		t.Errorf("exec: exit code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr = m.run("act", "--changes", "box", `{"action": "run", "args": {"command": "rm a; mv d e"}}`)
	changes, err := api.ChangesIn([]byte(stdout))
	if code != 0 || err != nil || changes == nil || changes.Counts != (api.ChangeCounts{Deleted: 1, Renamed: 1}) {
		t.Errorf("act: exit code %d, %q, %q, %v", code, stdout, stderr, err)
	}
	lines := strings.Split(m.ok("changes", "box"), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[1], "+0 ~0 -1 >1") || !strings.HasSuffix(lines[2], "+3 ~0 -0 >0") {
		t.Errorf("got %q", lines)
	}
	var entries []api.ChangeEntry
	if err := json.Unmarshal([]byte(m.ok("changes", "-o", "json", "-n", "1", "box")), &entries); err != nil || len(entries) != 1 || entries[0].Kind != "run" {
		t.Errorf("got %+v, %v", entries, err)
	}
	table := m.ok("changes", "--since", entries[0].Before, "--path", "e", "box")
	if !strings.Contains(table, "renamed") || !strings.Contains(table, "d -> e") || strings.Contains(table, "deleted") {
		t.Errorf("got %s", table)
	}
	if code, _, stderr := m.run("changes", "--since", "s99999", "box"); code == 0 || !strings.Contains(stderr, "There is no state") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, _, stderr := m.run("changes", "--path", "a", "box"); code != 2 || !strings.Contains(stderr, "need --since") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, _, stderr := m.run("log", "box"); code != 2 || !strings.Contains(stderr, "runtimectl changes") {
		t.Errorf("log: exit code %d, %q", code, stderr)
	}
}

// Names in the sandbox cannot write to the terminal.
func TestHostileChanges(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	list := pathList{Paths: []api.ChangedPath{api.NewChangedPath("renamed", "b\x1b[2J\xff", "a\nb")}}
	if err := output.WriteTable(&out, list.Table(), 80); err != nil {
		t.Fatal(err)
	}
	printRest(&out, &api.Changes{Ignored: map[string]int{"\x1b]0;x\a": 1}, Why: "unsure"})
	if got := out.String(); strings.ContainsAny(got, "\x1b\a") || strings.Count(got, "\n") != 4 {
		t.Errorf("got %q", got)
	}
}
